import { creditsText } from '../billing/money.ts'

/**
 * The error catalogue (Spec §7, decisions 2 and 3): all errors that a request can cause. A test compares the catalogue with the
 * table in src/guides/errors.md, "Which errors are there?".
 */

type ErrorCategory =
  | 'unauthorized'
  | 'validation_error'
  | 'bad_request'
  | 'payment_required'
  | 'forbidden'
  | 'not_found'
  | 'conflict'
  | 'rate_limited'
  | 'internal_error'
  | 'service_unavailable'
  | 'outcome_unknown'

type CatalogueEntry = { readonly status: number; readonly error: ErrorCategory; readonly when: string }

export const errorCatalogue = {
  AUTH_001: { status: 401, error: 'unauthorized', when: 'the API key is missing or invalid' },
  AUTH_002: { status: 403, error: 'forbidden', when: 'the key lacks the permission' },
  AUTH_003: { status: 403, error: 'forbidden', when: "the caller's address is outside the key's allow-list" },
  REQ_001: {
    status: 400,
    error: 'bad_request',
    when: 'the body is not a JSON object, has another media type, or is too large',
  },
  REQ_002: { status: 400, error: 'bad_request', when: 'a required parameter is missing' },
  REQ_003: { status: 400, error: 'validation_error', when: 'a parameter has the wrong type or value' },
  REQ_004: { status: 404, error: 'not_found', when: 'the route does not exist' },
  REQ_005: { status: 405, error: 'bad_request', when: 'the route does not accept this method' },
  IP_001: { status: 400, error: 'validation_error', when: 'ip is not a valid IPv4 or IPv6 address' },
  PROFNET_001: {
    status: 400,
    error: 'validation_error',
    when: 'id is not a profile id, profile URL or person URN',
  },
  PROFNET_002: { status: 404, error: 'not_found', when: 'the profile is not found or not accessible' },
  CALL_001: {
    status: 404,
    error: 'not_found',
    when: 'the organization has no recorded call with this request id',
  },
  CREDIT_001: { status: 402, error: 'payment_required', when: 'not enough credits' },
  RATE_001: { status: 429, error: 'rate_limited', when: 'a rate limit of the key is exceeded' },
  IDEMP_001: {
    status: 422,
    error: 'validation_error',
    when: 'the Idempotency-Key was used with another request',
  },
  IDEMP_002: {
    status: 409,
    error: 'conflict',
    when: 'a request with this Idempotency-Key is still being processed',
  },
  SYS_001: { status: 500, error: 'internal_error', when: 'something went wrong on our side' },
  SYS_002: {
    status: 503,
    error: 'service_unavailable',
    when: 'temporarily unavailable; nothing was charged',
  },
  SYS_003: {
    status: 504,
    error: 'outcome_unknown',
    when: 'it is not known whether the call was charged; repeat it with the same Idempotency-Key',
  },
} as const satisfies Record<string, CatalogueEntry>

export type ErrorCode = keyof typeof errorCatalogue

/** The entry of a code; undefined for a code of another release. */
export const errorEntry = (code: string): CatalogueEntry | undefined =>
  Object.entries(errorCatalogue).find(([one]) => one === code)?.[1]

/** Statuses of REQ_001 other than 400. */
export const unreadableStatuses = [408, 413, 415, 431] as const
type UnreadableStatus = (typeof unreadableStatuses)[number]

/** An expected failure, which is returned and never thrown. Only REQ_001 can have a `status` that differs from the catalogue. */
export type Refusal = {
  readonly code: ErrorCode
  readonly message: string
  readonly details: Readonly<Record<string, unknown>>
  readonly status?: UnreadableStatus
  readonly retryAfterSeconds?: number
}

/** The maximum number of characters of a received value that an answer repeats. */
export const echoedCharactersMax = 64
/** The maximum number of characters of an input in an answer, such as `details.ip`. */
export const submittedCharactersMax = 1_024

export const notAuthenticated = (): Refusal => ({
  code: 'AUTH_001',
  message: 'Invalid or missing API key. Send a valid key in the x-api-key header.',
  details: {},
})

export const lacksPermission = (permission: string): Refusal => ({
  code: 'AUTH_002',
  message: `This API key lacks the permission ${permission}. Use a key that has this permission.`,
  details: { required_permission: permission },
})

export const addressNotAllowed = (address: string): Refusal => ({
  code: 'AUTH_003',
  message: `This API key cannot be used from ${address}, because the address is not on the key's allow-list.`,
  details: { address },
})

export const unreadableBody = (reason: string, status?: UnreadableStatus): Refusal => ({
  code: 'REQ_001',
  message: reason,
  details: {},
  ...(status === undefined ? {} : { status }),
})

export const tooSlow = (): Refusal => unreadableBody('The request did not arrive in time.', 408)

export const missingParameter = (name: string, type: string): Refusal => ({
  code: 'REQ_002',
  message: `Required parameter ${name} is missing.`,
  details: { missing_parameter: name, parameter_type: type },
})

export const wrongParameter = (name: string, expected: string): Refusal => ({
  code: 'REQ_003',
  message: `Parameter ${name} must be ${expected}.`,
  details: { parameter: name, expected },
})

export const noRoute = (method: string, path: string): Refusal => ({
  code: 'REQ_004',
  message: `There is no route ${method} ${path}.`,
  details: { method, path },
})

export const wrongMethod = (method: string, allowed: readonly string[]): Refusal => ({
  code: 'REQ_005',
  message:
    allowed.length === 0
      ? `This host does not accept ${method}.`
      : `This route does not accept ${method}; it accepts ${allowed.join(', ')}.`,
  details: { method, allowed },
})

export const notEnoughCredits = ({
  required,
  available,
}: {
  required: string
  available: string
}): Refusal => ({
  code: 'CREDIT_001',
  message: `This call needs ${creditsText(required)}, but the available balance is ${available}.`,
  details: { required, available },
})

export const rateLimitExceeded = (window: {
  policy: string
  limit: number
  resetSeconds: number
}): Refusal => ({
  code: 'RATE_001',
  message: `Rate limit exceeded: ${window.limit} ${window.limit === 1 ? 'call' : 'calls'} per ${window.policy}. Try again in ${window.resetSeconds} s.`,
  details: { limit: window.limit, window: window.policy, retry_after_seconds: window.resetSeconds },
  retryAfterSeconds: window.resetSeconds,
})

export const idempotencyMismatch = (): Refusal => ({
  code: 'IDEMP_001',
  message: 'This Idempotency-Key was already used with another request. Use a new key for a new request.',
  details: {},
})

export const idempotencyInFlight = (): Refusal => ({
  code: 'IDEMP_002',
  message: 'A request with this Idempotency-Key is still being processed. Try again shortly.',
  details: {},
  retryAfterSeconds: 1,
})

export const internalError = (): Refusal => ({
  code: 'SYS_001',
  message: 'Something went wrong on our side. If it happens again, contact us and quote the request id.',
  details: {},
})

export const upstreamUnavailable = (retryAfterSeconds: number): Refusal => ({
  code: 'SYS_002',
  message: `The source of this answer is temporarily unavailable. Nothing was charged; try again in ${retryAfterSeconds} s.`,
  details: {},
  retryAfterSeconds,
})

export const tooBusy = (): Refusal => ({
  code: 'SYS_002',
  message:
    'Too many calls are in progress. Nothing was charged; try again shortly, with fewer concurrent calls.',
  details: {},
  retryAfterSeconds: 1,
})

export const temporarilyUnavailable = (retryAfterSeconds = 1): Refusal => ({
  code: 'SYS_002',
  message: 'Temporarily unavailable. Nothing was charged; try again shortly.',
  details: {},
  retryAfterSeconds,
})

/** Refuses a call that could not be confirmed in time and may have been recorded and charged. */
export const outcomeUnknown = (repeatable: boolean, retryAfterSeconds: number): Refusal => ({
  code: 'SYS_003',
  message: repeatable
    ? 'The outcome is unknown. Repeat the request with the same Idempotency-Key: you are charged at most once.'
    : 'The outcome is unknown: the call might be charged. Send an Idempotency-Key with your next requests, so that you can repeat them safely.',
  details: {},
  retryAfterSeconds,
})
