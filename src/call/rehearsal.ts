import { isTestOrganization } from '../events/test-organization.ts'
import type { AdmittedCall } from './call.ts'
import {
  addressNotAllowed,
  idempotencyInFlight,
  internalError,
  lacksPermission,
  notEnoughCredits,
  outcomeUnknown,
  type Refusal,
  rateLimitExceeded,
  temporarilyUnavailable,
} from './errors.ts'
import type { AnyCapabilityForm } from './form.ts'
import { isRepeatable } from './idempotency.ts'

/**
 * Calls with test keys go through the same sequence as all other calls, with limits, Idempotency-Key, ledger and charges. Only
 * `gather` is replaced, as the capability's `Rehearsal` (`form.ts`) defines, and a word in the input selects an error by its code.
 * No word selects an error that a request can cause directly, such as a missing parameter.
 */

type Rehearsed =
  | { readonly refusal: Refusal }
  /** Replaces the form's `gather`. */
  | { readonly gather: AnyCapabilityForm['gather'] }

/** Returns the next step of a call with a test key after its input is parsed; null for a live key. */
export const rehearsalOf = (call: AdmittedCall, input: unknown): Rehearsed | null => {
  const { form, key, atMs } = call
  if (!isTestOrganization(key.organizationId)) return null
  const { rehearse } = form
  if (rehearse === 'own') return { gather: form.gather }
  const word = rehearse.asked(input)
  const refusal = word === null ? null : refusalNamed(word, call)
  return refusal === null ? { gather: () => rehearse.gather(input, { word, atMs }) } : { refusal }
}

/** Selects an error by a number, for inputs that cannot contain a word. */
export const codeOfStatus: Readonly<Record<number, string>> = {
  402: 'credit_001',
  403: 'auth_002',
  409: 'idemp_002',
  429: 'rate_001',
  500: 'sys_001',
  503: 'sys_002',
  504: 'sys_003',
}

/** An address reserved for documentation (RFC 5737). */
const someAddress = '203.0.113.9'
const retrySeconds = 2

const refusalNamed = (word: string, call: AdmittedCall): Refusal | null => {
  const { form, key } = call
  switch (word) {
    case 'auth_002':
      return form.permission === null ? null : lacksPermission(form.permission)
    case 'auth_003':
      return addressNotAllowed(someAddress)
    case 'credit_001':
      return notEnoughCredits({ required: '1', available: '0' })
    case 'rate_001': {
      const limit = key.limits.requests_per_minute
      return rateLimitExceeded({ policy: 'minute', limit, resetSeconds: retrySeconds })
    }
    case 'idemp_002':
      return idempotencyInFlight()
    case 'sys_001':
      return internalError()
    case 'sys_002':
      return temporarilyUnavailable(retrySeconds)
    case 'sys_003':
      return outcomeUnknown(isRepeatable(call), retrySeconds)
    default:
      return null
  }
}
