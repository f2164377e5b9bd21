import type { StandingOverride } from '../../administration/prices/price-overrides.ts'
import { mayDo } from '../../administration/roles.ts'
import { decimal, instant } from '../format.ts'
import { type Html, html } from '../html.ts'
import type { AccountRow } from '../queries.ts'
import {
  described,
  type FormFault,
  faultNotice,
  formFields,
  layout,
  organizationHead,
  table,
  type Viewer,
} from './layout.ts'

/** An organization's own prices: the current ones, and the forms that set and withdraw one. */

type OverridesView = {
  readonly viewer: Viewer
  readonly account: AccountRow
  readonly overrides: readonly StandingOverride[]
  readonly skus: readonly string[]
  readonly typed: (name: string) => string
  readonly fault: FormFault | null
}

export const overridesPage = (view: OverridesView): Html => {
  const { viewer, account, overrides, fault } = view
  return layout({
    title: `Prices of ${account.name}`,
    viewer,
    main: html`${organizationHead(viewer, account, '/prices')}
<h1>Prices of ${account.name}</h1>
<p class="note">Where nothing is set, the <a href="/prices">price book</a> holds. What was charged keeps its price.</p>
${faultNotice(fault)}
${
  overrides.length === 0
    ? html`<p class="empty">It has no prices of its own.</p>`
    : table({
        caption: 'Prices of its own',
        rows: overrides,
        columns: [
          { head: 'SKU', kind: 'name', cell: ({ sku }) => sku },
          {
            head: 'Credits',
            kind: 'number',
            cell: ({ amount }) => (amount === null ? 'as in the book' : decimal(amount)),
          },
          { head: 'From (UTC)', cell: ({ effectiveFrom }) => instant(new Date(effectiveFrom)) },
          { head: 'State', cell: ({ inForce }) => inForce && html`<span class="mark good">in force</span>` },
          { head: 'Reason', cell: ({ reason }) => reason },
          ...(mayDo(viewer.role, 'finance.read')
            ? [{ head: 'Set by', cell: ({ setBy }: StandingOverride) => setBy }]
            : []),
        ],
      })
}
${mayDo(viewer.role, 'prices.change') && [setForm(view), overrides.length > 0 && withdrawForm(view)]}`,
  })
}

const setForm = ({
  viewer,
  account,
  skus,
  typed,
  fault,
}: OverridesView): Html => html`<section class="narrow" aria-labelledby="set">
<h2 id="set">Set a price</h2>
<form class="fields" method="post" action="/organizations/${account.organization_id}/prices">
${formFields(viewer)}
<p><label for="sku">SKU</label>
<select id="sku" name="sku"${described('sku', fault)}>${skus.map(
  (sku) => html`<option value="${sku}"${sku === typed('sku') && html` selected`}>${sku}</option>`,
)}</select></p>
<p><label for="amount">Credits</label>
<input id="amount" name="amount" value="${typed('amount')}" inputmode="decimal" maxlength="20" autocomplete="off"${described('amount', fault, 'amount-hint')}>
<small id="amount-hint">Empty: as in the price book again.</small></p>
<p><label for="effective-from">From (UTC)</label>
<input id="effective-from" name="effective-from" value="${typed('effective-from')}" maxlength="40" autocomplete="off"${described('effective-from', fault, 'effective-from-hint')}>
<small id="effective-from-hint">Such as 2027-01-01T00:00:00Z. Empty: from now on. Never in the past.</small></p>
<p><label for="reason">Reason</label>
<input id="reason" name="reason" value="${typed('reason')}" required maxlength="200" autocomplete="off"${described('reason', fault, 'reason-hint')}>
<small id="reason-hint">Kept in the event log with your user name, and shown to the organization.</small></p>
<p class="actions"><button type="submit">Set the price</button></p>
</form>
</section>`

const withdrawForm = ({
  viewer,
  account,
  overrides,
  fault,
}: OverridesView): Html => html`<section class="narrow" aria-labelledby="withdraw">
<h2 id="withdraw">Withdraw a price</h2>
<p>Calls from then on are priced as if it had not been set.</p>
<form class="fields" method="post" action="/organizations/${account.organization_id}/prices/withdraw">
${formFields(viewer)}
<p><label for="override">Price</label>
<select id="override" name="override">${overrides.map(
  ({ overrideId, sku, amount, effectiveFrom }) =>
    html`<option value="${overrideId}">${sku} at ${amount ?? 'the price of the book'} from ${effectiveFrom}</option>`,
)}</select></p>
<p><label for="withdraw-reason">Reason</label>
<input id="withdraw-reason" name="withdraw-reason" required maxlength="200" autocomplete="off"${described('withdraw-reason', fault, 'withdraw-reason-hint')}>
<small id="withdraw-reason-hint">Kept in the event log with your user name, and shown to the organization.</small></p>
<p class="actions"><button class="danger" type="submit">Withdraw the price</button></p>
</form>
</section>`
