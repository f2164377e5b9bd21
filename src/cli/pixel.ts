import { randomUUID } from 'node:crypto'
import { balance } from '../administration/credits/credits.ts'
import { wholeNumber } from '../administration/input.ts'
import { figureDays, pixelHits, searchedDomain } from '../administration/pixel/pixel-hits.ts'
import {
  createPixelControls,
  type PixelChange,
  type PixelControls,
  pixelChangeOf,
} from '../capabilities/index.ts'
import {
  type Command,
  type CommandContext,
  type Given,
  organizationParameter,
  wholeOrNot,
} from './command.ts'
import { table } from './table.ts'

/** The pixel of an organization, as the dashboard shows and changes it. */

const shownDefault = '100'
const shownMax = 10_000
/** Rules per read. */
const portionMax = 1_000

/** With the organization's name. Throws `CommandRefused` if no organization has the id. */
const withPixel = async <Result>(
  { logger, foundation }: CommandContext,
  given: Given,
  use: (
    pixel: PixelControls,
    of: {
      readonly id: string
      readonly name: string
      readonly open: Awaited<ReturnType<CommandContext['foundation']>>
    },
  ) => Promise<Result>,
): Promise<Result> => {
  const open = await foundation()
  const id = given.required('org')
  const { name } = await balance(open, id)
  const pixel = createPixelControls({ ...open, logger })
  try {
    return await use(pixel, { id, name, open })
  } finally {
    await pixel.close()
  }
}

const textOf =
  (given: Given) =>
  (name: string): string =>
    given.text(name) ?? ''

const maxOf = (given: Given): number =>
  wholeNumber('max', given.text('max') ?? shownDefault, { min: 1, max: shownMax })

const maxParameter = { name: 'max', help: `rows, at most ${shownMax} (default ${shownDefault})` } as const

const rules: Command = {
  name: 'pixel rules',
  summary: 'the limits and blocks of a pixel, what is used of each now, and who set it',
  parameters: [
    organizationParameter,
    { name: 'domain', help: 'only domains that hold this text' },
    maxParameter,
  ],
  changes: 'nothing',
  run: (context, given) =>
    withPixel(context, given, async (pixel, { id }) => {
      const max = maxOf(given)
      const found: Awaited<ReturnType<PixelControls['rules']>>['rules'][number][] = []
      let page: Awaited<ReturnType<PixelControls['rules']>>
      do {
        page = await pixel.rules(id, {
          search: searchedDomain(textOf(given)('domain')),
          after: found.at(-1)?.place ?? '',
          max: Math.min(portionMax, max - found.length),
          atMs: Date.now(),
        })
        found.push(...page.rules)
      } while (page.more && found.length < max)
      const json = found.map(({ domain, period, number, used, resetsAt, actor, at }) => ({
        domain,
        rule: period === null ? 'block' : 'limit',
        period,
        number,
        used,
        resets_at: resetsAt?.toISOString() ?? null,
        set_by: actor,
        set_at: at === '' ? null : at,
      }))
      return {
        json: { rules: json, count: page.count, more: page.more, uncounted: page.uncounted },
        lines: [
          ...(page.unreadableAt === null
            ? []
            : [`Event ${page.unreadableAt} of its rules cannot be read: nothing fires.`]),
          ...(page.uncounted ? ['The counters do not answer: what is used is not known.'] : []),
          ...(page.count === 0 ? ['There is no rule: its pixel fires everywhere.'] : table(json)),
          ...(page.more ? [`There are more: ${page.count} in all. Give --max or --domain.`] : []),
        ],
      }
    }),
}

const domainParameter = {
  name: 'domain',
  help: 'such as example.com; the rule covers everything under it',
  required: true,
} as const
const periodParameter = { name: 'period', help: 'day or month, UTC', required: true } as const

const sentences: Readonly<Record<PixelChange, (domain: string, given: Given) => string>> = {
  limit: (domain, given) =>
    `fires at most ${Number(given.text('number'))} times a ${given.text('period')} on ${domain} and everything under it`,
  unlimit: (domain, given) => `has no limit by ${given.text('period')} of ${domain}`,
  block: (domain) => `does not fire on ${domain} and everything under it`,
  unblock: (domain) => `is not blocked on ${domain}`,
}

const changing = (kind: PixelChange, described: Pick<Command, 'summary' | 'parameters'>): Command => ({
  name: `pixel ${kind}`,
  ...described,
  parameters: [organizationParameter, ...described.parameters],
  changes: {
    of: 'settings',
    asks: 'on a terminal',
    left: wholeOrNot('pixel rules'),
    plan: async ({ foundation }, given) => {
      const { domain } = pixelChangeOf(kind, textOf(given))
      const { name } = await balance(await foundation(), given.required('org'))
      return { says: [`The pixel of ${name} (${given.required('org')}) ${sentences[kind](domain, given)}.`] }
    },
  },
  run: (context, given) =>
    withPixel(context, given, async (pixel, { id, open }) => {
      const { domain } = pixelChangeOf(kind, textOf(given))
      const { changed } = await pixel.change(
        id,
        { kind, text: textOf(given) },
        { ...open.operator, once: `command ${randomUUID()}`, atMs: Date.now() },
      )
      return {
        json: { organization_id: id, domain, changed },
        lines: [
          changed
            ? `From the next hit on the pixel ${sentences[kind](domain, given)}.`
            : `Nothing was changed: the pixel ${sentences[kind](domain, given)} already.`,
        ],
      }
    }),
})

const hits: Command = {
  name: 'pixel hits',
  summary: 'how many hits of a pixel fired and were refused, by UTC day and by the domain of the rule',
  parameters: [organizationParameter, { name: 'domain', help: 'only of rules of this domain' }, maxParameter],
  changes: 'nothing',
  run: async ({ foundation }, given) => {
    const open = await foundation()
    const id = given.required('org')
    await balance(open, id)
    const domain = searchedDomain(textOf(given)('domain'))
    const { sums, days, until } = await pixelHits(open.pool, id, {
      domain: domain === '' ? null : domain,
      after: null,
      max: maxOf(given),
      atMs: Date.now(),
    })
    const [fired, refused] = [Number(sums.fired), Number(sums.refused)]
    const json = days.map((row) => ({ ...row, fired: Number(row.fired), refused: Number(row.refused) }))
    return {
      json: { days_summed: figureDays, fired, refused, by_day: json, more: until !== null },
      lines: [
        `${fired} fired and ${refused} refused in the last ${figureDays} days.`,
        ...(json.length === 0
          ? ['There is no such hit.']
          : table(json.map((row) => ({ ...row, domain: row.domain === '' ? '(no rule)' : row.domain })))),
        ...(until === null ? [] : ['There are more: give --max or --domain.']),
      ],
    }
  },
}

export const pixelCommands: readonly Command[] = [
  rules,
  changing('limit', {
    summary: 'set how often a pixel may fire for a domain; one that is there is replaced',
    parameters: [domainParameter, { name: 'number', help: 'hits, at most', required: true }, periodParameter],
  }),
  changing('unlimit', {
    summary: 'remove a limit of a pixel',
    parameters: [domainParameter, periodParameter],
  }),
  changing('block', {
    summary: 'let a pixel fire nowhere under a domain from the next hit on',
    parameters: [domainParameter],
  }),
  changing('unblock', { summary: 'take a block of a pixel back', parameters: [domainParameter] }),
  hits,
]
