import type { CreditAdjusted, CreditGranted } from '../../events/credits.ts'
import type { Form } from '../form.ts'
import { balance, count, decimal, utc } from '../format.ts'
import { type Html, html, type Renderable } from '../html.ts'
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

/** The forms that move credits by hand, and the pages that preview each change. */

export type CreditView = { readonly viewer: Viewer; readonly account: AccountRow }
export type CreditFormView = CreditView & { readonly typed: Form; readonly fault: FormFault | null }

const creditsPath = ({ organization_id: id }: AccountRow, act: string): string =>
  `/organizations/${id}/credits/${act}`

const frame = ({ viewer, account }: CreditView, title: string, main: Html): Html =>
  layout({
    title: `${title}: ${account.name}`,
    viewer,
    main: html`${organizationHead(viewer, account, null)}
<div class="narrow">
<h1>${title}</h1>
<p class="note"><a href="/organizations/${account.organization_id}">${account.name}</a>, balance ${balance(account.balance_micro)} credits</p>
${main}
</div>`,
  })

const cancel = (account: AccountRow): Html =>
  html`<a href="/organizations/${account.organization_id}">Cancel</a>`

type Field = {
  readonly name: string
  readonly label: string
  readonly hint?: string
  readonly required?: true
  readonly max: number
}

const field = (
  { typed, fault }: CreditFormView,
  { name, label, hint, required, max }: Field,
): Html => html`<p><label for="${name}">${label}</label>
<input id="${name}" name="${name}" value="${typed.text(name)}"${required && html` required`} maxlength="${max}" autocomplete="off"${described(name, fault, hint === undefined ? undefined : `${name}-hint`)}>
${hint !== undefined && html`<small id="${name}-hint">${hint}</small>`}</p>`

const formPage = (
  view: CreditFormView,
  { act, title, says, fields }: { act: string; title: string; says: Renderable; fields: readonly Field[] },
): Html =>
  frame(
    view,
    title,
    html`${faultNotice(view.fault)}
<p>${says}</p>
<form class="fields" method="post" action="${creditsPath(view.account, act)}">
${formFields(view.viewer)}
${fields.map((one) => field(view, one))}
<p class="actions"><button type="submit">See what will happen</button> ${cancel(view.account)}</p>
</form>`,
  )

const reason: Field = {
  name: 'reason',
  label: 'Reason',
  required: true,
  max: 200,
  hint: 'Kept in the event log with your user name, and shown to the organization.',
}
const reference: Field = {
  name: 'reference',
  label: 'Reference',
  max: 200,
  hint: 'What you call it elsewhere, such as an invoice number. Given again, nothing is written twice.',
}

export const grantPage = (view: CreditFormView): Html =>
  formPage(view, {
    act: 'grant',
    title: 'Grant credits',
    says: 'A lot of credits is added. An overdraft is repaid from it first.',
    fields: [
      { name: 'amount', label: 'Credits', hint: 'At most 6 decimals.', required: true, max: 20 },
      {
        name: 'priority',
        label: 'Priority',
        required: true,
        max: 4,
        hint: '0 to 1000; lower is drawn first.',
      },
      {
        name: 'expires-at',
        label: 'Expires (UTC)',
        max: 40,
        hint: 'A day such as 2027-01-31, at whose end what is left is worth nothing, or an instant. Empty: never.',
      },
      reference,
      reason,
    ],
  })

export const adjustPage = (view: CreditFormView): Html =>
  formPage(view, {
    act: 'adjust',
    title: 'Adjust the balance',
    says: 'A correction of the balance that belongs to no call. What is given goes into a lot of its own that is drawn first and never expires; what is taken comes from the lots in the order in which charges draw them.',
    fields: [
      {
        name: 'amount',
        label: 'Credits',
        required: true,
        max: 20,
        hint: 'At most 6 decimals; -5 takes 5. No more is taken than is available.',
      },
      reference,
      reason,
    ],
  })

export const thresholdPage = (view: CreditFormView & { readonly now: string | null }): Html =>
  formPage(view, {
    act: 'threshold',
    title: 'Low balance',
    says: html`The organization is told once, by the webhook event <code>balance.low</code>, when its balance falls below the threshold. ${thresholdSays(view.now)}`,
    fields: [
      {
        name: 'amount',
        label: 'Below, credits',
        max: 20,
        hint: 'Empty: it is not told.',
      },
    ],
  })

/** `micro`: in the read model's unit. */
const thresholdSays = (micro: string | null): Html =>
  micro === null ? html`None is set now.` : html`It is ${balance(micro)} credits now.`

type Figure = readonly [name: string, value: Renderable]

const confirmPage = (
  view: CreditView,
  {
    act,
    title,
    will,
    says,
    hidden,
    button,
  }: {
    readonly act: string
    readonly title: string
    readonly will: readonly Figure[]
    readonly says: Renderable
    /** The values that the form sends again, as they were parsed. */
    readonly hidden: Readonly<Record<string, string>>
    readonly button: Html
  },
): Html =>
  frame(
    view,
    title,
    html`${figures(will)}
${says}
<form method="post" action="${creditsPath(view.account, act)}/confirmed">
${formFields(view.viewer)}
${Object.entries(hidden).map(([name, value]) => html`<input type="hidden" name="${name}" value="${value}">`)}
<p class="actions">${button} ${cancel(view.account)}</p>
</form>`,
  )

type Balances = { readonly before: bigint; readonly after: bigint }

const balances = ({ before, after }: Balances): Figure[] => [
  ['Balance before', balance(String(before))],
  ['Balance then', html`<strong>${balance(String(after))}</strong>`],
]

export const grantConfirmPage = (
  view: CreditView & Balances & { readonly granted: CreditGranted; readonly hidden: Record<string, string> },
): Html => {
  const { amount, priority, expires_at, overdraft_repaid, reason, reference } = view.granted
  const repaid = overdraft_repaid !== '0'
  return confirmPage(view, {
    act: 'grant',
    title: 'Grant this?',
    hidden: view.hidden,
    will: [
      ['Granted', decimal(amount)],
      ...balances(view),
      ['Priority', count(priority)],
      ['Expires', expires_at === null ? 'never' : utc(new Date(expires_at))],
      ...(reference === null ? [] : [['Reference', reference] as const]),
      ...(repaid ? [['Repays of the overdraft', decimal(overdraft_repaid)] as const] : []),
    ],
    says: html`<p>A new lot is written into the ledger of ${view.account.name}. Reason: ${reason}. It can be taken back as long as something of it is left.</p>`,
    button: html`<button type="submit">Grant ${decimal(amount)} credits</button>`,
  })
}

export const adjustConfirmPage = (
  view: CreditView &
    Balances & { readonly adjusted: CreditAdjusted; readonly hidden: Record<string, string> },
): Html => {
  const { amount, allocations, overdraft_repaid, reason } = view.adjusted
  const takes = amount.startsWith('-')
  const shown = decimal(amount.replace('-', ''))
  const repaid = overdraft_repaid !== '0'
  return confirmPage(view, {
    act: 'adjust',
    title: takes ? 'Take these credits?' : 'Give these credits?',
    hidden: view.hidden,
    will: [
      [takes ? 'Taken' : 'Given', shown],
      ...balances(view),
      ...(repaid ? [['Repays of the overdraft', decimal(overdraft_repaid)] as const] : []),
    ],
    says: html`<p>A correction is written into the ledger of ${view.account.name}. Reason: ${reason}. It cannot be undone, only adjusted again.</p>
${
  allocations.length > 0 &&
  table({
    caption: 'Lots that credits are taken from',
    rows: allocations,
    columns: [
      { head: 'Lot', kind: 'name', cell: ({ grant_id }) => html`<span class="id">${grant_id}</span>` },
      { head: 'Credits', kind: 'number', cell: (one) => decimal(one.amount) },
    ],
  })
}`,
    button: takes
      ? html`<button class="danger" type="submit">Take ${shown} credits</button>`
      : html`<button type="submit">Give ${shown} credits</button>`,
  })
}

export const thresholdConfirmPage = (
  view: CreditView & {
    readonly now: string | null
    readonly wanted: string | null
    readonly hidden: Record<string, string>
  },
): Html =>
  confirmPage(view, {
    act: 'threshold',
    title: 'Set the threshold?',
    hidden: view.hidden,
    will: [
      ['Told below, now', view.now === null ? 'not told' : balance(view.now)],
      ['Then', view.wanted === null ? 'not told' : balance(view.wanted)],
      ['Balance', balance(view.account.balance_micro)],
    ],
    says: html`<p>${
      view.wanted === null
        ? `${view.account.name} is told no more that its balance is low.`
        : `${view.account.name} is told when its balance falls below it. No credits are moved.`
    }</p>`,
    button: html`<button type="submit">Set the threshold</button>`,
  })

/** The reference names this movement, which is in the ledger. */
export const movedBeforePage = (
  view: CreditView & {
    readonly what: 'Granted' | 'Adjusted'
    readonly reference: string
    readonly amount: string
  },
): Html =>
  frame(
    view,
    `${view.what} before`,
    html`<p class="notice">${decimal(view.amount)} credits were ${view.what.toLowerCase()} under the reference “${view.reference}” before. Nothing is written a second time.</p>
<p class="actions"><a class="button" href="/organizations/${view.account.organization_id}/lots">Lots of ${view.account.name}</a></p>`,
  )
