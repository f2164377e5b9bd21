import type { MonthEnded } from '../../administration/months/close-months.ts'
import { mayDo } from '../../administration/roles.ts'
import { parseCredits } from '../../billing/money.ts'
import { balance, count, credits, movement, utc } from '../format.ts'
import { type Html, html, type Renderable } from '../html.ts'
import type { MonthUseRow } from '../month-queries.ts'
import {
  described,
  type FormFault,
  faultNotice,
  figures,
  formFields,
  layout,
  table,
  type Viewer,
} from './layout.ts'
import { type Names, organizationLink } from './organization-link.ts'

/** A month of all organizations: each one's usage compared with the month before, and the form that closes it for all. */

type AllMonthsView = {
  readonly viewer: Viewer
  /** As typed, if it is not a month. */
  readonly typed: string
  readonly fault: FormFault | null
  readonly shown: {
    readonly month: string
    readonly before: string
    readonly rows: readonly MonthUseRow[]
    /** The page is not the first; the start of the next page. */
    readonly further: boolean
    readonly next: string | null
    readonly closableAtMs: number
    readonly atMs: number
  } | null
}

export const allMonthsPage = ({ viewer, typed, fault, shown }: AllMonthsView): Html =>
  layout({
    title: shown === null ? 'Months' : `${shown.month} of all organizations`,
    viewer,
    at: '/months',
    main: html`<h1>${shown === null ? 'Months' : `${shown.month} of all organizations`}</h1>
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
  const part = further || next !== null ? ', of this page' : ''
  return [
    figures([
      [`Charged${part}`, html`<strong>${credits(String(charged))}</strong>`],
      [`In ${before}`, credits(String(earlier))],
      ['Difference', movement(String(charged - earlier))],
      ['Calls', count(sum(({ calls }) => calls))],
      [`Calls in ${before}`, count(sum(({ calls_before }) => calls_before))],
    ]),
    html`<p class="note">What calls of these days were charged, of sums that are kept by day. Refunds, grants and what was closed are on each organization’s own month, which comes from its ledger.</p>
<p class="actions"><a class="button" href="/months.csv?month=${month}">Download CSV</a></p>`,
    rows.length === 0
      ? html`<p class="empty">${further ? 'There are no more organizations.' : 'There is no organization yet.'}</p>`
      : useTable(shown),
    html`<nav class="pager" aria-label="Pages of organizations">
${further && html`<a href="/months?month=${month}">First page</a>`}
${next !== null && html`<a href="/months?month=${month}&amp;after=${next}">Next page</a>`}
</nav>`,
    mayDo(viewer.role, 'ledgers.change') && closeSection(viewer, shown),
  ]
}

const useTable = ({ month, before, rows }: Shown): Html =>
  table({
    caption: `Use in ${month} beside ${before} by organization`,
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
      { head: 'Calls before', kind: 'number', cell: (row) => count(row.calls_before) },
      { head: 'Charged', kind: 'number', cell: (row) => credits(row.charged_micro) },
      { head: 'Charged before', kind: 'number', cell: (row) => credits(row.charged_before_micro) },
      {
        head: 'Difference',
        kind: 'number',
        cell: (row) => movement(String(BigInt(row.charged_micro) - BigInt(row.charged_before_micro))),
      },
    ],
  })

const closeSection = (
  viewer: Viewer,
  { month, closableAtMs, atMs }: Shown,
): Html => html`<section class="narrow" aria-labelledby="close">
<h2 id="close">Close ${month}</h2>
${
  atMs < closableAtMs
    ? html`<p class="empty">It can be closed from ${utc(new Date(closableAtMs))} on: until then calls of it may still be written.</p>`
    : html`<p>${month} of all organizations is closed, one after the other: lots that expired in it are written off, and the totals and the digest of each statement are recorded in its ledger. From then on each file of ${month} is the same for ever, and what comes later for it is a correction in the month that is open then. An organization that has an earlier month open is left out and named; one that is closed already stays as it is. It cannot be undone.</p>
<form method="post" action="/months/close">
${formFields(viewer)}
<input type="hidden" name="month" value="${month}">
<p class="actions"><button type="submit">Close ${month} of all</button></p>
</form>`
}
</section>`

export const monthsClosedPage = ({
  viewer,
  month,
  ended,
  names,
}: {
  readonly viewer: Viewer
  readonly month: string
  readonly ended: readonly MonthEnded[]
  readonly names: Names
}): Html => {
  const refused = ended.filter((one) => one.refused !== null)
  const closed = ended.filter((one) => one.closed !== null)
  const now = closed.filter((one) => one.closed?.already === false)
  return layout({
    title: `${month} closed`,
    viewer,
    at: '/months',
    main: html`<p class="eyebrow"><a href="/months?month=${month}">${month} of all organizations</a></p>
<h1>${refused.length === 0 ? `${month} is closed` : `${month} is not closed for all`}</h1>
${figures([
  ['Closed now', html`<strong>${count(now.length)}</strong>`],
  ['Closed before', count(closed.length - now.length)],
  ['Nothing to close', count(ended.length - closed.length - refused.length)],
  ['Refused', count(refused.length)],
])}
${
  ended.length > 0 &&
  table({
    caption: `What became of ${month}, by organization, those that were refused first`,
    rows: [...refused, ...ended.filter((one) => one.refused === null)].slice(0, shownMax),
    columns: [
      {
        head: 'Organization',
        kind: 'name',
        cell: ({ organizationId: id }) => organizationLink(id, names, `/months/${month}`),
      },
      { head: 'State', cell: stateOf },
      {
        head: 'Closing balance',
        kind: 'number',
        cell: ({ closed }) => closed !== null && balance(String(parseCredits(closed.closed.totals.closing))),
      },
      {
        head: 'Lots written off',
        kind: 'number',
        cell: ({ closed }) => closed !== null && count(closed.expired),
      },
    ],
  })
}
${ended.length > shownMax && html`<p class="note">The first ${count(shownMax)} are shown; the figures are of all.</p>`}`,
  })
}

const shownMax = 500

const stateOf = ({ closed, refused }: MonthEnded): Renderable => {
  if (refused !== null)
    return html`<span class="mark bad">refused</span> <span class="free">${refused}</span>`
  if (closed === null) return 'nothing to close'
  return closed.already ? 'closed before' : html`<span class="mark good">closed</span>`
}
