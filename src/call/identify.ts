import { LedgerUnavailable } from '../ledger/commit.ts'
import { written } from './answer.ts'
import type { LedgerFinding } from './attempts.ts'
import type { AdmittedCall } from './call.ts'
import type { StoredAnswer } from './claims.ts'
import type { CallDependencies } from './dependencies.ts'
import { idempotencyInFlight, idempotencyMismatch, wrongParameter } from './errors.ts'
import { figuresFor } from './figures.ts'
import { claimOf, claimWaitMs, type IdempotencyClaim, parseIdempotencyKey } from './idempotency.ts'
import { byRequest, type Identity } from './identity.ts'
import { record, refuse } from './recording.ts'
import type { CallResult } from './result.ts'
import { waitLeftMs } from './waiting.ts'

/** Which call this is: one of its own, one under an Idempotency-Key, or one that was charged before (decision 15). */

/** The call ends before it is made. */
type Ended = { readonly kind: 'ended'; readonly result: CallResult }

const ended = async (result: Promise<CallResult>): Promise<Ended> => ({ kind: 'ended', result: await result })

/** With an Idempotency-Key it holds the claim on that key: `keep` or `letGo` ends it. */
export const identify = async (
  dependencies: CallDependencies,
  call: AdmittedCall,
): Promise<Identity | Ended> => {
  const { form, request } = call
  const header = request.headers['idempotency-key']
  if (header === undefined || form.method !== 'POST') return byRequest
  const key = typeof header === 'string' ? parseIdempotencyKey(header) : null
  if (key === null) {
    const expected = 'one key of 1 to 255 visible ASCII characters'
    return ended(refuse(dependencies, call, wrongParameter('Idempotency-Key', expected)))
  }
  const { organizationId } = call.key
  const asked = { route: `${form.method} ${form.path}`, body: String(request.body) }
  const claim = claimOf(dependencies.secrets, { organizationId, key }, asked)
  // Needed in any case, and what is read for it is not read again to look for the key.
  await figuresFor(dependencies, call, { keptMs: claimWaitMs })
  const claimed = await dependencies.idempotency.claim(claim)
  return claimed.kind === 'replay'
    ? ended(replay(dependencies, call, claimed.answer))
    : identityOf(dependencies, call, claim, claimed)
}

/** With less left the caller is told to ask again: then its charge is found at once. */
const gatherAgainMs = 4_000

/**
 * Another process wrote the call while this one made it, and may have refused its caller: then it gives the charge back unless
 * the charge is settled first. What the ledger says now decides, as if the request came only now.
 */
export const identifyAgain = async (
  dependencies: CallDependencies,
  call: AdmittedCall,
  claim: IdempotencyClaim,
): Promise<Identity | Ended> => {
  const found = await dependencies.idempotency.lookAgain(claim)
  if (found.kind !== 'charged' && found.kind !== 'mismatch')
    throw new LedgerUnavailable('the charge was given back meanwhile')
  if (found.kind === 'charged' && waitLeftMs(call) < gatherAgainMs)
    throw new LedgerUnavailable('there is no time to make the call again')
  return identityOf(dependencies, call, claim, found)
}

const identityOf = async (
  dependencies: CallDependencies,
  call: AdmittedCall,
  claim: IdempotencyClaim,
  found: LedgerFinding,
): Promise<Identity | Ended> => {
  switch (found.kind) {
    case 'in_flight':
      return ended(refuse(dependencies, call, idempotencyInFlight()))
    case 'mismatch':
      return ended(refuse(dependencies, call, idempotencyMismatch()))
    case 'first':
      return { ...found, kind: 'keyed', claim }
    case 'charged': {
      const { eventId, attempt, revision, call: paid, requestId: repeats, settle } = found
      const before = { claim, eventId, place: { attempt, revision }, paid, repeats }
      return settle === null ? { kind: 'redelivers', ...before } : { kind: 'settles', ...before, ...settle }
    }
  }
}

/** The replay is a call of its own: free, and recorded as what it is. */
const replay = async (
  dependencies: CallDependencies,
  call: AdmittedCall,
  { status, body }: StoredAnswer,
): Promise<CallResult> => {
  const outcome = status < 400 ? 'answered' : 'refused'
  const first: Identity = { kind: 'request', repeats: requestIdIn(body) }
  const { balance } = await record(dependencies, call, first, { outcome, facts: { kind: 'replay' } })
  return { kind: 'replayed', status, body, credits: { charged: 0n, remaining: balance } }
}

/** Answers and errors alike name their request. */
const requestIdIn = (body: string): string | undefined => {
  const { request_id } = JSON.parse(body) as { readonly request_id?: unknown }
  return typeof request_id === 'string' ? request_id : undefined
}

/**
 * Ends the claim of a call that was made. A first answer is kept for replays; of a person's data only that there was one. A call
 * that the balance could not pay, or that failed, may be made again at once.
 */
export const keep = async (
  { idempotency, logger }: CallDependencies,
  { form, requestId }: AdmittedCall,
  identity: Identity,
  result: CallResult,
): Promise<void> => {
  if (identity.kind === 'request') return
  const { claim } = identity
  const { status, body } = written(result, requestId)
  const kept = (form.personal === true && status === 200) || typeof body !== 'string' ? null : body
  const delivered = result.kind === 'answered' || result.kind === 'replayed'
  try {
    if (identity.kind !== 'keyed') {
      // A refusal or a failure this time leaves the key to be asked again.
      if (!delivered) await idempotency.handBack(claim)
      else await idempotency.finish(claim, { status, body: kept, paid: identity.place })
    } else if (result.kind === 'failed' || (!delivered && result.refusal.code === 'CREDIT_001'))
      await idempotency.release(claim)
    else {
      const revision = result.kind === 'answered' ? result.paidRevision : null
      const paid = revision === null ? null : { attempt: identity.attempt, revision }
      await idempotency.finish(claim, { status, body: kept, paid })
    }
  } catch (error) {
    logger.error({ err: error, requestId }, 'an answer could not be kept for replays')
    if (identity.kind !== 'keyed') await letGo({ idempotency }, identity)
  }
}

/** Lets go of the claim of a call that broke: the ledger is asked when the key comes back, with the same request. */
export const letGo = async (
  { idempotency }: Pick<CallDependencies, 'idempotency'>,
  identity: Identity,
): Promise<void> => {
  if (identity.kind !== 'request') await idempotency.handBack(identity.claim).catch(() => undefined)
}
