import type { FastifyInstance } from 'fastify'
import { rowsOf } from '../../concurrency/query.ts'
import { amount, csvOf, sendCsv } from '../csv.ts'
import { type Form, formOf } from '../form.ts'
import { capitalized, count, credits } from '../format.ts'
import { type Html, html, type Renderable } from '../html.ts'
import {
  accountAt,
  type Dashboard,
  keyIdPattern,
  type OrganizationParams,
  sendPage,
  viewerOf,
} from '../page.ts'
import { type AccountRow, keysOf } from '../queries.ts'
import { inDays, type Range, rangeQuery, timesOf } from '../ranges.ts'
import {
  callsByCode,
  type UsageAsk,
  type UsageDimension,
  type UsageGroupRow,
  usageDimensions,
  usageGroups,
  usagePoints,
  usageTotals,
} from '../usage-queries.ts'
import { seriesOf, type UsageSeries } from '../usage-series.ts'
import { usedUpOf } from '../used-up.ts'
import {
  type FormFault,
  faultNotice,
  figures,
  layout,
  organizationHead,
  table,
  type Viewer,
} from './layout.ts'
import { groupWords, usagePlot } from './plot.ts'
import { rangeAsked, rangeFields, rangeOrFault } from './ranges.ts'

const groupRowsMax = 500
const keysMax = 200
const codesMax = 100

type Asked = {
  readonly ask: UsageAsk
  readonly range: Range
  readonly by: UsageDimension
}

const askedIn = (form: Form, organizationId: string, asked: Range): Asked => {
  const by = usageDimensions.find((one) => one === form.text('by')) ?? 'capability'
  // Usage by rule exists only by day.
  const range = by === 'rule' ? inDays(asked) : asked
  const key = form.text('key')
  return { range, by, ask: { ...range, organizationId, keyId: keyIdPattern.test(key) ? key : null } }
}

type Usage = {
  readonly series: UsageSeries
  readonly groups: readonly UsageGroupRow[]
  readonly unpaid: bigint
  readonly note: string | null
}

const usageOf = async ({ foundation: { pool } }: Dashboard, { ask, range, by }: Asked): Promise<Usage> => {
  const [rows, groups, codes] = await Promise.all([
    rowsOf(pool, usagePoints(ask, by)),
    rowsOf(pool, usageGroups(ask, by, groupRowsMax)),
    rowsOf(pool, callsByCode(ask, codesMax)),
  ])
  return {
    groups,
    series: seriesOf(timesOf(range), rows, range.step),
    unpaid: BigInt(codes.find(({ code }) => code === 'CREDIT_001')?.calls ?? 0),
    note:
      groups.length === groupRowsMax
        ? `The ${groupRowsMax} most expensive groups are listed; the figures cover all groups.`
        : null,
  }
}

const figuresOf = async (
  { foundation: { pool } }: Dashboard,
  account: AccountRow,
  { ask }: Asked,
  unpaid: bigint,
): Promise<UsageFigures> => {
  const [usedUp, [total]] = await Promise.all([
    usedUpOf(pool, account, Date.now()),
    rowsOf(pool, usageTotals(ask)),
  ])
  return {
    ...usedUp,
    calls: BigInt(total?.calls ?? 0),
    answered: BigInt(total?.answered ?? 0),
    rateLimited: BigInt(total?.rate_limited ?? 0),
    chargedMicro: BigInt(total?.charged_micro ?? 0),
    unpaid,
  }
}

export const usageRoutes = (pages: FastifyInstance, context: Dashboard): void => {
  pages.get<OrganizationParams>('/organizations/:organization/usage', async (request, reply) => {
    const account = await accountAt(context, request.params.organization)
    const id = account.organization_id
    const typed = formOf(request.query)
    const keys = await rowsOf(context.foundation.pool, keysOf(id, { max: keysMax, nowMs: Date.now() }))
    const { range, fault } = await rangeOrFault(context.foundation.pool, request.query, id)
    const view = { viewer: viewerOf(request, reply), account, typed, keys, fault }
    if (fault !== null) return sendPage(reply.code(422), usagePage({ ...view, range, shown: null }))
    const asked = askedIn(typed, id, range)
    const used = await usageOf(context, asked)
    const figures = await figuresOf(context, account, asked, used.unpaid)
    const shown = { ...used, ...asked, figures, query: queryOf(asked) }
    return sendPage(reply, usagePage({ ...view, range: asked.range, shown }))
  })
  csvRoute(pages, context)
}

const queryOf = ({ range, by, ask: { keyId } }: Asked): string =>
  new URLSearchParams({ ...rangeQuery(range), by, key: keyId ?? '' }).toString()

const csvRoute = (pages: FastifyInstance, context: Dashboard): void => {
  pages.get<OrganizationParams>('/organizations/:organization/usage.csv', async (request, reply) => {
    const { organization_id: id } = await accountAt(context, request.params.organization)
    const form = formOf(request.query)
    const asked = askedIn(form, id, await rangeAsked(context.foundation.pool, form, id))
    const { series, groups } = await usageOf(context, asked)
    const text =
      form.text('table') === 'groups'
        ? csvOf(
            [asked.by, 'calls', 'answered', 'refused', 'failed', 'rate_limited', 'credits'],
            groups.map((row) => [
              row.name,
              ...[row.calls, row.answered, row.refused, row.failed, row.rate_limited].map((number) => ({
                number,
              })),
              amount(row.charged_micro),
            ]),
          )
        : csvOf(
            ['time_utc', asked.by, 'calls', 'credits'],
            series.points.flatMap(({ at, calls, chargedMicro }) =>
              series.groups.map((name, i) => [
                at,
                name ?? '(all others)',
                { number: String(calls[i] ?? 0n) },
                amount(chargedMicro[i] ?? 0n),
              ]),
            ),
          )
    return sendCsv(reply, `usage-${id}-${asked.range.name}`, text)
  })
}

/** An organization's usage: plots, their tables, and the day on which the credits will be used up. */

type UsageFigures = {
  readonly calls: bigint
  readonly answered: bigint
  readonly rateLimited: bigint
  /** Calls that were refused for lack of credits, within the last 90 days. */
  readonly unpaid: bigint
  readonly chargedMicro: bigint
  /** The mean of the last whole days; null before the first has ended. */
  readonly perDayMicro: bigint | null
  readonly usedUpAtMs: number | null
}

type UsageView = {
  readonly viewer: Viewer
  readonly account: AccountRow
  readonly typed: Form
  readonly range: Range
  readonly fault: FormFault | null
  readonly keys: readonly { readonly key_id: string; readonly name: string }[]
  readonly shown: {
    readonly by: UsageDimension
    readonly range: Range
    readonly series: UsageSeries
    readonly groups: readonly UsageGroupRow[]
    readonly figures: UsageFigures
    /** The query of the page, for the links to CSV. */
    readonly query: string
    /** The reason why the page shows less than was requested. */
    readonly note: string | null
  } | null
}

const usagePage = (view: UsageView): Html => {
  const { account, shown } = view
  return layout({
    title: `Usage of ${account.name}`,
    viewer: view.viewer,
    scripts: ['plots.js'],
    main: html`${organizationHead(view.viewer, account, '/usage')}
<h1>Usage of ${account.name}</h1>
${usageForm(view)}
${faultNotice(view.fault)}
${shown !== null && [shown.note !== null && html`<p class="notice">${shown.note}</p>`, shownParts(view, shown)]}`,
  })
}

const usageForm = ({
  account,
  typed,
  range,
  fault,
  keys,
}: UsageView): Html => html`<form class="filters" method="get" action="/organizations/${account.organization_id}/usage">
${rangeFields(range, fault)}
<p><label for="by">By</label>
<select id="by" name="by">${options(usageDimensions, typed.text('by') || 'capability')}</select></p>
<p><label for="key">Key</label>
<select id="key" name="key"><option value="">all keys</option>${keys.map(
  ({ key_id, name }) =>
    html`<option value="${key_id}"${key_id === typed.text('key') && html` selected`}>${name} ${key_id}</option>`,
)}</select></p>
<p class="actions"><button type="submit">Show</button></p>
</form>`

const options = (values: readonly string[], chosen: string): Renderable =>
  values.map(
    (value) => html`<option value="${value}"${value === chosen && html` selected`}>${value}</option>`,
  )

const shareOf = (part: bigint, whole: bigint): string =>
  whole === 0n ? '0 %' : `${(Number((part * 10_000n) / whole) / 100).toFixed(2)} %`

const shownParts = (view: UsageView, shown: NonNullable<UsageView['shown']>): Renderable => {
  const { series, by, query, range } = shown
  const csv = `/organizations/${view.account.organization_id}/usage.csv?${query}`
  const all = {
    series,
    range,
    csvHref: `${csv}&table=steps`,
    nameOf: (name: string | null) => groupName(view, by, name),
  }
  return [
    figuresSection(shown.figures),
    usagePlot({ ...all, id: 'calls', title: `Calls by ${by}`, of: 'calls' }),
    usagePlot({ ...all, id: 'credits', title: `Credits by ${by}`, of: 'credits' }),
    groupsSection(view, shown, `${csv}&table=groups`),
  ]
}

const figuresSection = ({
  calls,
  answered,
  rateLimited,
  unpaid,
  chargedMicro,
  perDayMicro,
  usedUpAtMs,
}: UsageFigures): Html => html`${figures([
  ['Calls', html`<strong>${count(calls)}</strong>`],
  ['Credits charged', credits(String(chargedMicro))],
  ['Answered', shareOf(answered, calls)],
  ['402, no credits', shareOf(unpaid, calls)],
  ['429, rate limited', shareOf(rateLimited, calls)],
  [
    'Credits per day',
    perDayMicro === null ? 'known after the first whole day' : credits(String(perDayMicro)),
  ],
  ['Used up', perDayMicro === null ? 'known after the first whole day' : usedUpText(usedUpAtMs)],
])}
<p class="note">Credits per day is the mean of the last seven whole days (UTC). The credits will be used up on the day whose calls the remaining lots can no longer pay at this rate.</p>`

const usedUpText = (atMs: number | null): Renderable => {
  if (atMs === null) return 'not in ten years'
  const day = new Date(atMs).toISOString().slice(0, 10)
  return html`<time datetime="${day}">${day}</time>`
}

const groupName = ({ keys }: Pick<UsageView, 'keys'>, by: UsageDimension, name: string | null): string => {
  if (name === null) return 'all others'
  if (name === '') return 'no rule applied'
  if (by === 'key') return `${keys.find(({ key_id }) => key_id === name)?.name ?? 'key'} ${name}`
  return by === 'rule' ? name : groupWords(name)
}

const groupsSection = (
  view: UsageView,
  { by, groups }: NonNullable<UsageView['shown']>,
  csvHref: string,
): Html => html`<section aria-labelledby="groups">
<div class="heading"><h2 id="groups">By ${by}</h2><a href="${csvHref}">CSV<span class="unseen"> by ${by}</span></a></div>
${
  groups.length === 0
    ? html`<p class="empty">No usage in this range.</p>`
    : table({
        caption: `Calls and credits by ${by}`,
        rows: groups,
        columns: [
          { head: capitalized(by), kind: 'name', cell: (row) => groupName(view, by, row.name) },
          { head: 'Calls', kind: 'number', cell: (row) => count(row.calls) },
          { head: 'Answered', kind: 'number', cell: (row) => count(row.answered) },
          { head: 'Refused', kind: 'number', cell: (row) => count(row.refused) },
          { head: 'Failed', kind: 'number', cell: (row) => count(row.failed) },
          { head: 'Rate limited', kind: 'number', cell: (row) => count(row.rate_limited) },
          { head: 'Charged', kind: 'number', cell: (row) => credits(row.charged_micro) },
        ],
      })
}
</section>`
