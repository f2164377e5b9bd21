import type pg from 'pg'
import type { EventLog } from '../event-log/port.ts'
import type { EpochSealer, Secrets } from '../guard/secrets/secrets.ts'
import type { KeyedEvents } from '../ledger/write/keyed-events.ts'
import type { Call } from './call.ts'
import { type ClaimEnd, type ClaimRow, type Claims, createClaims, type StoredAnswer } from './claims.ts'
import { createKeyLookup, type KeyedRequest, type KeyLookup, type LedgerFinding } from './key-lookup.ts'
import { unavailableWhenAway } from './unavailable.ts'
import { unavailableWhenLate } from './waiting.ts'

/**
 * Idempotency-Key (decision 15): the same key and request again gets the first answer and is charged once, ever.
 *
 * A claim row keeps two requests with one key apart while the first is being answered (`claims.ts`). The ledger, not the row,
 * prevents a second charge: the call's event id derives from the key, and before a call is made again the ledger is
 * asked whether it holds that event (`key-lookup.ts`).
 */

const keyCharactersMax = 255
/** The most time that making or ending a claim may take from the caller's wait. Each takes milliseconds while the database works. */
export const claimWaitMs = 3_000
const letGoWaitMs = 1_000

export type IdempotencyClaim = KeyedRequest

/** `first`: go ahead, then `finish` or `release`. */
type Claim =
  | LedgerFinding
  | { readonly kind: 'replay'; readonly answer: StoredAnswer }
  /** Another request with the key is being answered. */
  | { readonly kind: 'in_flight' }

/** Everything settles within a few seconds. Late work continues without its caller, who gets `Unavailable`. */
export type Idempotency = {
  claim(claim: IdempotencyClaim): Promise<Claim>
  /** The current state of the ledger, for a claim holder who found that another process wrote the call in the meantime. */
  lookAgain(claim: IdempotencyClaim): Promise<LedgerFinding>
  /** Keeps the first answer. Without a body the call is made again, charging nothing. */
  finish(claim: IdempotencyClaim, end: ClaimEnd): Promise<void>
  /** The call left no trace in the ledger: the next request with this key is a first one again. */
  release(claim: IdempotencyClaim): Promise<void>
  /** Lets a claim go and keeps what the key was used for: another request with it is a mismatch. */
  handBack(claim: IdempotencyClaim): Promise<void>
}

/** Whether the caller sent an Idempotency-Key, and so can repeat the call without being charged twice. */
export const isRepeatable = ({ form, request }: Pick<Call, 'form' | 'request'>): boolean =>
  form.method === 'POST' && request.headers['idempotency-key'] !== undefined

/** The header's key: bare, or quoted as a structured-field string. Null when it is not 1 to 255 visible characters. */
export const parseIdempotencyKey = (header: string): string | null => {
  const text = /^"(.*)"$/.exec(header)?.[1] ?? header
  return text.length <= keyCharactersMax && /^[\x21-\x7e]+$/.test(text) ? text : null
}

/**
 * The claim of a request under a key. Two requests under one key are the same if route and exact body are. Organization and key are part
 * of the fingerprint, so equal requests under other keys have different ones. Neither holds a line break.
 */
export const claimOf = (
  secrets: Pick<Secrets, 'requestHmac'>,
  { organizationId, key }: Pick<IdempotencyClaim, 'organizationId' | 'key'>,
  { route, body }: { readonly route: string; readonly body: string },
): IdempotencyClaim => ({
  organizationId,
  key,
  fingerprint: secrets.requestHmac(`request\n${organizationId}\n${key}\n${route}\n${body}`),
})

export const createIdempotency = ({
  pool,
  eventLog,
  keyedEvents,
  secrets,
  sealer,
}: {
  pool: pg.Pool
  eventLog: EventLog
  keyedEvents: KeyedEvents
  secrets: Pick<Secrets, 'requestHmac'>
  sealer: EpochSealer
}): Idempotency => {
  const claims = createClaims({ pool, secrets, sealer })
  const lookup = createKeyLookup({ pool, eventLog, keyedEvents })
  const letGoIsLate = { waitMs: letGoWaitMs, what: 'a claim is kept or let go' }
  return {
    claim: async (claim) => {
      const claiming = claimOne(claims, lookup, claim).catch(unavailableWhenAway)
      try {
        return await unavailableWhenLate(claiming, { waitMs: claimWaitMs, what: 'a claim' })
      } catch (error) {
        // Its caller has gone: a claim that succeeds late is not held.
        claiming
          .then(({ kind }) => (kind === 'first' || kind === 'charged' ? claims.handBack(claim) : undefined))
          .catch(() => undefined)
        throw error
      }
    },
    lookAgain: (claim) =>
      unavailableWhenLate(
        lookUnderClaim(claims, lookup, { claim, letGo: claims.handBack }).catch(unavailableWhenAway),
        { waitMs: claimWaitMs, what: 'a key in the ledger' },
      ),
    finish: (claim, end) => unavailableWhenLate(claims.finish(claim, end), letGoIsLate),
    release: (claim) => unavailableWhenLate(claims.release(claim), letGoIsLate),
    handBack: (claim) => unavailableWhenLate(claims.handBack(claim), letGoIsLate),
  }
}

const claimOne = async (claims: Claims, lookup: KeyLookup, claim: IdempotencyClaim): Promise<Claim> => {
  const projected = lookup.askProjection(claim)
  if (await claims.insert(claim))
    return lookUnderClaim(claims, lookup, { claim, letGo: claims.release, projected })
  const row = await claims.read(claim)
  // Released between the two statements: the caller may try again.
  if (row === undefined) return { kind: 'in_flight' }
  if (!row.same)
    return !row.answered && row.stale ? rightClaim(claims, lookup, { claim, row }) : { kind: 'mismatch' }
  if (row.answered) return answeredBefore(claims, lookup, { claim, row })
  if (!row.stale || !(await claims.takeOver(claim, row))) return { kind: 'in_flight' }
  return lookUnderClaim(claims, lookup, { claim, row, letGo: claims.handBack })
}

/** For a claim holder: the claim is released if the ledger cannot be read. */
const lookUnderClaim = async (
  claims: Claims,
  lookup: KeyLookup,
  {
    claim,
    row,
    letGo,
    projected,
  }: {
    claim: IdempotencyClaim
    row?: ClaimRow
    letGo: Claims['release'] | Claims['handBack']
    projected?: ReturnType<KeyLookup['askProjection']>
  },
): Promise<LedgerFinding> => {
  try {
    const found = await lookup.find(claim, row?.paidRevision ?? null, projected)
    // The claim belongs to a different request.
    if (found.kind === 'mismatch') await claims.release(claim)
    return found
  } catch (error) {
    await letGo(claim).catch(() => undefined)
    throw error
  }
}

/** The kept answer. Without one, the ledger still knows which call was paid for. */
const answeredBefore = async (
  claims: Claims,
  lookup: KeyLookup,
  { claim, row }: { claim: IdempotencyClaim; row: ClaimRow },
): Promise<Claim> => {
  if (row.answer !== null) return { kind: 'replay', answer: row.answer }
  const found = await lookup.find(claim, row.paidRevision)
  // The repeated call counts as a first one: one at a time.
  return found.kind !== 'first' || (await claims.reopen(claim, row)) ? found : { kind: 'in_flight' }
}

/**
 * A process claimed the key for another request and died, perhaps before it learned that the key is not its own: the ledger
 * knows the request of every key that was paid for.
 */
const rightClaim = async (
  claims: Claims,
  lookup: KeyLookup,
  { claim, row }: { claim: IdempotencyClaim; row: ClaimRow },
): Promise<Claim> => {
  const found = await lookup.find(claim, null)
  if (found.kind !== 'charged') return { kind: 'mismatch' }
  return (await claims.takeOverFor(claim, row)) ? found : { kind: 'in_flight' }
}
