import type pg from 'pg'
import { type IdempotentCallRow, idempotentCalls } from '../../projections/ledger-lines.ts'
import { eventIdOf } from '../event-log/event-id.ts'
import type { EventLog } from '../event-log/port.ts'
import { decodeEvent } from '../event-log/stored-event.ts'
import { ledgerStream } from '../events/streams.ts'
import { settlementKeyOf } from '../ledger/abandoned.ts'
import type { KeyedEvents } from '../ledger/keyed-events.ts'
import type { PaidCall } from './form.ts'

/**
 * What a ledger holds under an Idempotency-Key. A call is made under ids that derive from the key; one that cost nothing, or
 * whose charge was given back, may be made again as another attempt, with ids of its own. Where an event is may be told by a
 * projection; what it says is read from the ledger itself.
 */

/** How often a call may come to nothing under one key before the caller has to send another. */
const attemptsMax = 16

/**
 * What the ledger derives event ids from. In a namespace of its own: a partner may send anything as a key, also a
 * request id or the name of a command of ours.
 */
export const commandKeyOf = (idempotencyKey: string, attempt: number): string =>
  // The attempt stands before the key, which may hold anything.
  attempt === 0 ? `idempotency/${idempotencyKey}` : `idempotency-${attempt}/${idempotencyKey}`

/** Which request came under which key. */
export type KeyedRequest = {
  readonly organizationId: string
  readonly key: string
  readonly fingerprint: Buffer
}

/** As events hold it. */
export const fingerprintText = ({ fingerprint }: KeyedRequest): string => fingerprint.toString('base64url')

export type LedgerFinding =
  /** Which attempt comes next, and up to which revision the ledger is known not to hold it. */
  | { readonly kind: 'first'; readonly attempt: number; readonly absentUpTo: number }
  /**
   * Its charge stands: answer again, charge nothing. `settle`: whoever refused the call may be giving the charge back, and
   * the ledger is known not to hold that up to here; null where its answer was delivered once already.
   */
  | {
      readonly kind: 'charged'
      readonly eventId: string
      readonly revision: number
      /** What the call established then. */
      readonly call: PaidCall
      readonly settle: { readonly absentUpTo: number } | null
    }
  /** The key was used with another request. */
  | { readonly kind: 'mismatch' }
  /** The key has come to nothing too often. */
  | { readonly kind: 'in_flight' }

type Attempts = {
  /**
   * `paidRevision`: where the claim says that something was paid. The ledger has the last word. Throws what database and event log
   * throw.
   */
  find(request: KeyedRequest, paidRevision: number | null): Promise<LedgerFinding>
}

export const createAttempts = ({
  pool,
  eventLog,
  keyedEvents,
}: {
  pool: pg.Pool
  eventLog: EventLog
  keyedEvents: KeyedEvents
}): Attempts => {
  /** Which of the events the ledger holds, by revision, and up to where it was looked through. */
  const locate = async (
    organizationId: string,
    ids: readonly string[],
    paidRevision: number | null,
  ): Promise<{ places: Map<string, number>; upTo: number }> => {
    const projected = idempotentCalls(organizationId, ids)
    const { rows } = await pool.query<IdempotentCallRow>(projected.text, [...projected.values])
    // The projection may be behind; what it does not have yet is in the ledger alone.
    const found = await keyedEvents.find(organizationId, ids, Number(rows[0]?.last_revision ?? -1))
    for (const { event_id, revision } of rows)
      if (event_id !== null) found.places.set(event_id, Number(revision))
    if (paidRevision === null || [...found.places.values()].includes(paidRevision)) return found
    const [paid] = await eventLog.read(ledgerStream(organizationId), { from: paidRevision, max: 1 })
    if (paid !== undefined && ids.includes(paid.id)) found.places.set(paid.id, paidRevision)
    return found
  }

  /** The event with an id at its place, and what was appended right after it. */
  const readAt = async (organizationId: string, id: string, revision: number) => {
    const page = await eventLog.read(ledgerStream(organizationId), { from: revision, max: 2 })
    const [event, next] = page.map(decodeEvent)
    if (event?.recorded.id !== id)
      throw new Error(`event ${id} is not at revision ${revision} of the ledger of ${organizationId}`)
    return { event, next }
  }

  return {
    find: async (request, paidRevision) => {
      const { organizationId, key } = request
      const attempts = Array.from({ length: attemptsMax }, (_, n) => {
        const id = eventIdOf(organizationId, commandKeyOf(key, n), 0)
        return { id, settlementId: eventIdOf(organizationId, settlementKeyOf(id), 0) }
      })
      const ids = attempts.flatMap(({ id, settlementId }) => [id, settlementId])
      const { places, upTo } = await locate(organizationId, ids, paidRevision)
      for (const [attempt, { id, settlementId }] of attempts.entries()) {
        const place = places.get(id)
        if (place === undefined) return { kind: 'first', attempt, absentUpTo: upTo }
        const { event, next } = await readAt(organizationId, id, place)
        if (event.type !== 'KeyUsed') throw new Error(`event ${id} of ${organizationId} is no call`)
        const { facts, request_fingerprint } = event.data
        if (request_fingerprint !== fingerprintText(request)) return { kind: 'mismatch' }
        // It cost nothing, or no longer does: made again it may.
        if (next?.type !== 'CreditCharged' || next.metadata.causation_id !== id) continue
        const settled = places.get(settlementId)
        const settlement =
          settled === undefined ? null : (await readAt(organizationId, settlementId, settled)).event
        if (settlement?.type === 'CreditAdjusted') continue
        return {
          kind: 'charged',
          eventId: id,
          revision: place,
          call: { facts, atMs: Date.parse(event.metadata.effective_at) },
          settle: settlement === null ? { absentUpTo: upTo } : null,
        }
      }
      return { kind: 'in_flight' }
    },
  }
}
