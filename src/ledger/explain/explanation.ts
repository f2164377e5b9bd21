import { formatCredits, type MicroCredits, parseCredits } from '../../billing/money.ts'
import { type PriceBook, priceBookAt } from '../../billing/price-book.ts'
import { becauseOf } from '../../billing/tariff.ts'
import type { EventLog } from '../../event-log/port.ts'
import type { DecodedEvent } from '../../event-log/stored-event.ts'
import type { Checkpoint } from '../../event-log/tree/checkpoint-stream.ts'
import type { Checkpoints } from '../../event-log/tree/checkpoints.ts'
import type { EventMetadata } from '../../events/envelope.ts'
import { costsOf } from './call-costs.ts'
import { type CallEvidence, mainCall, type RecordedCall } from './call-evidence.ts'

type ExplainedEvent = {
  readonly type: string
  readonly event_id: string
  readonly revision: number
  readonly position: string
  readonly recorded_at: string
  readonly digest: string
}

type ExplanationSources = {
  readonly eventLog: Pick<EventLog, 'read'>
  readonly books: readonly PriceBook[]
  readonly checkpoints: Pick<Checkpoints, 'last'>
}

/** The reasons for a call's cost, and the changes to it. Amounts are canonical decimal strings. Times are ISO 8601 in UTC. */
export type Explanation = Awaited<ReturnType<typeof explain>>

/** Explains a call from its events in the ledger. */
export const explain = async (
  evidence: CallEvidence,
  requestId: string,
  { eventLog, books, checkpoints }: ExplanationSources,
) => {
  const { calls, balanceBefore, corrections, head } = evidence
  const main = mainCall(calls)
  const { call, charge } = main
  const own = [call, ...(charge === null ? [] : [charge])]
  const costs = await costsOf([...own, ...corrections], { requestId }, { eventLog })
  if (costs === null) throw new Error(`the events found for call ${requestId} do not contain the call`)
  const charged = costs.charge?.micro ?? 0n
  const byRevision = new Map(corrections.map((event) => [event.recorded.revision, event]))
  const { metadata, data } = call
  return {
    request_id: requestId,
    organization_id: evidence.organizationId,
    key_id: data.key_id,
    at: metadata.effective_at,
    capability: data.capability,
    outcome: data.outcome,
    code: data.code ?? null,
    facts: data.facts,
    /** The request id of the earlier call with the same Idempotency-Key whose answer this call repeated. */
    repeats: metadata.repeats ?? null,
    trace_id: metadata.trace_id ?? null,
    replays: evidence.replays.map((replay) => ({
      request_id: replay.metadata.request_id ?? null,
      at: replay.metadata.effective_at,
    })),
    cost: {
      charged: formatCredits(charged),
      /** The cost after all corrections. */
      now: formatCredits(costs.now),
      charge_id: charge?.data.charge_id ?? null,
      ...pricesOf(main, evidence, books),
    },
    /** The lots that paid, in draw order. */
    lots: lotsOf(main, evidence),
    /** The part of the amount that no lot could pay. */
    overdraft: formatCredits(charged - drawnBy(main)),
    balance: { before: formatCredits(balanceBefore), after: formatCredits(balanceBefore - charged) },
    adjustments: costs.adjustments.map(({ revision, adjustmentId, kind, amount, at, reason, rerateRun }) => ({
      adjustment_id: adjustmentId,
      kind,
      /** The amount by which the call's cost was reduced, or increased if it is negative. */
      amount: formatCredits(amount),
      at,
      reason,
      rerate_run: rerateRun,
      event: eventOf(byRevision.get(revision)),
    })),
    events: calls.flatMap((one) => [one.call, ...(one.charge === null ? [] : [one.charge])]).map(placeOf),
    /** The signed checkpoint that covers the events, or null if there is none yet. */
    checkpoint: covering(await checkpoints.last(), (charge ?? call).recorded.position),
    /** The last event that was read from the ledger. */
    as_of: {
      revision: head.revision,
      position: head.position.toString(),
      recorded_at: (JSON.parse(head.metadata) as EventMetadata).recorded_at,
    },
  }
}

const covering = (checkpoint: Checkpoint | null, position: bigint) => {
  if (checkpoint === null || BigInt(checkpoint.position) < position) return null
  const { size, root, at } = checkpoint
  return { size, root, at }
}

const pricesOf = (
  { call, charge }: RecordedCall,
  { overrides }: CallEvidence,
  books: readonly PriceBook[],
) => {
  if (charge === null) {
    const { free_by } = call.data
    const inForce = priceBookAt(books, Date.parse(call.metadata.effective_at))
    return {
      /** The rule that made the call free, or null if it was charged. */
      free_by:
        free_by === undefined ? null : { ...free_by, because: becauseOf(free_by.rule, free_by.rule_version) },
      lines: [],
      /** The book that was in force. For a charged call, this is the book in the charge. */
      price_book: inForce === undefined ? null : { version: inForce.version, digest: inForce.digest },
    }
  }
  const { lines, price_book_version, price_book_digest } = charge.data
  const book = books.find(({ version }) => version === price_book_version)
  return {
    free_by: null,
    price_book: { version: price_book_version, digest: price_book_digest },
    lines: lines.map(({ sku, amount, rule, rule_version }) => {
      const priced = book?.rules.get(rule)
      const override = overrides.get(sku)
      return {
        sku,
        amount,
        rule,
        rule_version,
        because: becauseOf(rule, rule_version),
        /** The price in the price book, or null if the book is unknown. */
        book_amount: priced === undefined ? null : formatCredits(priced.amount),
        /** The organization's own price, if it had one. */
        override: override?.type === 'PriceOverrideSet' ? overrideOf(override) : null,
      }
    }),
  }
}

const overrideOf = ({ data, recorded }: Extract<DecodedEvent, { type: 'PriceOverrideSet' }>) => {
  const { override_id, amount, effective_from, reason } = data
  return amount === null ? null : { override_id, amount, effective_from, reason, revision: recorded.revision }
}

const drawnBy = ({ charge }: RecordedCall): MicroCredits =>
  (charge?.data.allocations ?? []).reduce((sum, { amount }) => sum + parseCredits(amount), 0n)

const lotsOf = ({ charge }: RecordedCall, { lots }: CallEvidence) =>
  (charge?.data.allocations ?? []).map(({ grant_id, amount }) => ({
    grant_id,
    amount,
    /** Null if the event that opened the lot is unknown. */
    opened: openingOf(lots.get(grant_id)),
  }))

const openingOf = (event: DecodedEvent | undefined) => {
  if (event === undefined) return null
  const { metadata, recorded } = event
  const at = { at: metadata.effective_at, revision: recorded.revision }
  if (event.type === 'CreditGranted') {
    const { amount, reason, reference, priority, expires_at } = event.data
    return { ...at, by: 'grant' as const, amount, reason, reference, priority, expires_at }
  }
  if (event.type !== 'CreditAdjusted') return null
  const { amount, reason, reference } = event.data
  return { ...at, by: 'adjustment' as const, amount, reason, reference, priority: 0, expires_at: null }
}

const eventOf = (event: DecodedEvent | undefined): ExplainedEvent | null =>
  event === undefined ? null : placeOf(event)

const placeOf = ({ recorded, metadata }: DecodedEvent): ExplainedEvent => ({
  type: recorded.type,
  event_id: recorded.id,
  revision: recorded.revision,
  position: recorded.position.toString(),
  recorded_at: metadata.recorded_at,
  digest: metadata.digest,
})
