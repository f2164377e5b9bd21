import type { ProvedRun } from '../../administration/rerates/proof.ts'
import type { listRerates } from '../../administration/rerates/rerates.ts'
import { mayDo } from '../../administration/roles.ts'
import { parseCredits } from '../../billing/money.ts'
import type { RerateLedgerPlanned } from '../../events/rerates.ts'
import { count, decimal, instant, movement } from '../format.ts'
import { type Html, html, type Renderable } from '../html.ts'
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

/** Re-rates: the list, the form that plans one, and the page of one with its differences and its state. */

const frame = (viewer: Viewer, title: string, main: Html): Html =>
  layout({ title, viewer, at: '/rerates', main })

export const reratesPage = ({
  viewer,
  runs,
}: {
  readonly viewer: Viewer
  readonly runs: Awaited<ReturnType<typeof listRerates>>
}): Html =>
  frame(
    viewer,
    'Re-rates',
    html`<div class="heading"><h1>Re-rates</h1>${mayDo(viewer.role, 'rerates.change') && html`<a class="button" href="/rerates/new">Plan a re-rate</a>`}</div>
<p class="note">What calls that were made would have cost under other prices. The difference is written as adjustments, once it is approved.</p>
${
  runs.length === 0
    ? html`<p class="empty">None was planned yet.</p>`
    : table({
        caption: 'Re-rates, newest first',
        rows: runs,
        columns: [
          {
            head: 'Run',
            kind: 'name',
            cell: ({ run, state }) =>
              state === 'never finished'
                ? html`<span class="id">${run}</span>`
                : html`<a href="/rerates/${run}"><span class="id">${run}</span></a>`,
          },
          { head: 'State', cell: ({ state }) => state },
          { head: 'Calls from (UTC)', cell: ({ from }) => from && instant(new Date(from)) },
          { head: 'To', cell: ({ to }) => to && instant(new Date(to)) },
          { head: 'Ledgers', kind: 'number', cell: ({ ledgers }) => count(ledgers ?? 0) },
          { head: 'Calls', kind: 'number', cell: ({ calls }) => count(calls ?? 0) },
          { head: 'Proposed by', cell: (row) => row.proposed_by },
          { head: 'Reason', cell: ({ reason }) => reason },
        ],
      })
}`,
  )

export const planPage = ({
  viewer,
  typed,
  fault,
}: {
  readonly viewer: Viewer
  readonly typed: (name: string) => string
  readonly fault: FormFault | null
}): Html => {
  const field = (
    name: string,
    label: string,
    hint: string,
    required = true,
  ): Html => html`<p><label for="${name}">${label}</label>
<input id="${name}" name="${name}" value="${typed(name)}"${required && html` required`} maxlength="200" autocomplete="off"${described(name, fault, `${name}-hint`)}>
<small id="${name}-hint">${hint}</small></p>
`
  return frame(
    viewer,
    'Plan a re-rate',
    html`<div class="narrow"><p class="eyebrow"><a href="/rerates">Re-rates</a></p>
<h1>Plan a re-rate</h1>
${faultNotice(fault)}
<p>Ledgers are read and none is written: the plan shows the difference, and is applied when it is approved.</p>
<form class="fields" method="post" action="/rerates/new">
${formFields(viewer)}
${field('book', 'Prices', 'A price book, such as 2, or a proposal, such as p3.')}
${field('from', 'Calls from (UTC)', 'Such as 2026-11-01T00:00:00Z.')}
${field('to', 'Calls before (UTC)', 'Not later than now.')}
${field('organization', 'Organization', 'Its id. Empty: all of them.', false)}
${field('reason', 'Reason', 'Kept in the event log, and shown to the organization.')}
<p class="actions"><button type="submit">Plan</button> <a href="/rerates">Cancel</a></p>
</form></div>`,
  )
}

/** Of a run: the sums are of all. */
export const ledgersShownMax = 100

type RunView = {
  readonly viewer: Viewer
  readonly found: ProvedRun
  readonly names: Names
  /** Why this person may not approve it; null: they may. */
  readonly refused: string | null
  readonly fault: FormFault | null
}

export const reratePage = (view: RunView): Html => {
  const { viewer, found, names, fault } = view
  const { run, proposed, ledgers, approved } = found
  const shown = [...ledgers.values()].slice(0, ledgersShownMax)
  return frame(
    viewer,
    `Re-rate ${run}`,
    html`<p class="eyebrow"><a href="/rerates">Re-rates</a></p>
<h1>Re-rate</h1>
<p class="note"><span class="id whole">${run}</span> · ${stateOf(found)}</p>
${faultNotice(fault)}
<p>Calls from ${instant(new Date(proposed.from))} to ${instant(new Date(proposed.to))} UTC under ${
      proposed.book.version === null
        ? 'prices that were not published'
        : `price book ${proposed.book.version}`
    }: ${proposed.reason}</p>
${figures([
  ['Calls', count(proposed.calls)],
  ['Would cost something else', html`<strong>${count(proposed.calls_affected)}</strong>`],
  ['Given back, credits', decimal(proposed.given)],
  ['Taken, credits', decimal(proposed.taken)],
  ['Ledgers', count(proposed.ledgers)],
])}
<p class="note">Proposed by ${proposed.by}${approved !== null && `, approved by ${approved.by}`}. Digest of the plan <span class="id whole">${proposed.plan_digest}</span></p>
${nextSection(view)}
${shown.map((ledger) => ledgerSection(ledger, found, names))}
${ledgers.size > shown.length && html`<p class="note">The first ${ledgersShownMax} ledgers are shown; the sums are of all.</p>`}`,
  )
}

const stateOf = ({ applied, abandoned, approved, done, ledgers }: ProvedRun): string => {
  if (applied !== null)
    return `applied by ${applied.by} at ${applied.at}, ${applied.left_out} left out, balances changed by ${applied.amount}, ${applied.uncollected} not collected`
  if (abandoned !== null) return `abandoned by ${abandoned.by} at ${abandoned.at}: ${abandoned.reason}`
  if (done.size > 0) return `applied to ${done.size} of ${ledgers.size} ledgers`
  return approved === null ? 'proposed' : 'approved'
}

const nextSection = ({ viewer, found, refused, fault }: RunView): Renderable => {
  const { run, approved, applied, abandoned, proposed } = found
  if (applied !== null || abandoned !== null || !mayDo(viewer.role, 'rerates.change')) return null
  const act = (name: string, label: string, says: string): Html => html`<p>${says}</p>
<form method="post" action="/rerates/${run}/${name}">${formFields(viewer)}
<p class="actions"><button type="submit">${label}</button></p></form>`
  return html`<section class="narrow" aria-labelledby="next">
<h2 id="next">What is next</h2>
${
  approved !== null
    ? act(
        'apply',
        'Apply it',
        `Each of ${count(proposed.ledgers)} ledgers gets one adjustment. What changed since the plan is left out and named. It goes on where it was interrupted, and cannot be undone; another re-rate can.`,
      )
    : refused === null
      ? act(
          'approve',
          'Approve it',
          'Nothing is written to a ledger by the approval. It can then be applied.',
        )
      : html`<p class="notice">${refused}</p>`
}
<form class="fields" method="post" action="/rerates/${run}/abandon">${formFields(viewer)}
<p><label for="reason">Give it up, because</label>
<input id="reason" name="reason" required maxlength="200" autocomplete="off"${described('reason', fault)}></p>
<p class="actions"><button class="quiet" type="submit">Give it up</button></p></form>
</section>`
}

const ledgerSection = (ledger: RerateLedgerPlanned, { done }: ProvedRun, names: Names): Html => {
  const outcome = done.get(ledger.organization_id)
  const id = `ledger-${ledger.organization_id}`
  return html`<section aria-labelledby="${id}">
<h2 id="${id}">${organizationLink(ledger.organization_id, names)}</h2>
<p class="note">${count(ledger.calls_affected)} of ${count(ledger.calls)} calls, balance ${decimal(ledger.balance)}${
    ledger.uncollected !== '0' && `, of which ${decimal(ledger.uncollected)} cannot be collected`
  }${ledger.unaffordable.calls > 0 && `; ${count(ledger.unaffordable.calls)} calls could not have been paid then and stay what they are`}.
${
  outcome !== undefined &&
  ('adjustment_id' in outcome
    ? `Adjusted by ${outcome.amount} at revision ${outcome.revision}.`
    : `Left out: ${outcome.reason}.`)
}</p>
${table({
  caption: `Differences of ${names.get(ledger.organization_id) ?? ledger.organization_id}`,
  rows: ledger.differences,
  columns: [
    { head: 'SKU', kind: 'name', cell: ({ sku }) => sku },
    { head: 'Rule', cell: ({ rule }) => rule ?? 'given back, or re-rated before' },
    { head: 'Calls', kind: 'number', cell: ({ calls }) => count(calls) },
    { head: 'Now', kind: 'number', cell: ({ now }) => decimal(now) },
    { head: 'Re-rated', kind: 'number', cell: ({ rerated }) => decimal(rerated) },
    {
      head: 'Difference',
      kind: 'number',
      cell: ({ now, rerated }) => movement(String(parseCredits(rerated) - parseCredits(now))),
    },
  ],
})}
${refundedTable(ledger)}
</section>`
}

const refundedTable = ({ organization_id, refunded }: RerateLedgerPlanned): Renderable => {
  if (refunded === undefined || refunded.calls === 0) return null
  const { calls, given_back, first } = refunded
  return html`<p class="note">Refunded or reversed calls: ${count(calls)}. The re-rate keeps the ${decimal(given_back)} credits that were given back.</p>
${table({
  caption: calls > first.length ? `The first ${first.length} refunded calls` : 'Refunded calls',
  rows: first,
  columns: [
    {
      head: 'Request id',
      kind: 'name',
      cell: ({ request_id }) =>
        html`<a href="/organizations/${organization_id}/calls/${request_id}"><span class="id">${request_id}</span></a>`,
    },
    { head: 'Given back', kind: 'number', cell: (call) => decimal(call.given_back) },
    { head: 'Now', kind: 'number', cell: ({ now }) => decimal(now) },
    { head: 'Re-rated', kind: 'number', cell: ({ rerated }) => decimal(rerated) },
  ],
})}`
}
