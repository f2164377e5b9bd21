import { mayDo } from '../../administration/roles.ts'
import { creditsText, parseCredits } from '../../billing/money.ts'
import { ledgerStream } from '../../events/streams.ts'
import type { Explanation } from '../../ledger/explain/explanation.ts'
import { mayOpen } from '../access.ts'
import { balance, copyable, decimal, instant, words } from '../format.ts'
import { type Html, html, type Renderable } from '../html.ts'
import type { AccountRow } from '../queries.ts'
import { eventHref } from './events.ts'
import { figures, layout, organizationHead, table, type Viewer } from './layout.ts'

/** One call: its findings, the reasons for its cost, and later corrections. */

type CallView = {
  readonly viewer: Viewer
  readonly account: AccountRow
  readonly call: Explanation
  /** When it was written; the statement has its line. */
  readonly isInStatement: boolean
}

export const callPage = ({ viewer, account, call, isInStatement }: CallView): Html => {
  const path = `/organizations/${account.organization_id}/calls/${call.request_id}`
  return layout({
    title: `Call ${call.request_id}`,
    viewer,
    main: html`${organizationHead(viewer, account, null, `Call ${call.request_id}`)}
<h1>${words(call.capability)}, ${call.outcome}</h1>
<p class="note">${copyable(call.request_id)} · ${at(call.at)} UTC · key ${copyable(call.key_id)}${
      call.code !== null && html` · <span class="code">${call.code}</span>`
    }${call.trace_id !== null && html` · trace ${copyable(call.trace_id)}`}</p>
${figures([
  ['Cost, credits', html`<strong>${decimal(call.cost.charged)}</strong>`],
  ['Costs now', decimal(call.cost.now)],
  ['Balance before', balance(String(parseCredits(call.balance.before)))],
  ['Balance after', balance(String(parseCredits(call.balance.after)))],
])}
<p class="actions">${mayDo(viewer.role, 'credits.change') && parseCredits(call.cost.now) > 0n && call.cost.charge_id !== null && html`<a class="button" href="/organizations/${account.organization_id}/credits/refund?request=${call.request_id}">Refund the call</a>`}
${mayDo(viewer.role, 'ledgers.export') && call.checkpoint !== null && html`<a href="${path}/receipt.json">Receipt</a>`}</p>
${timelineSection(call, isInStatement)}
${whySection(call)}
${adjustmentsSection(call)}
${factsSection(call)}
${eventsSection(call, mayOpen(viewer.role, 'GET /events'))}`,
  })
}

const at = (iso: string | null): Renderable => iso !== null && instant(new Date(iso), { milliseconds: true })

const timelineSection = (
  call: Explanation,
  isInStatement: boolean,
): Html => html`<section aria-labelledby="timeline">
<h2 id="timeline">From request to row</h2>
<ol class="timeline">
<li>${at(call.at)} the request was decided: ${call.outcome}${call.code !== null && ` with ${call.code}`}</li>
${call.events.map(
  ({ type, recorded_at, revision, position }) =>
    html`<li>${at(recorded_at)} <strong>${type}</strong> was written at ledger revision ${revision}, position ${position}</li>`,
)}
${
  isInStatement
    ? html`<li>its row is in the statement</li>`
    : html`<li class="waits">its row is not in the statement yet: the projection is behind</li>`
}
${
  call.checkpoint === null
    ? html`<li class="waits">no signed checkpoint covers it yet</li>`
    : html`<li>${at(call.checkpoint.at)} a signed checkpoint covers it</li>`
}
${call.adjustments.map(
  ({ at: when, kind, amount, reason }) => html`<li>${at(when)} ${words(kind)} of ${amount}: ${reason}</li>`,
)}
</ol>
</section>`

const whySection = (call: Explanation): Html => html`<section aria-labelledby="why">
<h2 id="why">Why</h2>
${
  call.repeats !== null &&
  html`<p>It got the answer of <a href="${pathOf(call, call.repeats)}">${call.repeats}</a> again, under the same Idempotency-Key.</p>`
}
${call.replays.map(
  ({ request_id, at }) =>
    request_id !== null &&
    html`<p class="note">Answered again ${at} as <a href="${pathOf(call, request_id)}">${request_id}</a></p>`,
)}
${call.cost.free_by === null ? chargeTable(call) : html`<p>${freeText(call.cost.free_by)}</p>`}
${bookNote(call)}
${call.lots.length > 0 && lotsTable(call)}
${call.overdraft !== '0' && html`<p class="note">${creditsText(call.overdraft)} came from the overdraft.</p>`}
</section>`

const pathOf = ({ organization_id }: Explanation, requestId: string): string =>
  `/organizations/${organization_id}/calls/${requestId}`

const freeText = ({ rule, rule_version, because }: NonNullable<Explanation['cost']['free_by']>): string =>
  `Free: ${because} (rule ${rule} version ${rule_version}).`

const chargeTable = ({ cost }: Explanation): Html =>
  table({
    caption: 'What the call was charged for',
    rows: cost.lines,
    columns: [
      { head: 'For', kind: 'name', cell: (line) => words(line.sku) },
      { head: 'Because', cell: (line) => line.because },
      { head: 'Rule', cell: (line) => `${line.rule} v${line.rule_version}` },
      { head: 'Price book', kind: 'number', cell: (line) => line.book_amount },
      {
        head: 'Own price',
        cell: ({ override }) =>
          override !== null && `since ${override.effective_from} ${override.reason ?? ''}`,
      },
      { head: 'Credits', kind: 'number', cell: (line) => line.amount },
    ],
  })

const bookNote = ({ cost: { price_book: book } }: Explanation): Renderable =>
  book !== null &&
  html`<p class="note">Price book ${book.version}, digest <span class="id whole">${book.digest}</span></p>`

const lotsTable = ({ lots }: Explanation): Html =>
  table({
    caption: 'The lots that paid',
    rows: lots,
    columns: [
      { head: 'Lot', kind: 'name', cell: (lot) => html`<span class="id">${lot.grant_id}</span>` },
      { head: 'Opened (UTC)', cell: ({ opened }) => opened !== null && instant(new Date(opened.at)) },
      { head: 'Reason', cell: ({ opened }) => opened?.reason },
      {
        head: 'Expires (UTC)',
        cell: ({ opened }) =>
          opened !== null && (opened.expires_at === null ? 'never' : instant(new Date(opened.expires_at))),
      },
      { head: 'Credits', kind: 'number', cell: (lot) => lot.amount },
    ],
  })

const adjustmentsSection = ({ adjustments }: Explanation): Renderable =>
  adjustments.length > 0 &&
  html`<section aria-labelledby="since">
<h2 id="since">Since</h2>
${table({
  caption: 'Corrections of what the call costs',
  rows: adjustments,
  columns: [
    { head: 'Time (UTC)', kind: 'name', cell: (row) => row.at },
    { head: 'What', cell: (row) => words(row.kind) },
    { head: 'Reason', cell: (row) => row.reason },
    { head: 'Revision', kind: 'number', cell: (row) => row.event?.revision },
    { head: 'Given back', kind: 'number', cell: (row) => row.amount },
  ],
})}
</section>`

const factsSection = ({ facts }: Explanation): Html => html`<section aria-labelledby="facts">
<h2 id="facts">Facts</h2>
<p class="note">All that its price depends on. What was asked for is in the log as a keyed hash only.</p>
${table({
  caption: 'What the call established',
  rows: Object.entries(facts).map(([name, value]) => ({ name, value: String(value) })),
  columns: [
    { head: 'Fact', kind: 'name', cell: ({ name }) => words(name) },
    { head: 'Value', cell: ({ value }) => html`<span class="id whole">${value}</span>` },
  ],
})}
</section>`

const eventsSection = (
  { organization_id: id, events, checkpoint, as_of }: Explanation,
  mayOpenThem: boolean,
): Html => html`<section aria-labelledby="events">
<h2 id="events">Events</h2>
${table({
  caption: 'The events of the call',
  rows: events,
  columns: [
    {
      head: 'Event',
      kind: 'name',
      cell: (event) =>
        mayOpenThem
          ? html`<a href="${eventHref({ stream: ledgerStream(id), revision: event.revision })}">${event.type}</a>`
          : event.type,
    },
    { head: 'Revision', kind: 'number', cell: (event) => event.revision },
    { head: 'Event id', cell: (event) => html`<span class="id">${event.event_id}</span>` },
    {
      head: 'Digest',
      cell: (event) => html`<span class="id whole">${event.digest}</span>`,
    },
  ],
})}
<p class="note">${
  checkpoint === null
    ? 'No signed checkpoint covers them yet.'
    : `Covered by the checkpoint of ${checkpoint.at} over ${checkpoint.size} events.`
} As of ledger revision ${as_of.revision}.</p>
</section>`
