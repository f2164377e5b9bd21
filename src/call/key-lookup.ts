import type pg from 'pg'
import {
  type IdempotentCallRow,
  type IdempotentCallsAsk,
  idempotentCalls,
} from '../../projections/ledger-lines.ts'
import { createGathering, type Gathering } from '../concurrency/gathering.ts'
import { preparedRowsOf } from '../concurrency/query.ts'
import type { EventLog } from '../event-log/port.ts'
import { decodeEvent, eventIdOf } from '../event-log/stored-event.ts'
import { ledgerStream } from '../events/streams.ts'
import type { KeyedEvents } from '../ledger/write/keyed-events.ts'
import type { PaidCall } from './form.ts'
import { sharedStatements } from './unavailable.ts'

/**
 * Finds the call of an Idempotency-Key in a ledger. The id of a charged call's event derives from the key; a free call is recorded
 * without its key. A projection can locate the event, but the content is read from the ledger.
 */

/**
 * Returns the name from which the ledger derives event ids. The prefix separates partners' keys, which can be any string, from other names.
 */
export const commandKeyOf = (idempotencyKey: string): string => `idempotency/${idempotencyKey}`

export type KeyedRequest = {
  readonly organizationId: string
  readonly key: string
  readonly fingerprint: Buffer
}

/** Returns the fingerprint as it is stored in events. */
export const fingerprintText = ({ fingerprint }: KeyedRequest): string => fingerprint.toString('base64url')

export type LedgerFinding =
  /** The ledger has no call under the key up to this revision. */
  | { readonly kind: 'first'; readonly absentUpTo: number }
  /** The call is charged, and must be answered again without a charge. */
  | {
      readonly kind: 'charged'
      readonly revision: number
      readonly call: PaidCall
      readonly requestId: string | undefined
    }
  /** The key was used with another request. */
  | { readonly kind: 'mismatch' }

export type KeyLookup = {
  /**
   * `paidRevision` is from the claim's row. If the ledger has the call at that revision, no search is needed. Throws the errors of the
   * database and the event log.
   */
  find(request: KeyedRequest, paidRevision: number | null, projected?: Projected): Promise<LedgerFinding>
  /** Starts the look-up in the projection while the claim is being made, so that `find` can read less of the ledger. */
  askProjection(request: KeyedRequest): Projected
}

type Projected = Promise<readonly IdempotentCallRow[]>

type Parts = {
  readonly eventLog: EventLog
  readonly keyedEvents: KeyedEvents
  readonly rows: Gathering<IdempotentCallsAsk, readonly IdempotentCallRow[]>
}

export const createKeyLookup = ({
  pool,
  eventLog,
  keyedEvents,
}: {
  pool: pg.Pool
  eventLog: EventLog
  keyedEvents: KeyedEvents
}): KeyLookup => {
  const rows = createGathering<IdempotentCallsAsk, readonly IdempotentCallRow[]>({
    ...sharedStatements('look-ups of Idempotency-Keys'),
    run: async (take) => {
      const asks = take()
      const found = await preparedRowsOf(pool, 'key-look-ups', idempotentCalls(asks))
      const byAsk = asks.map((): IdempotentCallRow[] => [])
      for (const row of found) byAsk[Number(row.ask)]?.push(row)
      return byAsk
    },
  })
  const parts: Parts = { eventLog, keyedEvents, rows }
  return {
    find: async (request, paidRevision, projected) => {
      const known = paidRevision === null ? null : await callAt(parts, request, paidRevision)
      return known ?? search(parts, request, projected ?? rows.ask(askOf(request)))
    },
    askProjection: (request) => {
      const asked = rows.ask(askOf(request))
      asked.catch(() => undefined)
      return asked
    },
  }
}

const askOf = ({ organizationId, key }: KeyedRequest): IdempotentCallsAsk => ({
  organizationId,
  eventId: eventIdOf(organizationId, commandKeyOf(key), 0),
})

const search = async (parts: Parts, request: KeyedRequest, projected: Projected): Promise<LedgerFinding> => {
  const { organizationId, eventId } = askOf(request)
  const [row] = await projected
  // The projection can lag behind, so newer events are read from the ledger.
  const { places, upTo } = await parts.keyedEvents.find(
    organizationId,
    [eventId],
    Number(row?.last_revision ?? -1),
  )
  const revision = row?.revision == null ? places.get(eventId) : Number(row.revision)
  if (revision === undefined) return { kind: 'first', absentUpTo: upTo }
  const found = await callAt(parts, request, revision)
  if (found === null)
    throw new Error(`event ${eventId} is not at revision ${revision} of the ledger of ${organizationId}`)
  return found
}

/** Returns null if the event at that revision is not the call under the key. */
const callAt = async (
  { eventLog }: Parts,
  request: KeyedRequest,
  revision: number,
): Promise<LedgerFinding | null> => {
  const { organizationId, eventId } = askOf(request)
  const [recorded] = await eventLog.read(ledgerStream(organizationId), { from: revision, max: 1 })
  if (recorded === undefined || recorded.id !== eventId) return null
  const event = decodeEvent(recorded)
  if (event.type !== 'KeyUsed') throw new Error(`event ${eventId} of ${organizationId} is not a call`)
  const { facts, request_fingerprint } = event.data
  if (request_fingerprint !== fingerprintText(request)) return { kind: 'mismatch' }
  const call = { facts, atMs: Date.parse(event.metadata.effective_at) }
  return { kind: 'charged', revision, call, requestId: event.metadata.request_id }
}
