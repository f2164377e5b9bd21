import type { FastifyInstance } from 'fastify'
import { limitNames, limitWords } from '../../administration/keys/key-request.ts'
import { mayDo } from '../../administration/roles.ts'
import { rowsOf } from '../../concurrency/query.ts'
import { formOf } from '../form.ts'
import { copyable, count, credits, instant, utc, words } from '../format.ts'
import { type Html, html } from '../html.ts'
import { type Dashboard, type KeyParams, keyAt, PageMissing, sendPage, viewerOf } from '../page.ts'
import { type AccountRow, type KeyDetailRow, keyDetail } from '../queries.ts'
import { type Range, rangeIn, rangeQuery, stepMs, timesOf } from '../ranges.ts'
import { callsOfStep, type KeyUseRow, type UsageAsk, usagePoints, useByCapability } from '../usage-queries.ts'
import { seriesOf, type UsageSeries } from '../usage-series.ts'
import { type FormFault, figures, layout, organizationHead, table, type Viewer } from './layout.ts'
import { keyState, mayRotate } from './organization.ts'
import { groupWords, plot } from './plot.ts'
import { rangeForm, rangeOrFault } from './ranges.ts'

export const keyPageRoutes = (pages: FastifyInstance, context: Dashboard): void => {
  const { pool } = context.foundation

  pages.get<KeyParams>('/organizations/:organization/keys/:key', async (request, reply) => {
    const nowMs = Date.now()
    const { account, key } = await keyAt(context, request.params)
    const range = rangeIn(formOf({ range: '30d' }), { nowMs, newestMs: null })
    const of = { organizationId: account.organization_id, keyId: key.key_id }
    const query = request.query as object
    const isAsked = 'range' in query || 'from' in query
    const { range: used, fault } = await rangeOrFault(
      pool,
      isAsked ? query : { range: '7d' },
      of.organizationId,
    )
    const [[detail], points, use] = await Promise.all([
      rowsOf(pool, keyDetail(account.organization_id, key.key_id, nowMs)),
      rowsOf(pool, usagePoints({ ...range, ...of }, 'outcome')),
      useIn(context, { ...used, ...of }),
    ])
    if (detail === undefined) throw new PageMissing()
    const viewer = viewerOf(request, reply)
    const series = seriesOf(timesOf(range), points, range.step)
    const shown = { viewer, account, key: { ...key, ...detail }, series, atMs: nowMs }
    return sendPage(
      fault === null ? reply : reply.code(422),
      keyPage({ ...shown, use: { ...use, range: used, fault } }),
    )
  })
}

const useIn = async (
  { foundation: { pool } }: Dashboard,
  ask: UsageAsk,
): Promise<Pick<KeyUse, 'rows' | 'first' | 'last'>> => {
  const rows = await rowsOf(pool, useByCapability(ask))
  const steps = stepsOf(rows)
  if (steps.length === 0) return { rows, first: null, last: null }
  const callsIn = async (ms: number, end: 'first' | 'last') => {
    const hours =
      ask.step === 'day' && ms > Date.now() - hoursSureMs ? await rowsOf(pool, hoursOf(ask, ms)) : []
    const at = hours.length === 0 ? ms : Math[end === 'first' ? 'min' : 'max'](...stepsOf(hours))
    const step = hours.length === 0 ? ask.step : 'hour'
    return rowsOf(pool, callsOfStep({ ...ask, step }, new Date(at)))
  }
  const [[first], [last]] = await Promise.all([
    callsIn(Math.min(...steps), 'first'),
    callsIn(Math.max(...steps), 'last'),
  ])
  return { rows, first: first?.first ?? null, last: last?.last ?? null }
}

const stepsOf = (rows: readonly KeyUseRow[]): number[] =>
  rows.flatMap(({ first_step, last_step }) => [first_step.getTime(), last_step.getTime()])

/** Finds the hours of a day with calls, because it would take too long to read a whole day of a busy key. */
const hoursOf = (ask: UsageAsk, dayMs: number) =>
  useByCapability({ ...ask, step: 'hour', fromMs: dayMs, untilMs: dayMs + stepMs.day })
/** The maximum age of the start of a day for which all hours still exist. Hours are stored for 90 days. */
const hoursSureMs = 89 * stepMs.day

type KeyUse = {
  readonly range: Range
  readonly fault: FormFault | null
  readonly rows: readonly KeyUseRow[]
  readonly first: Date | null
  readonly last: Date | null
}

type KeyView = {
  readonly viewer: Viewer
  readonly account: AccountRow
  readonly key: KeyDetailRow
  /** The usage of the last thirty days, by outcome. */
  readonly series: UsageSeries
  readonly use: KeyUse
  readonly atMs: number
}

const keyPage = (view: KeyView): Html => {
  const { viewer, account, key, atMs } = view
  const mayChange = mayDo(viewer.role, 'keys.change')
  return layout({
    title: `Key ${key.name}`,
    viewer,
    scripts: ['plots.js'],
    main: html`${organizationHead(viewer, account, null, `Key ${key.name}`)}
<h1>Key ${key.name}</h1>
<p class="note">${copyable(key.key_id)} <span class="id">…${key.last4}</span> · issued ${utc(key.created_at)} · ${keyState(key, atMs)}</p>
${figures([
  ['Calls, 30 days', html`<strong>${count(key.calls_30_days)}</strong>`],
  ['Charged, 30 days', credits(key.charged_30_days_micro)],
  ['Charged, total', credits(key.charged_micro)],
  ['Last used (UTC)', key.last_used_at === null ? 'never' : instant(key.last_used_at)],
])}
${callsPlot(view)}
${investigateSection(view)}
<section aria-labelledby="rights">
<h2 id="rights">Rights</h2>
<p>This key can use ${key.permissions.map(words).join(', ') || 'whoami only'}, from ${key.allowed_cidrs.join(', ') || 'any address'}.</p>
</section>
${limitsSection(view, mayChange && key.revoked_at === null)}
${mayChange && key.revoked_at === null && endSection(view)}`,
  })
}

/** Shows the usage of a key that may have leaked, with links to replace the key. */
const investigateSection = (view: KeyView): Html => {
  const { account, key, use, viewer } = view
  const { range, rows, first, last } = use
  const path = `/organizations/${account.organization_id}`
  const mayReplace = mayDo(viewer.role, 'keys.replace')
  const [usage, calls] = [{ by: 'capability' }, {}].map((more) =>
    new URLSearchParams({ ...rangeQuery(range), ...more, key: key.key_id }).toString(),
  )
  const sumOf = (name: 'calls' | 'charged_micro') => rows.reduce((sum, row) => sum + BigInt(row[name]), 0n)
  return html`<section aria-labelledby="investigate">
<h2 id="investigate">Investigate</h2>
<p class="note">If the key may have leaked, check its usage. The IP addresses of callers are not recorded.</p>
${rangeForm(`${path}/keys/${key.key_id}#investigate`, use)}
${figures([
  ['Calls', html`<strong>${count(sumOf('calls'))}</strong>`],
  ['Charged', credits(String(sumOf('charged_micro')))],
  ['First call (UTC)', first === null ? 'none' : instant(first)],
  ['Last call (UTC)', last === null ? 'none' : instant(last)],
])}
${
  rows.length === 0
    ? html`<p class="empty">The key was not used in this range.</p>`
    : table({ caption: 'Calls by capability and outcome', rows, columns: useColumns })
}
<p class="actions"><a class="button quiet" href="${path}/usage?${usage}">Usage over time</a>
<a class="button quiet" href="${path}/calls?${calls}">Calls with this key</a>
${mayDo(viewer.role, 'credits.change') && html`<a class="button quiet" href="${commandHref(view, 'credits/refund-calls', chosen(range))}">Refund these calls</a>`}
${mayReplace && html`<a class="button danger" href="${commandHref(view, 'key/replace-leaked', chosen(range))}">Replace the leaked key</a>`}</p>
${mayReplace && html`<p class="note">Replacing a leaked key revokes it, issues its successor, and refunds its calls in this range.</p>`}
</section>`
}

const useColumns = [
  { head: 'Capability', kind: 'name', cell: ({ capability }: KeyUseRow) => groupWords(capability) },
  { head: 'Outcome', cell: ({ outcome }: KeyUseRow) => words(outcome) },
  { head: 'Calls', kind: 'number', cell: ({ calls }: KeyUseRow) => count(calls) },
  { head: 'Charged', kind: 'number', cell: ({ charged_micro }: KeyUseRow) => credits(charged_micro) },
] as const

/** The range for the forms. A range that is not custom has no end, so that it includes calls in the meantime. */
const chosen = ({ name, fromMs, untilMs }: Range): Readonly<Record<string, string>> => ({
  from: new Date(fromMs).toISOString(),
  ...(name === 'custom' && { to: new Date(untilMs).toISOString() }),
})

/** The URL of a command's form with its fields filled in. */
const commandHref = (
  { account, key }: KeyView,
  command: string,
  typed: Readonly<Record<string, string>> = {},
): string =>
  `/organizations/${account.organization_id}/${command}?${new URLSearchParams({ key: key.key_id, ...typed }).toString()}`

const limitsSection = (view: KeyView, mayChange: boolean): Html => {
  const { limits } = view.key
  const typed = Object.fromEntries(
    limitNames.map((name) => [name.replaceAll('_', '-'), String(limits[name])]),
  )
  return html`<section aria-labelledby="limits">
<h2 id="limits">Limits</h2>
<p>${limitNames.map((name) => `${count(limits[name])} ${limitWords[name].label.toLowerCase()}`).join(', ')}.</p>
${
  mayChange &&
  html`<p class="note">New limits apply from the next call on, and in every process within a second.${
    view.viewer.role === 'partner' &&
    ' You can lower the limits, or raise them up to the usual limits. For higher limits, ask the operator of the service.'
  }</p>
<p class="actions"><a class="button" href="${commandHref(view, 'key/limits', typed)}">Change the limits</a></p>`
}
</section>`
}

const endSection = (view: KeyView): Html => {
  const rotates = mayRotate(view.key, view.atMs)
  return html`<section aria-labelledby="end">
<h2 id="end">${rotates ? 'Replace or revoke' : 'Revoke'}</h2>
<p class="actions">${rotates && html`<a class="button" href="${commandHref(view, 'key/rotate')}">Rotate the key</a>`}
<a class="button danger" href="${commandHref(view, 'key/revoke')}">Revoke the key</a></p>
</section>`
}

const callsPlot = ({ account, key, series }: KeyView): Html =>
  plot({
    id: 'calls',
    title: 'Calls by day',
    unit: 'calls',
    groups: series.groups.map((name) => words(name ?? 'all others')),
    csvHref: `/organizations/${account.organization_id}/usage.csv?${new URLSearchParams({ key: key.key_id, by: 'outcome', unit: 'day', table: 'steps' }).toString()}`,
    points: series.points.map(({ at, calls }) => ({
      at,
      values: calls.map((value) => ({ value: String(value), shown: count(value) })),
    })),
  })
