import { mayDo } from '../../administration/roles.ts'
import type { RuleChange } from '../../billing/price-rules.ts'
import type { PriceProposal, PublishedBook } from '../../billing/prices.ts'
import type { PriceBookRule } from '../../events/prices.ts'
import { instant, utc } from '../format.ts'
import { type Html, html, type Renderable } from '../html.ts'
import { type FormFault, faultNotice, formFields, layout, table, type Viewer } from './layout.ts'

/** Current, future and proposed prices of calls. */

type PricesView = {
  readonly viewer: Viewer
  readonly inForce: PublishedBook | null
  readonly upcoming: readonly PublishedBook[]
  /** Empty for people who may not see proposals. */
  readonly open: readonly PriceProposal[]
}

export const pricesPage = ({ viewer, inForce, upcoming, open }: PricesView): Html =>
  layout({
    title: 'Prices',
    viewer,
    at: '/prices',
    main: html`<div class="heading"><h1>Prices</h1>${mayDo(viewer.role, 'prices.change') && html`<a class="button" href="/prices/new">Propose prices</a>`}</div>
${
  open.length > 0 &&
  html`<section aria-labelledby="proposals">
<h2 id="proposals">Proposals</h2>
${table({
  caption: 'Proposals that can still be approved',
  rows: open,
  columns: [
    {
      head: 'Proposal',
      kind: 'name',
      cell: (row) => html`<a href="/prices/p${row.proposal}">p${row.proposal}</a>`,
    },
    { head: 'From (UTC)', cell: (row) => instant(new Date(row.effective_from)) },
    { head: 'Proposed by', cell: (row) => row.proposer },
    { head: 'Reason', cell: (row) => row.reason ?? '' },
  ],
})}
</section>`
}
<section aria-labelledby="in-force">
<h2 id="in-force">In force</h2>
${inForce === null ? html`<p class="empty">No price book is in force.</p>` : bookPart(viewer, inForce)}
</section>
${upcoming.map(
  (book) => html`<section aria-labelledby="book-${book.version}">
<div class="heading"><h2 id="book-${book.version}">From ${book.effective_from}</h2>
${mayDo(viewer.role, 'prices.change') && html`<a href="/prices/${book.version}/withdraw">Withdraw<span class="unseen"> price book ${book.version}</span></a>`}</div>
${bookPart(viewer, book)}
</section>`,
)}`,
  })

const bookPart = (
  viewer: Viewer,
  book: PublishedBook,
): Html => html`<p class="note">Price book ${book.version}, effective from ${utc(new Date(book.effective_from))}${
  mayDo(viewer.role, 'finance.read') && html`, approved by ${book.approver}`
}.</p>
${rulesTable(`Rules of price book ${book.version}`, book.rules)}`

const rulesTable = (caption: string, rules: readonly PriceBookRule[]): Html =>
  table({
    caption,
    rows: rules,
    columns: [
      { head: 'Rule', kind: 'name', cell: (row) => row.rule },
      { head: 'Version', kind: 'number', cell: (row) => String(row.rule_version) },
      { head: 'SKU', cell: (row) => row.sku ?? '' },
      { head: 'Credits', kind: 'number', cell: (row) => row.amount },
    ],
  })

type ProposalView = {
  readonly viewer: Viewer
  readonly proposal: PriceProposal
  /** Compared with the book that would then be in force without it. */
  readonly changes: readonly RuleChange[]
  /** Why this person may not approve it, or no one can any more; null: the page shows a button. */
  readonly refused: string | null
  readonly fault: FormFault | null
}

export const proposalPage = ({ viewer, proposal, changes, refused, fault }: ProposalView): Html =>
  layout({
    title: `Proposal p${proposal.proposal}`,
    viewer,
    at: '/prices',
    main: html`<p class="eyebrow"><a href="/prices">Prices</a></p>
<h1>Proposal p${proposal.proposal}</h1>
${faultNotice(fault)}
<p>Proposed by ${proposal.proposer}, to price calls from ${utc(new Date(proposal.effective_from))} on${proposal.reason !== null && html`: ${proposal.reason}`}.</p>
<p class="note">Digest of its rules <span class="id">${proposal.digest}</span></p>
${table({
  caption: `What proposal p${proposal.proposal} changes`,
  rows: changes,
  columns: [
    { head: 'Rule', kind: 'name', cell: (row) => row.rule },
    { head: 'SKU', cell: (row) => (row.to ?? row.from)?.sku ?? '' },
    { head: 'Version', kind: 'number', cell: ({ from, to }) => moved(from?.rule_version, to?.rule_version) },
    { head: 'Credits', kind: 'number', cell: ({ from, to }) => moved(from?.amount, to?.amount) },
  ],
})}
<p class="actions"><a href="/prices/p${proposal.proposal}/cost">What a month would have cost</a>
${mayDo(viewer.role, 'prices.change') && html`<a href="/prices/p${proposal.proposal}/withdraw">Withdraw</a>`}</p>
${
  refused === null && mayDo(viewer.role, 'prices.change')
    ? html`<p>Once it is approved it prices calls from ${utc(new Date(proposal.effective_from))} on. It can be withdrawn until then, and what was charged before keeps its price.</p>
<form class="fields" method="post" action="/prices/p${proposal.proposal}/approve">
${formFields(viewer)}
<p class="actions"><button type="submit">Approve p${proposal.proposal}</button> <a href="/prices">Cancel</a></p>
</form>`
    : refused !== null && html`<p class="notice">${refused}</p>`
}`,
  })

const moved = (from: string | number | undefined, to: string | number | undefined): Renderable =>
  from === to ? String(to ?? '') : `${from ?? 'none'} → ${to ?? 'none'}`
