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
 * Idempotency-Key (decision 15): a repeated request with the same key gets the first answer and is never charged again.
 *
 * While a request is being answered, its claim row (`claims.ts`) prevents a second request with the same key from being processed.
 * Only the ledger prevents a second charge: a call's event id derives from the key, and `key-lookup.ts` searches for this event
 * before the call is made again.
 */

const keyCharactersMax = 255
/** The longest wait of a call for its claim. A claim takes milliseconds, but several seconds on a host without spare processor time. */
export const claimWaitMs = 5_000
const letGoWaitMs = 1_000

export type IdempotencyClaim = KeyedRequest

/** `first`: make the call, then `finish` or `release` the claim. */
type Claim =
  | LedgerFinding
  | { readonly kind: 'replay'; readonly answer: StoredAnswer }
  /** Another request with the key is being answered. */
  | { readonly kind: 'in_flight' }

/** Each promise settles within a few seconds. Late work continues, but its caller gets `Unavailable`. */
export type Idempotency = {
  claim(claim: IdempotencyClaim): Promise<Claim>
  /** Reads the ledger again, after another process recorded the call while this one held the claim. */
  lookAgain(claim: IdempotencyClaim): Promise<LedgerFinding>
  /** Stores the first answer. Without a body, a repeated request makes the call again for free. */
  finish(claim: IdempotencyClaim, end: ClaimEnd): Promise<void>
  /** Ends the claim of a call that is not in the ledger, so that the next request with this key counts as the first. */
  release(claim: IdempotencyClaim): Promise<void>
  /** Ends a claim but keeps its fingerprint, so that another request with this key is a mismatch. */
  handBack(claim: IdempotencyClaim): Promise<void>
}

/** Whether the caller sent an Idempotency-Key and can therefore repeat the call without being charged twice. */
export const isRepeatable = ({ form, request }: Pick<Call, 'form' | 'request'>): boolean =>
  form.method === 'POST' && request.headers['idempotency-key'] !== undefined

/** Returns the key in the header, bare or quoted as a structured-field string; null if it is not 1 to 255 visible characters. */
export const parseIdempotencyKey = (header: string): string | null => {
  const text = /^"(.*)"$/.exec(header)?.[1] ?? header
  return text.length <= keyCharactersMax && /^[\x21-\x7e]+$/.test(text) ? text : null
}

/**
 * The claim of a request. Two requests with one key are the same if their routes and exact bodies are equal. The fingerprint
 * includes organization and key, so equal requests with different keys have different fingerprints. A line break separates
 * organization and key, because neither contains a line break.
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
  const letGoIsLate = { waitMs: letGoWaitMs, what: 'ending a claim' }
  return {
    claim: async (claim) => {
      const claiming = claimOne(claims, lookup, claim).catch(unavailableWhenAway)
      try {
        return await unavailableWhenLate(claiming, { waitMs: claimWaitMs, what: 'a claim' })
      } catch (error) {
        // The call has already failed, so a claim that succeeds late is returned.
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
  // The row was deleted between the two statements. The caller can try again.
  if (row === undefined) return { kind: 'in_flight' }
  if (!row.same)
    return !row.answered && row.stale ? rightClaim(claims, lookup, { claim, row }) : { kind: 'mismatch' }
  if (row.answered) return answeredBefore(claims, lookup, { claim, row })
  if (!row.stale || !(await claims.takeOver(claim, row))) return { kind: 'in_flight' }
  return lookUnderClaim(claims, lookup, { claim, row, letGo: claims.handBack })
}

/** Searches for the call while holding its claim. Ends the claim if the ledger cannot be read. */
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
    // The key belongs to a different request.
    if (found.kind === 'mismatch') await claims.release(claim)
    return found
  } catch (error) {
    await letGo(claim).catch(() => undefined)
    throw error
  }
}

/** Returns the stored answer or, without one, the charged call in the ledger. */
const answeredBefore = async (
  claims: Claims,
  lookup: KeyLookup,
  { claim, row }: { claim: IdempotencyClaim; row: ClaimRow },
): Promise<Claim> => {
  if (row.answer !== null) return { kind: 'replay', answer: row.answer }
  const found = await lookup.find(claim, row.paidRevision)
  // The call is made again, so it must hold the claim.
  return found.kind !== 'first' || (await claims.reopen(claim, row)) ? found : { kind: 'in_flight' }
}

/**
 * A process may have claimed the key for another request and died before it read the ledger. If the ledger has a charged call of
 * this request under the key, the key belongs to this request.
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
