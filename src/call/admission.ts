import type { FastifyRequest } from 'fastify'
import { isPriced } from '../billing/tariff.ts'
import { type AuthenticationFailure, authenticate } from '../guard/authenticate.ts'
import { callerAddress } from '../guard/caller-address.ts'
import { fullDiskRetrySeconds } from '../guard/disk-space.ts'
import { type DirectoryKey, mayCallFrom } from '../guard/key-directory.ts'
import type { RateVerdict } from '../guard/limits/rate-limit.ts'
import { parseApiKey } from '../keys/api-key.ts'
import { parseTestKey } from '../keys/test-key.ts'
import type { AdmittedCall, Call } from './call.ts'
import { balanceOrLastKnown } from './caller-figures.ts'
import type { CallDependencies } from './dependencies.ts'
import {
  addressNotAllowed,
  lacksPermission,
  notAuthenticated,
  type Refusal,
  rateLimitExceeded,
  temporarilyUnavailable,
} from './errors.ts'
import type { AnyCapabilityForm } from './form.ts'
import { refuse } from './recording.ts'
import { type CallResult, uncharged } from './result.ts'

/** An operator must correct the clock, and a shorter time would cause too many retries. */
const wrongClockRetrySeconds = 30

type Admission =
  | { readonly kind: 'admitted'; readonly verdict: RateVerdict; readonly call: AdmittedCall }
  | {
      readonly kind: 'turned_away'
      readonly verdict: RateVerdict | undefined
      readonly result: CallResult
      /** The owner of the key; null if there was no valid key. */
      readonly organizationId: string | null
    }

/**
 * Checks the clock, key, disk space, permission, limits and price. Throws `Unavailable` if the key must be read from the event log and the
 * log does not answer.
 */
export const admit = async (dependencies: CallDependencies, call: Call): Promise<Admission> => {
  const { directory, secrets, limiter, prices, logger } = dependencies
  const { form, request, atMs } = call
  // The time decides whether a key has expired, so this comes before the key.
  if (dependencies.clocksDiffer?.() === true)
    return {
      kind: 'turned_away',
      verdict: undefined,
      organizationId: null,
      result: { kind: 'failed', refusal: temporarilyUnavailable(wrongClockRetrySeconds) },
    }
  const found = authenticate(request.headers['x-api-key'], { directory, secrets, nowMs: atMs })
  const key = found instanceof Promise ? await found : found
  if (typeof key === 'string')
    return {
      kind: 'turned_away',
      verdict: undefined,
      organizationId: null,
      result: notKnown(dependencies, call, key),
    }
  const { organizationId } = key
  if (dependencies.isFull?.() === true)
    return {
      kind: 'turned_away',
      verdict: undefined,
      organizationId,
      result: withoutRoom(dependencies, key),
    }
  const forbidden = notPermitted(form, key, request)
  const verdict = await (forbidden === null
    ? limiter.take(key, form.perSecond?.(key.limits))
    : limiter.takeRefused(key))
  const admitted: AdmittedCall = { ...call, key, verdict }
  const turnedAway = (result: CallResult): Admission => ({
    kind: 'turned_away',
    verdict,
    organizationId,
    result,
  })
  if (verdict.exceeded !== null)
    return turnedAway(await rateLimited(dependencies, admitted, verdict.exceeded))
  if (forbidden !== null) return turnedAway(await refuse(dependencies, admitted, forbidden))
  // A call without a price cannot be recorded, so it is refused here.
  if (isPriced(prices.at(atMs), form.capability)) return { kind: 'admitted', verdict, call: admitted }
  logger.error({ capability: form.capability }, 'the price book in force has no price for this capability')
  return turnedAway(await refuse(dependencies, admitted, temporarilyUnavailable()))
}

/** Does not record the call, not even as refused, because the remaining disk space is for calls in progress. */
const withoutRoom = ({ ledger }: CallDependencies, { organizationId }: DirectoryKey): CallResult =>
  uncharged('failed', temporarilyUnavailable(fullDiskRetrySeconds), ledger.knownBalance(organizationId))

const notKnown = (
  { unauthenticated, observe }: CallDependencies,
  { request, requestId }: Call,
  reason: AuthenticationFailure,
): CallResult => {
  const about = { requestId, address: callerAddress(request), keyId: keyIdOf(reason, request) }
  unauthenticated.turnedAway(reason, about)
  observe?.notAuthenticated(reason)
  return { kind: 'refused', refusal: notAuthenticated() }
}

/** Returns the id of a current or former key, for the log. Any other header value must not be logged. */
const keyIdOf = (reason: AuthenticationFailure, { headers }: FastifyRequest): string | undefined => {
  if (reason !== 'ended' && reason !== 'wrong_secret') return undefined
  const text = String(headers['x-api-key'])
  return (parseApiKey(text) ?? parseTestKey(text))?.keyId
}

const notPermitted = (
  form: AnyCapabilityForm,
  key: DirectoryKey,
  request: FastifyRequest,
): Refusal | null => {
  if (form.permission !== null && !key.permissions.includes(form.permission))
    return lacksPermission(form.permission)
  if (key.allowed === null) return null
  const address = callerAddress(request)
  return mayCallFrom(key, address) ? null : addressNotAllowed(address)
}

/** Only counts the refusal, so that the limit works even while the ledger cannot be read. */
const rateLimited = async (
  dependencies: CallDependencies,
  call: AdmittedCall,
  exceeded: NonNullable<RateVerdict['exceeded']>,
): Promise<CallResult> => {
  dependencies.refusedCalls.rateLimited(call.key, exceeded.policy, call.atMs)
  dependencies.observe?.rateLimited(exceeded.policy)
  return uncharged('refused', rateLimitExceeded(exceeded), await balanceOrLastKnown(dependencies, call))
}
