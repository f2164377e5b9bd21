import { type ErrorCode, errorCatalogue } from './errors.ts'
import type { Examples, HeaderName } from './examples.ts'

/** What is true of every call, written once in the OpenAPI document: headers, errors, the key under which a call is made once. Pure. */

export type Json = Readonly<Record<string, unknown>>

export const requestId = {
  type: 'string',
  pattern: '^[0-7][0-9A-HJKMNP-TV-Z]{25}$',
  description:
    'A ULID. It identifies the call in the ledger: quote it when you ask about an answer or a charge.',
} as const

/** One for each code of the catalogue. Only the authentication error has neither id nor details (Spec §2.1). */
export const errorSchemas = (): Json =>
  Object.fromEntries(
    (Object.keys(errorCatalogue) as ErrorCode[]).map((code) => {
      const { status, error, when } = errorCatalogue[code]
      const bare = code === 'AUTH_001'
      return [
        code,
        {
          type: 'object',
          description: `${status}: ${when}.`,
          required: ['error', 'message', 'code', ...(bare ? [] : ['request_id', 'details'])],
          properties: {
            error: { const: error },
            message: { type: 'string', description: 'For people. It may change.' },
            code: { const: code },
            ...(bare ? {} : { request_id: requestId, details: { type: 'object' } }),
          },
        },
      ]
    }),
  )

export const headerRefs = (...names: readonly HeaderName[]): Json =>
  Object.fromEntries(names.map((name) => [wireNames[name], { $ref: `#/components/headers/${name}` }]))

const wireNames = {
  RequestId: 'X-Request-Id',
  CreditsCharged: 'Credits-Charged',
  CreditsRemaining: 'Credits-Remaining',
  RateLimitPolicy: 'RateLimit-Policy',
  RateLimit: 'RateLimit',
  RetryAfter: 'Retry-After',
  IdempotentReplayed: 'Idempotent-Replayed',
} as const

const text = { type: 'string' } as const

/** Without examples: those are answers' own (`examples.ts`). */
const describedHeaders = {
  RequestId: { description: 'The id of the call.', schema: requestId },
  CreditsCharged: { description: 'What the call was charged.', schema: text },
  CreditsRemaining: {
    description: 'What is left. Below zero where the organization may overdraw.',
    schema: text,
  },
  RateLimitPolicy: {
    description: 'The limits of the key: how many calls (q) in how many seconds (w).',
    schema: text,
  },
  RateLimit: {
    description: 'How many calls are left (r) in each window, and how many seconds it lasts (t).',
    schema: text,
  },
  RetryAfter: {
    description: 'Seconds after which to ask again.',
    schema: { type: 'integer', minimum: 0 },
  },
  IdempotentReplayed: {
    description:
      'The answer is that of an earlier call with the same Idempotency-Key, and was not charged again.',
    schema: { const: 'true' },
  },
} as const satisfies Record<HeaderName, Json>

export const headers = (examples: Examples['headers']): Json =>
  Object.fromEntries(
    Object.entries(describedHeaders).map(([name, header]) => {
      const example = examples[name as HeaderName]
      return [name, { ...header, example: name === 'RetryAfter' ? Number(example) : example }]
    }),
  )

/** What was answered with each error. */
export const errorExamples = (errors: Examples['errors']): Json =>
  Object.fromEntries(Object.entries(errors).map(([name, value]) => [name, { value }]))

export const idempotencyKey = {
  name: 'Idempotency-Key',
  in: 'header',
  required: false,
  description:
    'The same key and body again gets the first answer and is charged once, ever. Between 1 and 255 visible characters, bare or in quotes, such as 7f1c2d9e-order-1881.',
  // No example: pages that try calls would send the same key with every body.
  schema: { type: 'string', minLength: 1, maxLength: 257 },
} as const
