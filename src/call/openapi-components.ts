import { type ErrorCode, errorCatalogue } from './errors.ts'

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

export const headerRefs = (...names: readonly (keyof ReturnType<typeof headers>)[]): Json =>
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

const text = (about: string, example: string): Json => ({
  description: about,
  schema: { type: 'string' },
  example,
})

export const headers = () => ({
  RequestId: { description: 'The id of the call.', schema: requestId, example: '01M7YKBR1318CPB17F0R6929Z4' },
  CreditsCharged: text('What the call was charged.', '1.5'),
  CreditsRemaining: text('What is left. Below zero where the organization may overdraw.', '998.5'),
  RateLimitPolicy: text(
    'The limits of the key: how many calls (q) in how many seconds (w).',
    '"minute";q=600;w=60, "day";q=100000;w=86400',
  ),
  RateLimit: text(
    'How many calls are left (r) in each window, and how many seconds it lasts (t).',
    '"minute";r=599;t=60, "day";r=99999;t=86400',
  ),
  RetryAfter: {
    description: 'Seconds after which to ask again.',
    schema: { type: 'integer', minimum: 0 },
    example: 2,
  },
  IdempotentReplayed: {
    description:
      'The answer is that of an earlier call with the same Idempotency-Key, and was not charged again.',
    schema: { const: 'true' },
    example: 'true',
  },
})

export const idempotencyKey = {
  name: 'Idempotency-Key',
  in: 'header',
  required: false,
  description:
    'The same key and body again gets the first answer and is charged once, ever. Between 1 and 255 visible characters, bare or in quotes.',
  schema: { type: 'string', minLength: 1, maxLength: 257 },
  example: '7f1c2d9e-order-1881',
} as const
