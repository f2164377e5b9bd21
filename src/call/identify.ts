import { LedgerOutcomeUnknown } from '../ledger/command.ts'
import { written } from './answer.ts'
import type { AdmittedCall } from './call.ts'
import { figuresFor } from './caller-figures.ts'
import type { StoredAnswer } from './claims.ts'
import type { CallDependencies } from './dependencies.ts'
import { idempotencyInFlight, idempotencyMismatch, wrongParameter } from './errors.ts'
import {
  claimOf,
  claimWaitMs,
  type IdempotencyClaim,
  isRepeatable,
  parseIdempotencyKey,
} from './idempotency.ts'
import { byRequest, type Identity } from './identity.ts'
import type { LedgerFinding } from './key-lookup.ts'
import { record, refuse } from './recording.ts'
import type { CallResult } from './result.ts'
import { waitLeftMs } from './waiting.ts'

type Ended = { readonly kind: 'ended'; readonly result: CallResult }

const ended = async (result: Promise<CallResult>): Promise<Ended> => ({ kind: 'ended', result: await result })

/** Determines whether a call is new, has an Idempotency-Key, or was charged before (decision 15). `keep` or `letGo` ends its claim. */
export const identify = async (
  dependencies: CallDependencies,
  call: AdmittedCall,
): Promise<Identity | Ended> => {
  if (!isRepeatable(call)) return byRequest
  const { form, request } = call
  const header = request.headers['idempotency-key']
  const key = typeof header === 'string' ? parseIdempotencyKey(header) : null
  if (key === null) {
    const expected = 'one key of 1 to 255 visible ASCII characters'
    return ended(refuse(dependencies, call, wrongParameter('Idempotency-Key', expected)))
  }
  const { organizationId } = call.key
  const asked = { route: `${form.method} ${form.path}`, body: String(request.body) }
  const claim = claimOf(dependencies.secrets, { organizationId, key }, asked)
  // The account is read first, so that the look-up of the key does not read the same events again.
  await figuresFor(dependencies, call, { keptMs: claimWaitMs })
  const claimed = await dependencies.idempotency.claim(claim)
  return claimed.kind === 'replay'
    ? ended(replay(dependencies, call, claimed.answer))
    : identityOf(dependencies, call, claim, claimed)
}

/**
 * The least remaining time in which a call is made again. With less time, the caller is asked to repeat the request, which then
 * finds the charge immediately.
 */
const gatherAgainMs = 4_000

/** Identifies a call again, from the ledger, after another request with the same key recorded it first. */
export const identifyAgain = async (
  dependencies: CallDependencies,
  call: AdmittedCall,
  claim: IdempotencyClaim,
): Promise<Identity | Ended> => {
  const found = await dependencies.idempotency.lookAgain(claim)
  if (found.kind === 'first') throw new Error('the ledger held a call under the key, and no longer does')
  if (found.kind === 'charged' && waitLeftMs(call) < gatherAgainMs)
    throw new LedgerOutcomeUnknown('there is no time to make the call again')
  return identityOf(dependencies, call, claim, found)
}

const identityOf = async (
  dependencies: CallDependencies,
  call: AdmittedCall,
  claim: IdempotencyClaim,
  found: LedgerFinding | { readonly kind: 'in_flight' },
): Promise<Identity | Ended> => {
  switch (found.kind) {
    case 'in_flight':
      return ended(refuse(dependencies, call, idempotencyInFlight()))
    case 'mismatch':
      return ended(refuse(dependencies, call, idempotencyMismatch()))
    case 'first':
      return { ...found, kind: 'keyed', claim }
    case 'charged': {
      const { revision, call: paid, requestId: repeats } = found
      return { kind: 'charged', claim, revision, paid, repeats }
    }
  }
}

/** A replay is a separate call, which is free and recorded as a replay. */
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

/** Answers and errors both contain their request id. */
const requestIdIn = (body: string): string | undefined => {
  const { request_id } = JSON.parse(body) as { readonly request_id?: unknown }
  return typeof request_id === 'string' ? request_id : undefined
}

/**
 * Ends the claim of a call that was made. A first answer is stored for replays, unless it contains personal data. A call that failed,
 * or that the balance could not pay, can be made again immediately.
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
    if (identity.kind === 'charged') {
      // The repeated call was refused or failed, so the next request with the key can try again.
      if (!delivered) await idempotency.handBack(claim)
      else await idempotency.finish(claim, { status, body: kept, paidRevision: identity.revision })
    } else if (result.kind === 'failed' || (!delivered && result.refusal.code === 'CREDIT_001'))
      await idempotency.release(claim)
    else {
      const paidRevision = result.kind === 'answered' ? result.paidRevision : null
      await idempotency.finish(claim, { status, body: kept, paidRevision })
    }
  } catch (error) {
    logger.error({ err: error, requestId }, 'an answer could not be kept for replays')
    if (identity.kind !== 'keyed') await letGo({ idempotency }, identity)
  }
}

/** Ends the claim of a failed call. The next request with the key reads the ledger again. */
export const letGo = async (
  { idempotency }: Pick<CallDependencies, 'idempotency'>,
  identity: Identity,
): Promise<void> => {
  if (identity.kind !== 'request') await idempotency.handBack(identity.claim).catch(() => undefined)
}
