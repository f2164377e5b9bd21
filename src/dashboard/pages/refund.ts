import type { Explanation } from '../../ledger/explain/explanation.ts'
import { decimal } from '../format.ts'
import { type Html, html } from '../html.ts'
import type { AccountRow } from '../queries.ts'
import {
  described,
  type FormFault,
  faultNotice,
  figures,
  formFields,
  layout,
  organizationHead,
  table,
  type Viewer,
} from './layout.ts'

/** The form that refunds a call, and the page that previews the refund. */

type RefundView = {
  readonly viewer: Viewer
  readonly account: AccountRow
  readonly requestId: string
}

const frame = ({ viewer, account, requestId }: RefundView, title: string, main: Html): Html =>
  layout({
    title,
    viewer,
    main: html`${organizationHead(viewer, account, null)}
<div class="narrow">
<h1>${title}</h1>
<p class="note">Call <a href="${pathOf({ account, requestId })}"><span class="id">${requestId}</span></a></p>
${main}
</div>`,
  })

const pathOf = ({ account, requestId }: Pick<RefundView, 'account' | 'requestId'>): string =>
  `/organizations/${account.organization_id}/calls/${requestId}`

export const refundPage = (
  view: RefundView & {
    readonly cost: Explanation['cost']
    readonly fault: FormFault | null
    readonly amount: string
    readonly reference: string
    readonly reason: string
  },
): Html =>
  frame(
    view,
    'Refund a call',
    html`${faultNotice(view.fault)}
<p>It was charged ${decimal(view.cost.charged)} ${view.cost.charged === '1' ? 'credit' : 'credits'} and costs ${decimal(view.cost.now)} now. No more than that is given back.</p>
<form class="fields" method="post" action="${pathOf(view)}/refund">
${formFields(view.viewer)}
<p><label for="amount">Credits</label>
<input id="amount" name="amount" value="${view.amount}" inputmode="decimal" required maxlength="20" autocomplete="off"${described('amount', view.fault)}></p>
<p><label for="reference">Reference</label>
<input id="reference" name="reference" value="${view.reference}" maxlength="200" autocomplete="off"${described('reference', view.fault, 'reference-hint')}>
<small id="reference-hint">What you call it elsewhere, such as the number of a credit note. Given again, nothing is written twice.</small></p>
<p><label for="reason">Reason</label>
<input id="reason" name="reason" value="${view.reason}" required maxlength="200" autocomplete="off"${described('reason', view.fault, 'reason-hint')}>
<small id="reason-hint">Kept in the event log with your user name, and shown to the organization.</small></p>
<p class="actions"><button type="submit">See what will happen</button> <a href="${pathOf(view)}">Cancel</a></p>
</form>`,
  )

export const refundConfirmPage = (
  view: RefundView & {
    readonly amount: string
    readonly reference: string
    readonly reason: string
    readonly costs: string
    readonly balance: string
    readonly fills: readonly { readonly grant_id: string; readonly amount: string }[]
  },
): Html =>
  frame(
    view,
    'Refund this?',
    html`${figures([
      ['Given back', html`<strong>${decimal(view.amount)}</strong>`],
      ['The call then costs', decimal(view.costs)],
      ['Balance then', decimal(view.balance)],
      ...(view.reference === '' ? [] : [['Reference', view.reference] as const]),
    ])}
<p>${view.reason}</p>
${
  view.fills.length > 0 &&
  table({
    caption: 'Lots that get credits back',
    rows: view.fills,
    columns: [
      { head: 'Lot', kind: 'name', cell: ({ grant_id }) => html`<span class="id">${grant_id}</span>` },
      { head: 'Credits', kind: 'number', cell: ({ amount }) => decimal(amount) },
    ],
  })
}
<form method="post" action="${pathOf(view)}/refund/confirmed">
${formFields(view.viewer)}
<input type="hidden" name="amount" value="${view.amount}">
<input type="hidden" name="reference" value="${view.reference}">
<input type="hidden" name="reason" value="${view.reason}">
<p class="actions"><button type="submit">Refund ${decimal(view.amount)} ${view.amount === '1' ? 'credit' : 'credits'}</button> <a href="${pathOf(view)}">Cancel</a></p>
</form>`,
  )

/** The reference names this refund, which is in the ledger. */
export const refundedBeforePage = (
  view: RefundView & { readonly amount: string; readonly reference: string },
): Html =>
  frame(
    view,
    'Refunded before',
    html`<p class="notice">${decimal(view.amount)} credits were refunded under the reference “${view.reference}” before. Nothing is written a second time.</p>
<p class="actions"><a class="button" href="${pathOf(view)}">Back to the call</a></p>`,
  )
