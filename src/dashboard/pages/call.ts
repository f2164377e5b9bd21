import type { FastifyInstance } from 'fastify'
import { neighbourCall } from '../../../projections/statement-lines.ts'
import { InputFault } from '../../administration/input.ts'
import { explainCall } from '../../administration/ledgers/explain.ts'
import { type LineReason, lineReasons } from '../../administration/ledgers/line-reasons.ts'
import { mayDo } from '../../administration/roles.ts'
import { creditsText, parseCredits } from '../../billing/money.ts'
import { errorEntry } from '../../call/errors.ts'
import { rowsOf } from '../../concurrency/query.ts'
import { receiptOf } from '../../event-log/tree/receipt.ts'
import { ledgerStream } from '../../events/streams.ts'
import { CommandRefused } from '../../ledger/command.ts'
import type { Explanation } from '../../ledger/explain/explanation.ts'
import { mayOpen } from '../access.ts'
import { eventHref } from '../declared.ts'
import { balance, copyable, correctionWords, count, decimal, instant, utc, words } from '../format.ts'
import { type Html, html, type Renderable } from '../html.ts'
import { accountAt, type CallParams, type Dashboard, PageMissing, sendPage, viewerOf } from '../page.ts'
import { type AccountRow, linesOfRequest } from '../queries.ts'
import { figures, layout, organizationHead, table, type Viewer } from './layout.ts'

const linesMax = 10

/** Throws `PageMissing` if the organization's ledger has no call with that id. */
const explainedCall = (
  { foundation }: Dashboard,
  { organization, request }: CallParams['Params'],
): Promise<Explanation> =>
  explainCall(foundation, { requestId: request, organizationId: organization, bounded: true }).catch(
    (error: unknown) => {
      if (error instanceof InputFault || error instanceof CommandRefused) throw new PageMissing()
      throw error
    },
  )

/**
 * The page of one call, with its cost and the reason, its timeline, the lots that paid for it, and the evidence. Also the receipt of the
 * call.
 */
export const callRoutes = (pages: FastifyInstance, context: Dashboard): void => {
  const { foundation } = context
  pages.get<CallParams>('/organizations/:organization/calls/:request', async (request, reply) => {
    const account = await accountAt(context, request.params.organization)
    const call = await explainedCall(context, request.params)
    const { organization_id: id } = account
    const { request_id: requestId } = call
    const revision = call.events[0]?.revision ?? 0
    const neighbour = async (side: 'before' | 'after'): Promise<string | null> => {
      const [one] = await rowsOf(foundation.pool, neighbourCall(id, { revision, requestId, side }))
      return one?.request_id ?? null
    }
    const viewer = viewerOf(request, reply)
    const corrections = call.adjustments.flatMap(({ event }) =>
      event === null ? [] : [{ revision: String(event.revision), kind: 'adjustment' }],
    )
    const [lines, previous, next, reasons] = await Promise.all([
      rowsOf(foundation.pool, linesOfRequest(id, { requestId, max: linesMax })),
      neighbour('before'),
      neighbour('after'),
      lineReasons(foundation, { organizationId: id, role: viewer.role }, corrections),
    ])
    // Lines are ordered newest first, and a failed call can have a second, later line.
    const line = lines.at(-1) ?? null
    return sendPage(reply, callPage({ viewer, account, call, line, previous, next, reasons }))
  })

  pages.get<CallParams>(
    '/organizations/:organization/calls/:request/receipt.json',
    async (request, reply) => {
      const { organization_id: id } = await accountAt(context, request.params.organization)
      const call = await explainedCall(context, request.params)
      const [first] = call.events
      const receipt =
        first === undefined
          ? null
          : await receiptOf(foundation, {
              stream: ledgerStream(id),
              revision: first.revision,
              requestId: call.request_id,
            })
      if (receipt === null) throw new PageMissing()
      return reply
        .type('application/json; charset=utf-8')
        .header('cache-control', 'no-store')
        .header('content-disposition', `attachment; filename="receipt-${call.request_id}.json"`)
        .send(`${JSON.stringify(receipt, null, 2)}\n`)
    },
  )
}

type CallView = {
  readonly viewer: Viewer
  readonly account: AccountRow
  readonly call: Explanation
  /** The call's line in the statement; null if the statement does not have the line yet. */
  readonly line: { readonly revision: string; readonly key_name: string | null } | null
  /** The request ids of the calls before and after this one in the ledger; null if there is none. */
  readonly previous: string | null
  readonly next: string | null
  /** The references and authors of corrections, by revision; null if they cannot be read. */
  readonly reasons: ReadonlyMap<string, LineReason> | null
}

const callPage = ({ viewer, account, call, line, previous, next, reasons }: CallView): Html => {
  const own = `/organizations/${account.organization_id}`
  const { cost } = call
  const isLeft = cost.charge_id !== null && parseCredits(cost.now) > 0n
  return layout({
    title: `Call ${call.request_id}`,
    viewer,
    main: html`${organizationHead(viewer, account, null, `Call ${call.request_id}`)}
<h1>${words(call.capability)}, ${call.outcome}</h1>
<p class="note">${copyable(call.request_id)}${call.code !== null && html` · <span class="code">${call.code}</span>`}${
      call.trace_id !== null && html` · trace ${copyable(call.trace_id)}`
    }</p>
${figures([
  ['Organization', html`<a href="${own}">${account.name}</a>`],
  ['Key', html`<a href="${own}/keys/${call.key_id}">${line?.key_name ?? call.key_id}</a>`],
  ['Capability', words(call.capability)],
  ['Time (UTC)', at(call.at)],
  ['Cost, credits', html`<strong>${decimal(cost.charged)}</strong>`],
  ...(cost.now === cost.charged ? [] : [['Costs now', decimal(cost.now)] as const]),
  ['Balance before', balance(String(parseCredits(call.balance.before)))],
  ['Balance after', balance(String(parseCredits(call.balance.after)))],
])}
<p>${costSentence(call)}${
      call.repeats !== null &&
      html` The call had the same Idempotency-Key as <a href="${own}/calls/${call.repeats}">${call.repeats}</a> and got the same answer.`
    }</p>
${call.code !== null && errorSentence(call.code, viewer.docsUrl)}
<p class="actions">${mayDo(viewer.role, 'credits.change') && isLeft && html`<a class="button" href="${own}/credits/refund?request=${call.request_id}">Refund the call</a>`}
${mayDo(viewer.role, 'ledgers.export') && call.checkpoint !== null && html`<a href="${own}/calls/${call.request_id}/receipt.json">Receipt</a>`}</p>
<nav class="pager" aria-label="Calls in the order of the ledger">${previous !== null && html`<a href="${own}/calls/${previous}">Previous call</a> `}${
      next !== null && html`<a href="${own}/calls/${next}">Next call</a>`
    }</nav>
${timelineSection(call, { line, reasons })}
${cost.lines.length > 0 && lotsSection(call)}
${evidenceSection(call, mayOpen(viewer.role, 'GET /commands/event-log/show'))}`,
  })
}

/** Explains an error code and links to the guide. Codes of other releases have no explanation. */
const errorSentence = (code: string, docsUrl: string | null): Html => {
  const known = errorEntry(code)
  return html`<p>${known !== undefined && html`Answered with status ${known.status}: ${known.when}. `}${
    docsUrl !== null && html`<a href="${docsUrl}/errors#${code}">What to do about ${code}</a>`
  }</p>`
}

const at = (iso: string): Html => instant(new Date(iso), { milliseconds: true })

/** For example "1 credit: the address was located (rule ip_lookup.located v1, price book 1)." */
const costSentence = ({ cost: { charged, lines, free_by, price_book } }: Explanation): string => {
  if (lines.length === 0) return free_by === null ? 'Free.' : `Free: ${reason(free_by, [])}.`
  const reasons = lines.map((line) => {
    const { amount, book_amount, override } = line
    return reason(line, [
      ...(lines.length > 1 ? [creditsText(amount)] : []),
      ...(price_book === null ? [] : [`price book ${price_book.version}`]),
      ...(override === null
        ? []
        : [
            `own price since ${override.effective_from.slice(0, 10)}${book_amount === null ? '' : ` in place of ${creditsText(book_amount)}`}`,
          ]),
    ])
  })
  return `${creditsText(charged)}: ${reasons.join('; ')}.`
}

/** The explanation of the rule, and its name in parentheses. Rules of other releases have no explanation. */
const reason = (
  { because, rule, rule_version }: { because: string; rule: string; rule_version: number },
  more: readonly string[],
): string => `${because} (${[`rule ${rule} v${rule_version}`, ...more].join(', ')})`.trim()

/** The limit up to which the timeline also shows the milliseconds since the decision. */
const offsetMaxMs = 60_000

const timelineSection = (call: Explanation, { line, reasons }: Pick<CallView, 'line' | 'reasons'>): Html => {
  const own = `/organizations/${call.organization_id}`
  const steps: (readonly [at: string, what: Renderable])[] = [
    [call.at, `the request was decided: ${call.outcome}${call.code === null ? '' : ` with ${call.code}`}`],
    ...call.events.map(
      ({ type, recorded_at, revision }) =>
        [recorded_at, html`<strong>${type}</strong> was written at ledger revision ${revision}`] as const,
    ),
    ...call.replays.map(
      ({ request_id, at }) =>
        [
          at,
          html`answered again${request_id !== null && html` as <a href="${own}/calls/${request_id}">${request_id}</a>`}`,
        ] as const,
    ),
    ...call.adjustments.map(
      ({ at, kind, amount, reason, event }) =>
        [
          at,
          html`${correctionWords(kind)} of ${creditsText(amount)}: ${reason}${authorOf(reasons?.get(String(event?.revision)))}`,
        ] as const,
    ),
    ...(call.checkpoint === null
      ? []
      : [[call.checkpoint.at, 'a signed checkpoint covers the call'] as const]),
  ]
  return html`<section aria-labelledby="timeline">
<h2 id="timeline">Timeline</h2>
<ol class="timeline">
${steps
  .map(([iso, what]) => ({ iso, what, offsetMs: Date.parse(iso) - Date.parse(call.at) }))
  .toSorted((one, other) => one.offsetMs - other.offsetMs)
  .map(
    ({ iso, what, offsetMs }) =>
      html`<li>${at(iso)}${offsetMs < offsetMaxMs && html` <span class="minor">${offsetMs >= 0 && '+'}${count(offsetMs)} ms</span>`} ${what}</li>`,
  )}
${call.checkpoint === null && html`<li class="waits">no signed checkpoint covers the call yet</li>`}
${
  line === null
    ? html`<li class="waits">the call is not in the statement yet, because the projection is behind</li>`
    : html`<li>the call is in the <a href="${own}/ledger/lines?cursor=${BigInt(line.revision) + 1n}">statement</a></li>`
}
</ol>
</section>`
}

const authorOf = (known: LineReason | undefined): Renderable =>
  known !== undefined &&
  html`${known.reference !== null && html`<span class="minor below">Reference: ${known.reference}</span>`}<span class="minor below">By: ${known.actor}</span>`

const lotsSection = ({ lots, overdraft }: Explanation): Html => html`<section aria-labelledby="lots">
<h2 id="lots">Paid by</h2>
${
  lots.length > 0 &&
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
      { head: 'Charged', kind: 'number', cell: (lot) => decimal(lot.amount) },
    ],
  })
}
${overdraft !== '0' && html`<p class="note">${creditsText(overdraft)} came from the overdraft.</p>`}
</section>`

const evidenceSection = (call: Explanation, mayOpenThem: boolean): Html => html`<details>
<summary>Facts and events</summary>
<p class="note">The price depends only on these facts. The event log contains only a keyed hash of the input.</p>
${table({
  caption: 'Facts of the call',
  rows: Object.entries(call.facts).map(([name, value]) => ({ name, value: String(value) })),
  columns: [
    { head: 'Fact', kind: 'name', cell: ({ name }) => words(name) },
    { head: 'Value', cell: ({ value }) => html`<span class="id whole">${value}</span>` },
  ],
})}
${eventsTable(call, mayOpenThem)}
</details>`

const eventsTable = (
  { organization_id: id, events, checkpoint, as_of, cost: { price_book: book } }: Explanation,
  mayOpenThem: boolean,
): Html => html`${table({
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
    : html`The checkpoint of ${utc(new Date(checkpoint.at))}, over ${count(checkpoint.size)} events, covers them.`
} As of ledger revision ${as_of.revision}.${
  book !== null && html` Price book ${book.version}, digest <span class="id whole">${book.digest}</span>.`
}</p>`
