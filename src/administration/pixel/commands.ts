import { randomUUID } from 'node:crypto'
import type pg from 'pg'
import { z } from 'zod'
import { type PixelDayRow, pixelDaysOf, pixelHitsSince } from '../../../projections/pixel-days.ts'
import { pixelPeriod } from '../../events/pixel.ts'
import { liveOrganizationOf } from '../../events/test-organization.ts'
import { balance } from '../credits/credits.ts'
import { type Context, command, query } from '../declare.ts'
import { anyText, choice, number, organization } from '../fields.ts'
import { type Operator, provedUserOf } from '../operator.ts'
import type { PixelChange, PixelRules } from './pixel.ts'

const dayMs = 86_400_000
/** The number of days in the sums, including today. */
const figureDays = 30

/** A search text for domains, without characters that domains cannot contain. PostgreSQL would refuse a string with U+0000. */
const searchedDomain = (text: string): string =>
  text
    .trim()
    .toLowerCase()
    .replaceAll(/[^a-z0-9.-]/g, '')
    .slice(0, 253)

const portionMax = 1_000

const max = number(
  { label: 'Rows', help: 'number of rows, at most 10000' },
  { min: 1, max: 10_000 },
).prefault('100')
const searched = (help: string) => anyText({ label: 'Domain', help }).prefault('')

const rules = query({
  name: 'pixel rules',
  action: 'accounts.read',
  summary: 'list the limits and blocks of a pixel, their current usage, and who set them',
  input: z.object({
    organization: organization(),
    domain: searched('only domains that contain this text'),
    max,
  }),
  lists: {
    rules: {
      columns: [
        { name: 'domain', label: 'Domain', kind: 'name' },
        { name: 'rule', label: 'Rule' },
        { name: 'period', label: 'Per' },
        { name: 'number', label: 'Limit', kind: 'number' },
        { name: 'used', label: 'Used now', kind: 'number', limit: 'number' },
        { name: 'resets_at', label: 'Resets (UTC)', kind: 'instant' },
        { name: 'set_by', label: 'Set by' },
        { name: 'set_at', label: 'Set (UTC)', kind: 'instant' },
      ],
      nextOfRow: [
        {
          name: 'pixel unlimit',
          label: 'Remove',
          given: ({ domain, period }) => (period === null ? null : { domain, period }),
        },
        {
          name: 'pixel unblock',
          label: 'Unblock',
          given: ({ domain, period }) => (period === null ? { domain } : null),
        },
      ],
    },
  },
  next: [
    { name: 'pixel hits', label: 'Hits by day' },
    { name: 'pixel limit', label: 'Set a limit' },
    { name: 'pixel block', label: 'Block a domain' },
  ],
  run: async ({ foundation, pixel, operator }, { organization: id, domain, max }) => {
    await balance(foundation, id)
    const actorFor = await actorsSeenBy(foundation.pool, operator, id)
    const page = await pixel((controls) => rulesOf(controls, id, { domain, max }))
    const rules = page.rules.map(({ domain, period, number, used, resetsAt, actor, at }) => ({
      domain,
      rule: period === null ? 'block' : 'limit',
      period,
      number,
      used,
      resets_at: resetsAt?.toISOString() ?? null,
      set_by: actorFor(actor),
      set_at: at === '' ? null : at,
    }))
    const notes = [
      ...(page.unreadableAt === null
        ? []
        : [`Event ${page.unreadableAt} of its rules cannot be read, so the pixel does not fire.`]),
      ...(page.uncounted ? ['The counters do not answer, so the usage is unknown.'] : []),
      ...(page.count === 0 && page.unreadableAt === null ? ['No rules: the pixel fires everywhere.'] : []),
      ...(page.more
        ? [`The pixel has ${page.count} rules in total. Increase the number of rows, or choose one domain.`]
        : []),
    ]
    return { json: { notes, rules, count: page.count, more: page.more, uncounted: page.uncounted } }
  },
})

/** Partners see the names of their own keys and users, but not the names of operators. */
const actorsSeenBy = async (
  pool: pg.Pool,
  { role }: Operator,
  organizationId: string,
): Promise<(actor: string) => string> => {
  if (role !== 'partner') return (actor) => actor
  const { rows } = await pool.query<{ name: string }>(
    'select name from users where organization_id = any ($1) limit 1000',
    // The users of an organization are also those of its test organization.
    [[organizationId, liveOrganizationOf(organizationId)]],
  )
  const names = new Set(rows.map(({ name }) => name))
  return (actor) =>
    actor.startsWith('key:') || names.has(provedUserOf(actor) ?? '') ? actor : 'the operator'
}

const rulesOf = async (
  pixel: PixelRules,
  organizationId: string,
  { domain, max }: { readonly domain: string; readonly max: number },
): ReturnType<PixelRules['rules']> => {
  const search = searchedDomain(domain)
  const found: Awaited<ReturnType<PixelRules['rules']>>['rules'][number][] = []
  for (;;) {
    const page = await pixel.rules(organizationId, {
      search,
      after: found.at(-1)?.place ?? '',
      max: Math.min(portionMax, max - found.length),
      atMs: Date.now(),
    })
    found.push(...page.rules)
    if (!page.more || found.length >= max) return { ...page, rules: found }
  }
}

type Asked = { readonly domain: string; readonly period?: string; readonly number?: number }

const sentences: Readonly<Record<PixelChange, (asked: Asked) => string>> = {
  limit: ({ domain, period, number }) =>
    `fires at most ${number} times per ${period} on ${domain} and its subdomains`,
  unlimit: ({ domain, period }) => `has no limit per ${period} on ${domain}`,
  block: ({ domain }) => `does not fire on ${domain} or its subdomains`,
  unblock: ({ domain }) => `is not blocked on ${domain}`,
}

/** Returns the value of a field by the name that the API uses. */
const textOf =
  ({ domain, period = '', number }: Asked) =>
  (name: string): string =>
    ({ domain, period, number: number === undefined ? '' : String(number) })[name] ?? ''

const planned =
  (kind: PixelChange) =>
  async (
    { foundation, pixel }: Context,
    { organization: id, ...asked }: Asked & { organization: string },
  ) => {
    const { domain } = await pixel(async ({ changeOf }) => changeOf(kind, textOf(asked)))
    const { name } = await balance(foundation, id)
    return `The pixel of ${name} (${id}) ${sentences[kind]({ ...asked, domain })}.`
  }

const changed =
  (kind: PixelChange) =>
  async (
    { foundation, operator, pixel }: Context,
    { organization: id, ...asked }: Asked & { organization: string },
  ) => {
    await balance(foundation, id)
    const text = textOf(asked)
    const cause = { actor: operator.actor, once: `command ${randomUUID()}`, atMs: Date.now() }
    const { domain, changed } = await pixel(async (controls) => ({
      ...controls.changeOf(kind, text),
      ...(await controls.change(id, { kind, text }, cause)),
    }))
    const sentence = sentences[kind]({ ...asked, domain })
    return {
      json: { organization_id: id, domain, changed },
      lines: [
        changed
          ? `From the next hit on, the pixel ${sentence}.`
          : `There was nothing to change: the pixel ${sentence}.`,
      ],
    }
  }

const ofDomain = {
  organization: organization(),
  domain: anyText({ label: 'Domain', help: 'such as example.com; the rule also covers subdomains' }),
}
const period = choice({ label: 'Period', help: 'UTC' }, pixelPeriod.options)
const changes = { of: 'settings', asks: 'on a terminal' } as const

const limit = command({
  name: 'pixel limit',
  action: 'pixel.change',
  summary: 'limit how often a pixel may fire for a domain; replaces an existing limit',
  input: z.object({
    ...ofDomain,
    number: number(
      { label: 'Hits', help: 'maximum number of hits per period' },
      { min: 1, max: 1_000_000_000 },
    ),
    period,
  }),
  changes,
  plan: planned('limit'),
  run: changed('limit'),
})

const unlimit = command({
  name: 'pixel unlimit',
  action: 'pixel.change',
  summary: 'remove a limit of a pixel',
  input: z.object({ ...ofDomain, period }),
  changes,
  plan: planned('unlimit'),
  run: changed('unlimit'),
})

const block = command({
  name: 'pixel block',
  action: 'pixel.change',
  summary: 'block a pixel on a domain and its subdomains, from the next hit on',
  input: z.object(ofDomain),
  changes,
  plan: planned('block'),
  run: changed('block'),
})

const unblock = command({
  name: 'pixel unblock',
  action: 'pixel.change',
  summary: 'remove a block of a pixel',
  input: z.object(ofDomain),
  changes,
  plan: planned('unblock'),
  run: changed('unblock'),
})

const hits = query({
  name: 'pixel hits',
  action: 'accounts.read',
  summary: 'count the hits of a pixel that fired or were refused, by UTC day and by the domain of the rule',
  input: z.object({
    organization: organization(),
    domain: searched('only rules for this domain'),
    max,
  }),
  lists: {
    by_day: {
      columns: [
        { name: 'day', label: 'Day (UTC)', kind: 'name' },
        { name: 'domain', label: 'Domain of the rule' },
        { name: 'fired', label: 'Fired', kind: 'number' },
        { name: 'refused', label: 'Refused', kind: 'number' },
      ],
    },
  },
  next: [{ name: 'pixel rules', label: 'Rules' }],
  run: async ({ foundation }, { organization: id, domain: typed, max }) => {
    await balance(foundation, id)
    const domain = searchedDomain(typed)
    const since = new Date(Date.now() - (figureDays - 1) * dayMs).toISOString().slice(0, 10)
    const { text: sums, values: ofSums } = pixelHitsSince(id, since)
    const { text: days, values: ofDays } = pixelDaysOf(id, {
      domain: domain === '' ? null : domain,
      max: max + 1,
    })
    const [{ rows: sum }, { rows: found }] = await Promise.all([
      foundation.pool.query<{ fired: string; refused: string }>(sums, [...ofSums]),
      foundation.pool.query<PixelDayRow>(days, [...ofDays]),
    ])
    const [fired, refused] = [Number(sum[0]?.fired ?? 0), Number(sum[0]?.refused ?? 0)]
    const more = found.length > max
    const by_day = found
      .slice(0, max)
      .map((row) => ({ ...row, fired: Number(row.fired), refused: Number(row.refused) }))
    const note = 'The list is incomplete: increase the number of rows, or choose one domain.'
    return { json: { days_summed: figureDays, fired, refused, by_day, more, ...(more && { note }) } }
  },
})

export const declarations = [rules, limit, unlimit, block, unblock, hits]
