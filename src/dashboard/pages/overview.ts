import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { ulid } from 'ulid'
import type { Finding } from '../../administration/checks/check.ts'
import { type LastReconciled, lastReconciliation } from '../../administration/ledgers/reconciliations.ts'
import { mayDo } from '../../administration/roles.ts'
import { errorEntry } from '../../call/errors.ts'
import { rowsOf } from '../../concurrency/query.ts'
import { mayOpen } from '../access.ts'
import { type FirstAnswer, type FirstRun, firstRunOf, makeFirstCall } from '../first-run.ts'
import { formOf } from '../form.ts'
import { balance, capitalized, count, credits, utc } from '../format.ts'
import { type Html, html, type Renderable } from '../html.ts'
import { refreshing } from '../idle.ts'
import type { Latency } from '../latency.ts'
import {
  figuresOfAll,
  type Leaders,
  lowOrganizations,
  type RangeFigures,
  type TodayFigures,
  todayFigures,
  type Unpaid,
  unpaidOrganizations,
} from '../overview.ts'
import type { LowBalanceRow } from '../overview-queries.ts'
import { type Dashboard, PageMissing, sendPage, viewerOf } from '../page.ts'
import { type Range, rangeQuery, timesOf } from '../ranges.ts'
import { shownSoon } from '../shown-soon.ts'
import {
  type CodeRow,
  type OrganizationUseRow,
  type UsageGroupRow,
  usagePoints,
  usageTotals,
} from '../usage-queries.ts'
import { seriesOf, type UsageSeries } from '../usage-series.ts'
import { firstAnswerSection, firstRunSection } from './first-run.ts'
import { type FormFault, faultNotice, figures, layout, table, type Viewer } from './layout.ts'
import { usagePlot } from './plot.ts'
import { rangeFields, rangeForm, rangeOrFault } from './ranges.ts'

export const overviewRoutes = (pages: FastifyInstance, context: Dashboard): void => {
  const { foundation, health, latency: latencyNow } = context
  const { pool, eventLog } = foundation
  const overview = async (request: FastifyRequest, reply: FastifyReply, answer: FirstAnswer | null) => {
    const viewer = viewerOf(request, reply)
    const nowMs = Date.now()
    const { range, fault } = await rangeOrFault(pool, request.query, null)
    const [latency, firstRun, today, { leaders, ...figures }, low, unpaid, findings, reconciliation] =
      await Promise.all([
        latencyNow(),
        mayOpen(viewer.role, 'POST /first-call') ? firstRunOf(context, request) : null,
        todayFigures(pool, null, nowMs),
        figuresOfAll(pool, range),
        lowOrganizations(pool, nowMs),
        unpaidOrganizations(pool, nowMs),
        health.findings(),
        lastReconciliation(eventLog),
      ])
    const shown = {
      range,
      fault,
      today,
      figures,
      leaders,
      low,
      unpaid,
      findings,
      reconciliation,
    }
    const page = overviewPage({ ...shown, viewer, firstRun, answer, latency })
    return sendPage(fault === null ? reply : reply.code(422), page)
  }
  pages.get('/', (request, reply) => overview(request, reply, null))

  pages.post('/first-call', async (request, reply) => {
    const once = formOf(request.body).text('once')
    const answer = await makeFirstCall(context, request, /^[0-9A-Z]{26}$/.test(once) ? once : ulid())
    if (answer === null) throw new PageMissing()
    await shownSoon(context)
    return overview(request, reply, answer)
  })

  pages.get('/usage', async (request, reply) => {
    const { range, fault } = await rangeOrFault(pool, request.query, null)
    const ask = { ...range, organizationId: null, keyId: null }
    const [[total], byCapability, { series, leaders }] = await Promise.all([
      rowsOf(pool, usageTotals(ask)),
      rowsOf(pool, usagePoints(ask, 'capability')),
      figuresOfAll(pool, range),
    ])
    const shown = {
      range,
      fault,
      total,
      byCredits: leaders.byCredits,
      calls: series,
      credits: seriesOf(timesOf(range), byCapability, range.step),
    }
    const page = allUsagePage({ ...shown, viewer: viewerOf(request, reply) })
    return sendPage(fault === null ? reply : reply.code(422), page)
  })
}

/** The overview of all organizations: figures of today, problems, and usage over a range. The page refreshes itself. */

type Overview = {
  readonly viewer: Viewer
  /** Null if all steps are done, or the viewer's role does not permit them. */
  readonly firstRun: FirstRun | null
  /** The answer to the first call, shown only right after that call was sent. */
  readonly answer: FirstAnswer | null
  readonly range: Range
  readonly fault: FormFault | null
  readonly today: TodayFigures
  readonly figures: RangeFigures
  readonly leaders: Leaders
  readonly low: readonly LowBalanceRow[]
  readonly unpaid: Unpaid
  readonly latency: Latency | null
  readonly findings: readonly Finding[]
  readonly reconciliation: LastReconciled | null
}

const overviewPage = (view: Overview): Html =>
  layout({
    title: 'Overview',
    at: '/',
    viewer: view.viewer,
    scripts: ['plots.js'],
    main: html`<h1>Overview</h1>
${view.answer !== null && firstAnswerSection(view.answer)}
<div id="live" hx-get="/?${new URLSearchParams({ ...rangeQuery(view.range), ...refreshing }).toString()}" hx-trigger="every 10s" hx-select="#live" hx-swap="outerHTML settle:0ms">
${view.firstRun !== null && firstRunSection(view.viewer, view.firstRun)}
${todaySection(view)}
${attentionSection(view)}
<section aria-labelledby="usage-heading">
<h2 id="usage-heading">Usage</h2>
<div hx-preserve="true" id="range-form"><form class="filters" method="get" action="/">
${rangeFields(view.range, view.fault)}
<p class="actions"><button type="submit">Show</button></p>
</form></div>
${faultNotice(view.fault)}
${usagePlot({ id: 'calls', title: 'Calls by outcome', of: 'calls', series: view.figures.series, range: view.range })}
${codesSection(view.figures.codes, { range: view.range, path: '/calls' })}
${leadersSection(view)}
</section>
</div>
${reconciliationSection(view.reconciliation, view.viewer)}`,
  })

const share = (part: bigint, whole: bigint): string =>
  whole === 0n ? '–' : `${((100 * Number(part)) / Number(whole)).toFixed(2)} %`

const ratio = (part: bigint, whole: bigint): number => (whole === 0n ? 0 : Number(part) / Number(whole))

const todaySection = ({ today: { today, yesterday, hours }, low, latency }: Overview): Html => {
  const before = (shown: Renderable): Html => html`<small>${shown} by this time yesterday</small>`
  return html`<section aria-labelledby="today">
<h2 id="today" class="unseen">Today</h2>
<dl class="figures today">
${figure(html`<a href="/calls?range=today">Calls today</a>`, count(today.calls), [before(count(yesterday.calls)), sparkline(hours.map(({ calls }) => Number(calls)))])}
${figure(html`<a href="/usage?range=today">Credits today</a>`, credits(String(today.chargedMicro)), [
  before(credits(String(yesterday.chargedMicro))),
  sparkline(hours.map(({ chargedMicro }) => Number(chargedMicro))),
])}
${figure(
  html`<a href="/calls?range=today&amp;outcome=errors">Error rate today</a>`,
  share(today.errors, today.calls),
  [
    before(share(yesterday.errors, yesterday.calls)),
    sparkline(hours.map(({ errors, calls }) => ratio(errors, calls))),
  ],
)}
${latency !== null && latencyFigure(latency)}
${figure('Organizations with a low balance', count(low.length), html`<small>below their threshold</small>`)}
</dl>
</section>`
}

const milliseconds = (seconds: number): string => `${(seconds * 1_000).toFixed(0)} ms`

export const latencyFigure = (latency: Latency): Html =>
  latency.kind === 'absent'
    ? figure('p95 latency', '–', html`<small>${latency.why}</small>`)
    : figure('p95 latency', milliseconds(latency.seconds), [
        html`<small>${latency.of}${latency.yesterdaySeconds !== null && `; ${milliseconds(latency.yesterdaySeconds)} in the same hour yesterday`}</small>`,
        sparkline(latency.hours),
      ])

const figure = (name: Renderable, value: Renderable, below: Renderable): Html =>
  html`<div><dt>${name}</dt><dd><strong>${value}</strong>${below}</dd></div>`

const [sparkWidth, sparkHeight] = [120, 24]

/** A small line chart that shows how a figure changes hour by hour. */
const sparkline = (values: readonly number[]): Renderable => {
  const most = Math.max(...values)
  if (values.length < 2 || most === 0) return null
  const points = values.map((value, i) => {
    const x = (i / (values.length - 1)) * sparkWidth
    return `${x.toFixed(1)},${(sparkHeight - 1 - (value / most) * (sparkHeight - 2)).toFixed(1)}`
  })
  return html`<svg class="spark" viewBox="0 0 ${sparkWidth} ${sparkHeight}" aria-hidden="true" focusable="false"><polyline points="${points.join(' ')}"></polyline></svg>`
}

/** The page with more details about a check. */
const placeOf: Readonly<Record<string, string>> = {
  projections: '/operations#projections',
  'events set aside': '/operations#projections',
  rebuild: '/commands/projection/rebuilds',
  jobs: '/commands/jobs/list',
  reconciliation: '/#reconciliation',
}

const attentionSection = ({ viewer, findings, low, unpaid }: Overview): Html => {
  const wrong = findings.filter(({ level }) => level !== 'ok')
  const faults = wrong.filter(({ level }) => level === 'fault')
  const granting = ({ organization_id: id, name }: { organization_id: string; name: string }): Renderable =>
    mayDo(viewer.role, 'credits.change') &&
    html` <a href="/organizations/${id}/credits/grant">Grant credits<span class="unseen"> to ${name}</span></a>`
  const lines = [
    ...[...faults, ...wrong.filter(({ level }) => level !== 'fault')].map(
      ({ about, level, says, remedy }) =>
        html`<li><span class="mark ${level === 'fault' ? 'bad' : 'warn'}">${level}</span> <strong>${capitalized(about)}</strong>: ${says}${!says.endsWith('.') && '.'} ${remedy} <a href="${placeOf[about] ?? '/operations'}">Open<span class="unseen"> ${about}</span></a></li>`,
    ),
    ...unpaid.organizations.map(
      (one) =>
        html`<li><span class="mark warn">not enough credits</span> <a href="/organizations/${one.organization_id}">${one.name}</a> has ${balance(one.balance_micro)} credits. Calls refused since ${utc(unpaid.from)} because the credits were not enough: <a href="/organizations/${one.organization_id}/calls?code=CREDIT_001">${count(one.calls)}</a>.${granting(one)}</li>`,
    ),
    ...low.map(
      (one) =>
        html`<li><span class="mark warn">low balance</span> <a href="/organizations/${one.organization_id}">${one.name}</a> has ${balance(one.balance_micro)} credits, less than its threshold of ${credits(one.threshold_micro)}.${granting(one)}</li>`,
    ),
  ]
  return html`<section aria-labelledby="attention">
<h2 id="attention">Needs attention</h2>
${lines.length === 0 ? html`<p class="empty">Nothing needs attention.</p>` : html`<ul class="attention">${lines}</ul>`}
<p class="note" id="health">${healthLine(findings, wrong.length)}${
    mayOpen(viewer.role, 'GET /operations') && html` <a href="/operations">Operations</a>`
  }</p>
</section>`
}

const healthLine = (findings: readonly Finding[], wrong: number): string =>
  wrong === 0
    ? `Healthy: all ${findings.length} checks of this process are ok.`
    : `${findings.length - wrong} of ${findings.length} checks of this process are ok.`

/** Errors by code, each with its meaning and a link to its calls. */
export const codesSection = (
  codes: readonly CodeRow[],
  { range, path }: { readonly range: Range; readonly path: string },
): Html => html`<section aria-labelledby="codes">
<div class="heading"><h3 id="codes">Errors by code</h3>
<a href="${path}?${new URLSearchParams({ range: '1h', outcome: 'errors' }).toString()}">Errors in the last hour</a></div>
${
  codes.length === 0
    ? html`<p class="empty">No errors in this range.</p>`
    : table({
        caption: 'Errors by code',
        rows: codes,
        columns: [
          {
            head: 'Code',
            kind: 'name',
            cell: ({ code }) =>
              html`<a href="${path}?${new URLSearchParams({ ...rangeQuery(range), code }).toString()}"><span class="code">${code}</span></a>`,
          },
          { head: 'Meaning', cell: ({ code }) => errorEntry(code)?.when ?? null },
          { head: 'Calls', kind: 'number', cell: ({ calls }) => count(calls) },
        ],
      })
}
</section>`

const leadersSection = ({ leaders, range }: Overview): Html => html`<div class="beside">
${leadersTable('Organizations by credits', leaders.byCredits, {
  id: 'by-credits',
  path: 'usage',
  range,
  head: 'Charged',
  cell: ({ charged_micro }) => credits(charged_micro),
})}
${leadersTable('Organizations by errors', leaders.byErrors, {
  id: 'by-errors',
  path: 'calls',
  range,
  more: { outcome: 'errors' },
  head: 'Errors',
  cell: ({ errors }) => count(errors),
})}
</div>`

/** The ten organizations with the highest figures. */
const leadersTable = (
  title: string,
  rows: readonly OrganizationUseRow[],
  {
    id,
    path,
    range,
    more,
    head,
    cell,
  }: {
    id: string
    path: string
    range: Range
    more?: Readonly<Record<string, string>>
    head: string
    cell: (row: OrganizationUseRow) => string
  },
): Html => html`<section aria-labelledby="${id}">
<h3 id="${id}">${title}</h3>
${
  rows.length === 0
    ? html`<p class="empty">No organizations in this range.</p>`
    : table({
        caption: `${title}, the top ten`,
        rows,
        columns: [
          {
            head: 'Organization',
            kind: 'name',
            cell: ({ organization_id: of, organization_name: name }) =>
              html`<a href="/organizations/${of}/${path}?${new URLSearchParams({ ...rangeQuery(range), ...more }).toString()}">${name ?? of}</a>`,
          },
          { head, kind: 'number', cell },
          { head: 'Calls', kind: 'number', cell: ({ calls }) => count(calls) },
        ],
      })
}
</section>`

/** The last comparison of ledgers with their read models and the tariff. */
const reconciliationSection = (
  last: LastReconciled | null,
  { role }: Viewer,
): Html => html`<section aria-labelledby="reconciliation">
<h2 id="reconciliation">Last reconciliation</h2>
${
  last === null
    ? html`<p class="empty">No reconciliation yet. One runs every night.</p>`
    : html`${figures([
        ['Made', utc(new Date(last.at))],
        ['Calls', count(last.calls)],
        ['Compared', last.whole ? 'from the beginning of each ledger' : 'since the last match'],
        ['Differences', count(last.differences)],
      ])}
${
  last.differences > 0 &&
  html`<div class="notice bad" role="alert"><p>The event log, the read models and the tariff differ. Reconcile again to see the differences of each ledger.</p>
<ul>${last.named.map((one) => html`<li>${one}</li>`)}</ul></div>`
}`
}
${mayOpen(role, 'GET /commands/ledger/reconcile') && html`<p class="actions"><a class="button quiet" href="/commands/ledger/reconcile">Reconcile now</a></p>`}
</section>`

type AllUsageView = {
  readonly viewer: Viewer
  readonly range: Range
  readonly fault: FormFault | null
  readonly total: Omit<UsageGroupRow, 'name'> | undefined
  readonly calls: UsageSeries
  readonly credits: UsageSeries
  readonly byCredits: readonly OrganizationUseRow[]
}

const allUsagePage = (view: AllUsageView): Html => {
  const { range, fault, total } = view
  return layout({
    title: 'Usage',
    at: '/usage',
    viewer: view.viewer,
    scripts: ['plots.js'],
    main: html`<h1>Usage of all organizations</h1>
${rangeForm('/usage', { range, fault })}
${figures([
  ['Calls', html`<strong>${count(total?.calls ?? 0)}</strong>`],
  ['Answered', count(total?.answered ?? 0)],
  ['Refused', count(total?.refused ?? 0)],
  ['Failed', count(total?.failed ?? 0)],
  ['Rate limited', count(total?.rate_limited ?? 0)],
  ['Credits charged', credits(total?.charged_micro ?? '0')],
])}
<p class="note">Test organizations are not included.</p>
<p class="actions"><a href="/calls?${new URLSearchParams(rangeQuery(range)).toString()}">Calls in this range</a></p>
${usagePlot({ id: 'calls', title: 'Calls by outcome', of: 'calls', series: view.calls, range })}
${usagePlot({ id: 'credits', title: 'Credits by capability', of: 'credits', series: view.credits, range })}
${leadersTable('Organizations by credits', view.byCredits, {
  id: 'by-credits',
  path: 'usage',
  range,
  head: 'Charged',
  cell: ({ charged_micro }) => credits(charged_micro),
})}`,
  })
}
