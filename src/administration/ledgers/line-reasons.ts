import { chargedCallsAt, chargedCallsNear } from '../../../projections/statement-lines.ts'
import { rowsOf } from '../../concurrency/query.ts'
import { EventsUnreadable, Unavailable } from '../../event-log/port.ts'
import { pagesOf } from '../../event-log/read-stream.ts'
import { type DecodedEvent, decodeEvent, EventDataError, eventIdOf } from '../../event-log/stored-event.ts'
import type { CreditAdjusted } from '../../events/credits.ts'
import { ledgerStream } from '../../events/streams.ts'
import type { Foundation } from '../../foundation/foundation.ts'
import type { Operator } from '../operator.ts'

/**
 * The reasons of grants and corrections on a page of statement lines. Operators write reasons as free text, so reasons are only in the
 * event log, and the events of the lines shown are read from there.
 */

export type LineReason = {
  /** Null for a grant. */
  readonly correction: CreditAdjusted['kind'] | null
  readonly reason: string
  /** The operator's own reference, such as a ticket number. */
  readonly reference: string | null
  readonly actor: string
  readonly rerate_run: string | null
  /** The request id of the corrected call; null if there is none, or if it is not found. */
  readonly corrected_call: string | null
}

type Line = { readonly revision: string; readonly kind: string }
type Sources = Pick<Foundation, 'eventLog' | 'pool'>
type Range = { readonly from: number; to: number }

/** Events between two lines that are read with them, because that is cheaper than another read. */
const readGapMax = 16
/** The charge of an automatic reversal is searched in this many revisions before it. */
const chargeWithin = 2_000
const callsMax = 20_000

/** Shown with lines when `lineReasons` returns null. */
export const reasonsMissing =
  'the reasons of grants and corrections are missing, because the event log cannot be read'

/**
 * The reasons of the lines that have one, by revision, as `role` sees them. Null if the event log does not answer, or if one of the events
 * is unreadable. The caller must limit the number of lines.
 */
export const lineReasons = async (
  sources: Sources,
  { organizationId, role }: { readonly organizationId: string; readonly role: Operator['role'] },
  lines: readonly Line[],
): Promise<ReadonlyMap<string, LineReason> | null> => {
  const wanted = lines.filter(({ kind }) => kind === 'grant' || kind === 'adjustment')
  const events = await eventsAt(sources, organizationId, wanted).catch(nothingReadable)
  if (events === null) return null
  const calls = await correctedCalls(sources, organizationId, events)
  return new Map(
    events.map((event) => {
      const reason = reasonOf(event, calls)
      return [
        String(event.recorded.revision),
        role === 'partner' ? { ...reason, actor: actorSeenByPartner(reason) } : reason,
      ]
    }),
  )
}

const nothingReadable = (error: unknown): null => {
  for (const known of [Unavailable, EventsUnreadable, EventDataError]) if (error instanceof known) return null
  throw error
}

/** Partners do not see the names of operators. Only operators and the service itself grant or correct credits. */
const actorSeenByPartner = ({ actor }: LineReason): string => (actor === 'system' ? actor : 'the operator')

const reasonOf = (
  { type, data, metadata: { actor } }: MovementEvent,
  calls: ReadonlyMap<string, string>,
): LineReason => {
  const given = { reason: data.reason, reference: data.reference, actor }
  if (type === 'CreditGranted') return { ...given, correction: null, rerate_run: null, corrected_call: null }
  const { kind: correction, rerate_run, adjusts } = data
  return { ...given, correction, rerate_run, corrected_call: calls.get(adjusts ?? '') ?? null }
}

type MovementEvent = Extract<DecodedEvent, { type: 'CreditGranted' | 'CreditAdjusted' }>

const eventsAt = async (
  { eventLog }: Sources,
  organizationId: string,
  lines: readonly Line[],
): Promise<MovementEvent[]> => {
  const revisions = new Set(lines.map(({ revision }) => Number(revision)))
  const events: MovementEvent[] = []
  for (const { from, to } of rangesOf(revisions, readGapMax))
    for await (const page of pagesOf(eventLog, ledgerStream(organizationId), { from, upTo: to }))
      for (const recorded of page) {
        if (!revisions.has(recorded.revision)) continue
        const event = decodeEvent(recorded)
        if (event.type === 'CreditGranted' || event.type === 'CreditAdjusted') events.push(event)
      }
  return events
}

/** Ranges that contain these revisions, with gaps of at most `gapMax`. */
const rangesOf = (revisions: Iterable<number>, gapMax: number): Range[] => {
  const ranges: Range[] = []
  for (const revision of [...revisions].toSorted((one, other) => one - other)) {
    const last = ranges.at(-1)
    if (last !== undefined && revision - last.to <= gapMax) last.to = revision
    else ranges.push({ from: revision, to: revision })
  }
  return ranges
}

/** The request ids of corrected calls, by charge. Rows only suggest calls: the id of the charge shows which call it is. */
const correctedCalls = async (
  { pool }: Sources,
  organizationId: string,
  events: readonly MovementEvent[],
): Promise<ReadonlyMap<string, string>> => {
  const corrections = events.flatMap(({ type, data, recorded: { revision } }) =>
    type === 'CreditAdjusted' && data.adjusts !== null ? [{ ...data, revision }] : [],
  )
  const instants = corrections.flatMap(({ charged_at }) => charged_at ?? [])
  const untimed = corrections.filter(({ charged_at }) => charged_at === null)
  const near = rangesOf(
    untimed.map(({ revision }) => revision),
    chargeWithin,
  ).map(({ from, to }) => ({ from: from - chargeWithin, to }))
  const queries = [
    ...(instants.length === 0 ? [] : [chargedCallsAt(organizationId, instants, callsMax)]),
    ...(near.length === 0 ? [] : [chargedCallsNear(organizationId, near, callsMax)]),
  ]
  const calls = new Map<string, string>()
  for (const query of queries)
    for (const { request_id, charge_id } of await rowsOf(pool, query))
      calls.set(charge_id ?? eventIdOf(organizationId, request_id, 1), request_id)
  return calls
}
