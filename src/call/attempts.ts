import type pg from 'pg'
import {
  type IdempotentCallRow,
  type IdempotentCallsAsk,
  idempotentCalls,
} from '../../projections/ledger-lines.ts'
import { createGathering, type Gathering } from '../concurrency/gathering.ts'
import { eventIdOf } from '../event-log/event-id.ts'
import type { EventLog } from '../event-log/port.ts'
import { decodeEvent } from '../event-log/stored-event.ts'
import { ledgerStream } from '../events/streams.ts'
import { settlementKeyOf } from '../ledger/abandoned.ts'
import type { KeyedEvents } from '../ledger/keyed-events.ts'
import type { PaidCall } from './form.ts'
import { sharedStatements } from './unavailable.ts'

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
  // The attempt comes before the key, which may hold anything.
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
      readonly attempt: number
      readonly eventId: string
      readonly revision: number
      /** What the call established then. */
      readonly call: PaidCall
      readonly requestId: string | undefined
      readonly settle: { readonly absentUpTo: number } | null
    }
  /** The key was used with another request. */
  | { readonly kind: 'mismatch' }
  /** The key has come to nothing too often. */
  | { readonly kind: 'in_flight' }

/** Where the claim's row says that the ledger holds a call that was paid for, and under which attempt. */
export type PaidPlace = { readonly attempt: number; readonly revision: number }

export type Attempts = {
  /**
   * `paid` saves the search where it is right, and is believed only as far as the ledger bears it out. Throws what database and
   * event log throw.
   */
  find(request: KeyedRequest, paid: PaidPlace | null, projected?: Projected): Promise<LedgerFinding>
  /**
   * Asks the projection for the first attempt, while the claim is being made. It is only where the search begins: `find` reads
   * the ledger behind it, and that after the claim. Never rejects unheard.
   */
  askProjection(request: KeyedRequest): Projected
}

type Projected = Promise<readonly IdempotentCallRow[]>

/** The ids of one attempt: of its call, and of what settles its charge. */
type AttemptIds = { readonly id: string; readonly settlementId: string }

const idsOf = ({ organizationId, key }: KeyedRequest, attempt: number): AttemptIds => {
  const id = eventIdOf(organizationId, commandKeyOf(key, attempt), 0)
  return { id, settlementId: eventIdOf(organizationId, settlementKeyOf(id), 0) }
}

/** Where the ledger holds events, by id, and up to where it was looked through. */
type Located = { readonly places: ReadonlyMap<string, number>; readonly upTo: number }

type Parts = {
  readonly eventLog: EventLog
  readonly keyedEvents: KeyedEvents
  readonly rows: Gathering<IdempotentCallsAsk, readonly IdempotentCallRow[]>
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
  const parts: Parts = {
    eventLog,
    keyedEvents,
    rows: createGathering({
      ...sharedStatements('look-ups of Idempotency-Keys'),
      run: async (take) => {
        const asks = take()
        const { text, values } = idempotentCalls(asks)
        const { rows } = await pool.query<IdempotentCallRow>(text, [...values])
        const byAsk = asks.map((): IdempotentCallRow[] => [])
        for (const row of rows) byAsk[Number(row.ask)]?.push(row)
        return byAsk
      },
    }),
  }
  return {
    find: (request, paid, projected) => findIn(parts, request, { paid, projected }),
    askProjection: (request) => {
      const asked = parts.rows.ask(askOf(request, [0]))
      asked.catch(() => undefined)
      return asked
    },
  }
}

const findIn = async (
  parts: Parts,
  request: KeyedRequest,
  { paid, projected }: { readonly paid: PaidPlace | null; readonly projected: Projected | undefined },
): Promise<LedgerFinding> => {
  const known = paid === null ? undefined : await findPaid(parts, request, paid)
  if (known !== undefined && known !== 'concluded') return known
  // Nearly every key is new: later attempts are looked for where the ledger holds the first.
  let located = await locate(parts, request, [0], projected)
  for (let attempt = 0; attempt < attemptsMax; attempt++) {
    if (attempt === 1) located = await locate(parts, request, laterAttempts)
    // What the row was right about is there, also where the statement's line of it is lost.
    const proved = known === 'concluded' && attempt === paid?.attempt ? paid.revision : undefined
    const revision = proved ?? located.places.get(idsOf(request, attempt).id)
    if (revision === undefined) return { kind: 'first', attempt, absentUpTo: located.upTo }
    const found = await judge(parts, request, { place: { attempt, revision }, located })
    if (found !== 'concluded') return found
  }
  return { kind: 'in_flight' }
}

const laterAttempts = Array.from({ length: attemptsMax - 1 }, (_, n) => n + 1)

const askOf = (request: KeyedRequest, attempts: readonly number[]): IdempotentCallsAsk => ({
  organizationId: request.organizationId,
  eventIds: attempts.flatMap((attempt) => Object.values(idsOf(request, attempt))),
})

const locate = async (
  { rows, keyedEvents }: Parts,
  request: KeyedRequest,
  attempts: readonly number[],
  projected?: Projected,
): Promise<Located> => {
  const ask = askOf(request, attempts)
  const known = await (projected ?? rows.ask(ask))
  // The projection may be behind; what it does not have yet is in the ledger alone.
  const after = Number(known[0]?.last_revision ?? -1)
  const found = await keyedEvents.find(ask.organizationId, ask.eventIds, after)
  for (const { event_id, revision } of known)
    if (event_id !== null) found.places.set(event_id, Number(revision))
  return found
}

/** The event at a revision, and what was appended right after it; undefined where it has another id. */
const readAt = async ({ eventLog }: Parts, organizationId: string, id: string, revision: number) => {
  const page = await eventLog.read(ledgerStream(organizationId), { from: revision, max: 2 })
  const [event, next] = page.map(decodeEvent)
  return event?.recorded.id === id ? { event, next } : undefined
}

const readSurely = async (parts: Parts, organizationId: string, id: string, revision: number) => {
  const read = await readAt(parts, organizationId, id, revision)
  if (read === undefined)
    throw new Error(`event ${id} is not at revision ${revision} of the ledger of ${organizationId}`)
  return read
}

/** The call where its row says it is. Undefined: it is not there. */
const findPaid = async (
  parts: Parts,
  request: KeyedRequest,
  paid: PaidPlace,
): Promise<LedgerFinding | 'concluded' | undefined> => {
  const { organizationId } = request
  const { id } = idsOf(request, paid.attempt)
  if ((await readAt(parts, organizationId, id, paid.revision)) === undefined) return undefined
  const located = await locate(parts, request, [paid.attempt])
  return judge(parts, request, { place: paid, located })
}

/** What became of an attempt that the ledger holds. `concluded`: it cost nothing, or no longer does. */
const judge = async (
  parts: Parts,
  request: KeyedRequest,
  { place, located }: { place: PaidPlace; located: Located },
): Promise<LedgerFinding | 'concluded'> => {
  const { organizationId } = request
  const { id, settlementId } = idsOf(request, place.attempt)
  const { event, next } = await readSurely(parts, organizationId, id, place.revision)
  if (event.type !== 'KeyUsed') throw new Error(`event ${id} of ${organizationId} is no call`)
  const { facts, request_fingerprint } = event.data
  if (request_fingerprint !== fingerprintText(request)) return { kind: 'mismatch' }
  if (next?.type !== 'CreditCharged' || next.metadata.causation_id !== id) return 'concluded'
  const settled = located.places.get(settlementId)
  const settlement =
    settled === undefined ? null : (await readSurely(parts, organizationId, settlementId, settled)).event
  if (settlement?.type === 'CreditAdjusted') {
    // A refund of a part leaves the rest charged; a reversal gives back all that was left.
    const { kind, amount } = settlement.data
    if (kind === 'reversal' || amount === next.data.amount) return 'concluded'
  }
  return {
    kind: 'charged',
    ...place,
    eventId: id,
    call: { facts, atMs: Date.parse(event.metadata.effective_at) },
    requestId: event.metadata.request_id,
    settle: settlement === null ? { absentUpTo: located.upTo } : null,
  }
}
