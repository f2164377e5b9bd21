import type { FastifyInstance } from 'fastify'
import { InputFault } from '../../administration/input.ts'
import { closableAt, monthOf } from '../../administration/months/statements.ts'
import { mayDo } from '../../administration/roles.ts'
import { type Month, monthAfter, monthBefore } from '../../billing/months.ts'
import { amount, csvOf, sendCsv } from '../csv.ts'
import { formOf } from '../form.ts'
import { count, credits, movement, utc } from '../format.ts'
import { type Html, html, type Renderable } from '../html.ts'
import { type MonthUseRow, monthUse, openOrganizations } from '../month-queries.ts'
import { attempt, type Dashboard, organizationPattern, sendPage, viewerOf } from '../page.ts'
import { rowsOf } from '../queries.ts'
import { described, type FormFault, faultNotice, figures, layout, table, type Viewer } from './layout.ts'

const shownMax = 100
/** The maximum number of rows that spreadsheet programs can open without problems. */
const csvRowsMax = 50_000
const csvPage = 1_000
/** No call can be older, because Unix time begins in 1970. */
const firstMonth = '1970-02'

/** Throws `InputFault` if the text is not a month that has begun. */
const wantedMonth = (text: string, nowMs: number): Month => {
  const month = monthOf('month', text)
  if (month < firstMonth || Date.parse(`${month}-01`) > nowMs)
    throw new InputFault('month', `${month} has not begun, or is before the first month with data`)
  return month
}

const currentMonth = (nowMs: number): Month => new Date(nowMs).toISOString().slice(0, 7)

const daysOf = (month: Month) => ({
  before: `${monthBefore(month)}-01`,
  month: `${month}-01`,
  next: `${monthAfter(month)}-01`,
})

export const allMonthsRoutes = (pages: FastifyInstance, context: Dashboard): void => {
  const { foundation } = context

  const shownOf = async (month: Month, after: string, nowMs: number) => {
    const [found, [state]] = await Promise.all([
      rowsOf(foundation.pool, monthUse(daysOf(month), { after, max: shownMax + 1 })),
      rowsOf(foundation.pool, openOrganizations(month, daysOf(month).next)),
    ])
    const rows = found.slice(0, shownMax)
    return {
      month,
      before: monthBefore(month),
      rows,
      further: after !== '',
      next: found.length > rows.length ? (rows.at(-1)?.organization_id ?? null) : null,
      open: state?.open ?? 0,
      anyClosed: state?.any_closed ?? false,
      closableAtMs: closableAt(month),
      atMs: nowMs,
    }
  }

  pages.get('/months', async (request, reply) => {
    const viewer = viewerOf(request, reply)
    const query = formOf(request.query)
    const nowMs = Date.now()
    const typed = query.text('month') || currentMonth(nowMs)
    const asked = await attempt(async () => wantedMonth(typed, nowMs))
    if ('fault' in asked)
      return sendPage(reply.code(422), allMonthsPage({ viewer, typed: '', fault: asked.fault, shown: null }))
    const after = query.text('after')
    const shown = await shownOf(asked.done, organizationPattern.test(after) ? after : '', nowMs)
    return sendPage(reply, allMonthsPage({ viewer, typed: asked.done, fault: null, shown }))
  })

  pages.get('/months.csv', async (request, reply) => {
    const nowMs = Date.now()
    const month = wantedMonth(formOf(request.query).text('month') || currentMonth(nowMs), nowMs)
    return sendCsv(reply, `months-${month}`, csvOfMonth(await allUse(context, month)))
  })
}

/** The usage of every organization. Throws `InputFault` if there are too many organizations for a file. */
const allUse = async ({ foundation: { pool } }: Dashboard, month: Month): Promise<MonthUseRow[]> => {
  const rows: MonthUseRow[] = []
  for (let after = ''; rows.length <= csvRowsMax; ) {
    const page = await rowsOf(pool, monthUse(daysOf(month), { after, max: csvPage }))
    rows.push(...page)
    if (page.length < csvPage) return rows
    after = page.at(-1)?.organization_id ?? ''
  }
  throw new InputFault('month', `there are more than ${csvRowsMax} organizations, the maximum for a file`)
}

const csvOfMonth = (rows: readonly MonthUseRow[]): string =>
  csvOf(
    ['organization_id', 'name', 'calls', 'calls_before', 'charged', 'charged_before'],
    rows.map((row) => [
      ...[row.organization_id, row.name],
      ...[{ number: row.calls }, { number: row.calls_before }],
      ...[amount(row.charged_micro), amount(row.charged_before_micro)],
    ]),
  )

type AllMonthsView = {
  readonly viewer: Viewer
  readonly typed: string
  readonly fault: FormFault | null
  readonly shown: {
    readonly month: string
    readonly before: string
    readonly rows: readonly MonthUseRow[]
    /** `further` is false on the first page. `next` is the start of the next page; null on the last page. */
    readonly further: boolean
    readonly next: string | null
    /** The number of organizations in which the month is still open. */
    readonly open: number
    /** Whether any organization has closed the month. */
    readonly anyClosed: boolean
    readonly closableAtMs: number
    readonly atMs: number
  } | null
}

const allMonthsPage = ({ viewer, typed, fault, shown }: AllMonthsView): Html =>
  layout({
    title: shown === null ? 'Months' : `All organizations in ${shown.month}`,
    viewer,
    at: '/months',
    main: html`<h1>${shown === null ? 'Months' : `All organizations in ${shown.month}`}</h1>
<form class="filters" method="get" action="/months">
<p><label for="month">Month (UTC)</label>
<input id="month" name="month" type="month" value="${typed}" required${described('month', fault)}></p>
<p class="actions"><button type="submit">Show</button></p>
</form>
${faultNotice(fault)}
${shown !== null && shownParts(viewer, shown)}`,
  })

type Shown = NonNullable<AllMonthsView['shown']>

const shownParts = (viewer: Viewer, shown: Shown): Renderable => {
  const { month, before, rows, further, next } = shown
  const sum = (of: (row: MonthUseRow) => string): bigint =>
    rows.reduce((all, row) => all + BigInt(of(row)), 0n)
  const [charged, earlier] = [sum((row) => row.charged_micro), sum((row) => row.charged_before_micro)]
  const part = further || next !== null ? ' on this page' : ''
  return [
    figures([
      [`Charged${part}`, html`<strong>${credits(String(charged))}</strong>`],
      [`In ${before}`, credits(String(earlier))],
      ['Difference', movement(String(charged - earlier))],
      ['Calls', count(sum(({ calls }) => calls))],
      [`Calls in ${before}`, count(sum(({ calls_before }) => calls_before))],
    ]),
    html`<p class="note">These are the charges for calls on the days of the month. The page of each organization is computed from its ledger and also shows refunds, grants and the closed totals. Test organizations are not included.</p>
<p class="actions"><a class="button" href="/months.csv?month=${month}">Download CSV</a>${
      mayDo(viewer.role, 'ledgers.change') &&
      html` <a href="/commands/ledger/reconcile?month=${month}">Reconcile ${month}</a>`
    }</p>`,
    rows.length === 0
      ? html`<p class="empty">${further ? 'There are no more organizations.' : 'No organizations yet.'}</p>`
      : useTable(shown),
    html`<nav class="pager" aria-label="Pages of organizations">
${further && html`<a href="/months?month=${month}">First page</a>`}
${next !== null && html`<a href="/months?month=${month}&amp;after=${next}">Next page</a>`}
</nav>`,
    mayDo(viewer.role, 'ledgers.change') && closeSection(shown),
  ]
}

const useTable = ({ month, before, rows }: Shown): Html =>
  table({
    caption: `Usage in ${month} compared with ${before}, by organization`,
    rows,
    columns: [
      {
        head: 'Organization',
        kind: 'name',
        cell: ({ organization_id: id, name }) =>
          html`<a href="/organizations/${id}/months/${month}">${name}</a>
<span class="id below">${id}</span>`,
      },
      { head: 'Calls', kind: 'number', cell: ({ calls }) => count(calls) },
      { head: `Calls in ${before}`, kind: 'number', cell: (row) => count(row.calls_before) },
      { head: 'Charged', kind: 'number', cell: (row) => credits(row.charged_micro) },
      { head: `Charged in ${before}`, kind: 'number', cell: (row) => credits(row.charged_before_micro) },
      {
        head: 'Difference',
        kind: 'number',
        cell: (row) => movement(String(BigInt(row.charged_micro) - BigInt(row.charged_before_micro))),
      },
    ],
  })

const closeSection = ({ month, before, open, anyClosed, closableAtMs, atMs }: Shown): Html => {
  if (atMs >= closableAtMs && open === 0)
    return anyClosed
      ? html`<p class="note"><span class="mark good">Closed</span> for every organization.</p>`
      : html`<p class="note">Nothing to close: no organization existed in this month.</p>`
  return html`<section class="narrow" aria-labelledby="close">
<h2 id="close">Close ${month}</h2>
${
  atMs < closableAtMs
    ? html`<p class="empty">This month can be closed from ${utc(new Date(closableAtMs))} on. Until then, its calls may still be recorded. Previous month: <a href="/months?month=${before}">${before}</a></p>`
    : html`<p>Closing ${month} writes off the lots that expired in the month, and records the totals and the digest of each statement in the ledger. After that, the files of the month never change, and later corrections appear in the month that is open then. Organizations with an earlier open month are skipped and listed. Organizations that have already closed the month do not change.</p>
<p class="actions"><a class="button" href="/commands/ledger/close?month=${month}&amp;all=on">Close ${month} for all</a></p>`
}
</section>`
}
