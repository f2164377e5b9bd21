import { parseCredits } from '../../billing/money.ts'
import type { MonthClosed } from '../../events/credits.ts'
import { balance, cost, count } from '../format.ts'
import { type Html, html } from '../html.ts'
import type { AccountRow } from '../queries.ts'
import { layout, organizationHead, table, type Viewer } from './layout.ts'

export type MonthLine = {
  readonly month: string
  readonly opening: string
  readonly closing: string
  readonly closed: boolean
  /** The totals as they were closed, or so far; null if the month was closed together with a later month. */
  readonly totals: Pick<MonthClosed['totals'], 'charged' | 'calls'> | null
}

export const monthsPage = ({
  viewer,
  account,
  months,
}: {
  readonly viewer: Viewer
  readonly account: AccountRow
  readonly months: readonly MonthLine[]
}): Html =>
  layout({
    title: `Months of ${account.name}`,
    viewer,
    main: html`${organizationHead(viewer, account, '/months')}
<h1>Months of ${account.name}</h1>
<p class="note">Months are in UTC and are computed from the ledger. Later corrections of a closed month appear in the month that is open at that time. Open months show the charges and calls so far.</p>
${
  months.length === 0
    ? html`<p class="empty">No credits or calls yet.</p>`
    : table({
        caption: 'Months, newest first',
        rows: months,
        columns: [
          {
            head: 'Month',
            kind: 'name',
            cell: ({ month }) =>
              html`<a href="/organizations/${account.organization_id}/months/${month}">${month}</a>`,
          },
          { head: 'Opening', kind: 'number', cell: ({ opening }) => balance(String(parseCredits(opening))) },
          { head: 'Closing', kind: 'number', cell: ({ closing }) => balance(String(parseCredits(closing))) },
          {
            head: 'Charged',
            kind: 'number',
            cell: ({ totals }) => totals !== null && cost(totals.charged),
          },
          { head: 'Calls', kind: 'number', cell: ({ totals }) => totals !== null && count(totals.calls) },
          {
            head: 'State',
            cell: ({ closed, totals }) =>
              closed
                ? html`<span class="mark good">closed</span>${totals === null && ' with a later month'}`
                : 'open',
          },
        ],
      })
}`,
  })
