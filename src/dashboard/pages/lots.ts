import { mayDo } from '../../administration/roles.ts'
import { count, credits, instant } from '../format.ts'
import { type Html, html } from '../html.ts'
import type { AccountRow, LotRow } from '../queries.ts'
import { layout, organizationHead, table, type Viewer } from './layout.ts'

/** Lots in the order in which they are drawn, each starting where the previous one ends. */

type Lot = LotRow & {
  /** As in the event that opened it. */
  readonly opened: { readonly reason: string; readonly reference: string | null } | null
}

export const lotsPage = ({
  viewer,
  account,
  lots,
  more,
}: {
  readonly viewer: Viewer
  readonly account: AccountRow
  readonly lots: readonly Lot[]
  readonly more: boolean
}): Html =>
  layout({
    title: `Lots of ${account.name}`,
    viewer,
    main: html`${organizationHead(viewer, account, '/lots')}
<h1>Lots of ${account.name}</h1>
<p class="note">Charges draw them down from the top: by priority, then expiry, then age. Each bar begins where the one before it ends.</p>
${mayDo(viewer.role, 'credits.change') && html`<p class="actions"><a class="button" href="/organizations/${account.organization_id}/credits/grant">Grant credits</a></p>`}
${
  lots.length === 0
    ? html`<p class="empty">No credits are left.</p>`
    : table({
        caption: 'Lots with remaining credits, in the order in which they are drawn',
        rows: placed(lots),
        columns: [
          {
            head: 'Reason',
            kind: 'name',
            cell: ({ lot }) => html`${lot.opened?.reason ?? 'not known'}
<span class="id below">${lot.grant_id}</span>`,
          },
          { head: 'Reference', cell: ({ lot }) => lot.opened?.reference },
          { head: 'Priority', kind: 'number', cell: ({ lot }) => count(lot.priority) },
          {
            head: 'Expires (UTC)',
            cell: ({ lot }) => [
              lot.expires_at === null ? 'never' : instant(lot.expires_at),
              lot.past_expiry && html` <span class="mark warn">expired</span>`,
            ],
          },
          { head: 'Granted', kind: 'number', cell: ({ lot }) => credits(lot.granted_micro) },
          { head: 'Left', kind: 'number', cell: ({ lot }) => credits(lot.remaining_micro) },
          { head: 'Drawn in order', cell: bar },
          {
            head: 'Actions',
            cell: ({ lot }) =>
              mayDo(viewer.role, 'credits.change') &&
              !lot.past_expiry &&
              html`<a href="/organizations/${account.organization_id}/credits/void?grant=${lot.grant_id}">Take back<span class="unseen"> lot ${lot.grant_id}</span></a>`,
          },
        ],
      })
}
${more && html`<p class="note">There are more; these ${count(lots.length)} are drawn first.</p>`}`,
  })

type Placed = { readonly lot: Lot; readonly start: number; readonly length: number }

const barUnits = 200

/** The start and length of each lot, in a bar for all of them. */
const placed = (lots: readonly Lot[]): Placed[] => {
  const whole = lots.reduce((sum, { remaining_micro }) => sum + BigInt(remaining_micro), 0n)
  let before = 0n
  return lots.map((lot) => {
    const units = (micro: bigint): number => Number((micro * BigInt(barUnits)) / (whole === 0n ? 1n : whole))
    const start = units(before)
    before += BigInt(lot.remaining_micro)
    return { lot, start, length: Math.max(1, units(before) - start) }
  })
}

const bar = ({ start, length, lot }: Placed): Html =>
  html`<svg class="lot" viewBox="0 0 ${barUnits} 12" preserveAspectRatio="none" aria-hidden="true"><rect class="track" width="${barUnits}" height="12"/><rect${
    lot.past_expiry && html` class="past"`
  } x="${Math.min(start, barUnits - 1)}" width="${length}" height="12"/></svg>`
