import { mayDo } from '../../administration/roles.ts'
import { count, credits, movement, utc } from '../format.ts'
import { type Html, html, type Renderable } from '../html.ts'
import type { MonthUseRow } from '../month-queries.ts'
import { described, type FormFault, faultNotice, figures, layout, table, type Viewer } from './layout.ts'

type AllMonthsView = {
  readonly viewer: Viewer
  readonly typed: string
  readonly fault: FormFault | null
  readonly shown: {
    readonly month: string
    readonly before: string
    readonly rows: readonly MonthUseRow[]
    /** `further`: whether this is not the first page. `next`: the start of the next page; null on the last page. */
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

export const allMonthsPage = ({ viewer, typed, fault, shown }: AllMonthsView): Html =>
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
    html`<p class="note">These are the charges for calls on the days of the month. Each organization’s own page of the month comes from the ledger, and also shows refunds, grants and the closed totals. Test organizations are left out.</p>
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
