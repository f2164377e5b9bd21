import { z } from 'zod'
import { type ErrorCode, errorCatalogue, unreadableStatuses } from './errors.ts'
import type { Example, Examples, HeaderName, RecordedAnswers } from './examples.ts'
import type { CapabilityDocument, DescribedCall } from './form.ts'

/**
 * The OpenAPI 3.1 document of the calls, created from the schemas that the calls use. A client can be generated from the document
 * alone. The components contain the rules for every call: keys, limits and retries.
 */

type Documented = {
  readonly documents: readonly CapabilityDocument[]
  readonly service: ServiceWords
  readonly version: string
  readonly examples: Examples
}

/** `summary` describes the service, `requests` its requests, each in one sentence that names the capabilities. */
export type ServiceWords = { readonly summary: string; readonly requests: string }

export const openApiOf = ({ documents, service, version, examples }: Documented): Json => {
  const paths: Record<string, Record<string, unknown>> = {}
  for (const document of documents)
    for (const call of document.calls) {
      const path = call.path.replaceAll(/:(\w+)/g, '{$1}')
      paths[path] ??= {}
      paths[path][call.method.toLowerCase()] = operationOf(call, document, examples)
    }
  return {
    openapi: '3.1.0',
    info: {
      title: 'Enrichment ledger',
      version,
      summary: service.summary,
      description: [service.requests, ...rules].join('\n\n'),
      license: { name: 'Proprietary', identifier: 'LicenseRef-Proprietary' },
    },
    servers: [{ url: '/', description: 'The host of the API' }],
    security: [{ apiKey: [] }],
    tags: documents.map(({ tag: name, about: description }) => ({ name, description })),
    paths,
    components: {
      securitySchemes: {
        apiKey: {
          type: 'apiKey',
          in: 'header',
          name: 'x-api-key',
          description: 'An API key of your organization.',
        },
      },
      headers: headers(examples.headers),
      examples: errorExamples(examples.errors),
      parameters: { IdempotencyKey: idempotencyKey },
      schemas: errorSchemas(),
    },
  }
}

const rules = [
  'Credit amounts are decimal strings with at most six fractional digits.',
  'New members can be added to answers, so ignore unknown members. Unknown members of requests are ignored.',
  `A path that does not exist returns 404 \`REQ_004\`; a method that a path does not accept returns 405 \`REQ_005\`. Errors cost no credits.`,
] as const

/** The error codes of every call, of calls that need a permission, and of calls that accept an Idempotency-Key. */
const sharedCodes = {
  every: ['AUTH_001', 'AUTH_003', 'RATE_001', 'SYS_001', 'SYS_002', 'SYS_003', 'REQ_001'],
  permitted: ['AUTH_002'],
  keyed: ['IDEMP_001', 'IDEMP_002'],
} as const satisfies Record<string, readonly ErrorCode[]>

const codesOf = ({ permission, method, document }: DescribedCall): readonly ErrorCode[] => [
  ...sharedCodes.every,
  ...(permission === null ? [] : sharedCodes.permitted),
  ...(method === 'POST' ? sharedCodes.keyed : []),
  ...document.codes,
]

const operationOf = (
  call: DescribedCall,
  { tag, examples }: CapabilityDocument,
  { errors }: Examples,
): Json => {
  const { method, document, permission, path } = call
  const shown = examples[document.operationId] ?? {}
  const { operationId, summary, description: about, request, accepted } = document
  const properties = request === null ? {} : (schemaOf(request, 'input').properties as Record<string, Json>)
  const required = request === null ? [] : ((schemaOf(request, 'input').required ?? []) as string[])
  const parameters = Object.entries(properties).map(([name, { description: help, ...schema }]) => {
    const inPath = path.includes(`:${name}`)
    return {
      name,
      in: inPath ? 'path' : 'query',
      // The body of a DELETE can contain them instead.
      required: inPath || (method !== 'DELETE' && required.includes(name)),
      ...(help === undefined ? {} : { description: help }),
      schema,
    }
  })
  return {
    operationId,
    summary,
    tags: [tag],
    description: permission === null ? about : `${about}\n\nThe key needs the permission \`${permission}\`.`,
    parameters: [
      ...(method === 'POST' ? [] : parameters),
      ...(method === 'POST' ? [{ $ref: '#/components/parameters/IdempotencyKey' }] : []),
    ],
    ...(method === 'GET' || request === null
      ? {}
      : {
          requestBody: {
            required: method === 'POST',
            content: {
              'application/json': { schema: schemaOf(request, 'input'), ...named(shown, 'request') },
            },
          },
        }),
    responses: {
      200: answerOf(call, shown[200]),
      ...(accepted === undefined
        ? {}
        : {
            202: {
              description: 'The result is not ready yet. Repeat the request after `Retry-After`.',
              headers: headerRefs('RetryAfter', ...answerHeaders),
              content: {
                'application/json': {
                  schema: enveloped(accepted),
                  ...named({ 202: shown[202] ?? {} }, 'answer'),
                },
              },
            },
          }),
      ...refusalsOf(call, errors),
    },
  }
}

const answerHeaders = [
  'RequestId',
  'CreditsCharged',
  'CreditsRemaining',
  'RateLimitPolicy',
  'RateLimit',
] as const

const answerOf = (
  { method, body, document }: DescribedCall,
  shown: Readonly<Record<string, Example>> = {},
): Json => {
  const { result, beside, streams } = document
  const replayed = method === 'POST' ? (['IdempotentReplayed'] as const) : []
  const schema =
    streams !== undefined
      ? { type: 'string', description: 'JSON documents, one per line.' }
      : body === 'flat'
        ? schemaOf(result, 'output')
        : enveloped(result, beside)
  return {
    description: 'The answer.',
    headers: { ...headerRefs(...answerHeaders, ...replayed), ...(streams === undefined ? {} : nextPage) },
    content: { [streams ?? 'application/json']: { schema, ...named({ 200: shown }, 'answer') } },
  }
}

const nextPage = {
  Link: {
    description: 'The URL of the next page, with `rel="next"`, if there is one.',
    schema: { type: 'string' },
  },
} as const

const enveloped = (result: z.ZodType, beside?: z.ZodObject): Json => {
  const more = beside === undefined ? {} : (schemaOf(beside, 'output').properties as Json)
  return {
    type: 'object',
    required: ['result', 'processing_time_ms', 'request_id'],
    properties: {
      result: schemaOf(result, 'output'),
      processing_time_ms: { type: 'number', minimum: 0, description: 'Milliseconds.' },
      request_id: requestId,
      ...more,
    },
  }
}

const named = (shown: RecordedAnswers[string], part: keyof Example): Json => {
  const some = Object.values(shown).flatMap((byName) => Object.entries(byName))
  return some.length === 0
    ? {}
    : { examples: Object.fromEntries(some.map(([name, example]) => [name, { value: example[part] }])) }
}

const statusesOf = (code: ErrorCode): readonly number[] =>
  code === 'REQ_001' ? [errorCatalogue[code].status, ...unreadableStatuses] : [errorCatalogue[code].status]

/** A request that is refused with one of these statuses has no valid key, or was not read far enough to find it. */
const keylessStatuses = [401, 408, 431]

const keyAsked = {
  'WWW-Authenticate': { description: 'A key is needed, in the header x-api-key.', schema: { const: 'Key' } },
} as const

const refusalsOf = (call: DescribedCall, errors: Examples['errors']): Json => {
  const pairs = [...new Set(codesOf(call))].flatMap((code) =>
    statusesOf(code).map((status) => ({ code, status })),
  )
  const byStatus = Map.groupBy(pairs, ({ status }) => status)
  return Object.fromEntries(
    [...byStatus].map(([status, found]) => {
      const some = found.map(({ code }) => code)
      const refs = some.map((code) => ({ $ref: `#/components/schemas/${code}` }))
      const answer = {
        description: some.map((code) => `\`${code}\`: ${errorCatalogue[code].when}.`).join(' '),
        headers: {
          ...headerRefs(
            ...(keylessStatuses.includes(status) ? (['RequestId'] as const) : answerHeaders),
            ...([409, 429, 503, 504].includes(status) ? (['RetryAfter'] as const) : []),
            ...(call.method === 'POST' && [400, 404].includes(status)
              ? (['IdempotentReplayed'] as const)
              : []),
          ),
          ...(status === 401 ? keyAsked : {}),
        },
        content: {
          'application/json': {
            schema: refs.length === 1 ? refs[0] : { oneOf: refs },
            ...refusalsShown(some, status, errors),
          },
        },
      }
      return [status, answer]
    }),
  )
}

const refusalsShown = (codes: readonly ErrorCode[], status: number, errors: Examples['errors']): Json => {
  const shown = codes.flatMap((code) => {
    const name = status === errorCatalogue[code].status ? code : `${code}_${status}`
    return Object.hasOwn(errors, name) ? [[code, { $ref: `#/components/examples/${name}` }]] : []
  })
  return shown.length === 0 ? {} : { examples: Object.fromEntries(shown) }
}

/** Omits the long patterns of dates and addresses, which readers do not need. */
const schemaOf = (schema: z.ZodType, io: 'input' | 'output'): Json => {
  const { $schema, ...made } = z.toJSONSchema(schema, {
    target: 'draft-2020-12',
    io,
    override: ({ jsonSchema }) => {
      if (jsonSchema.format !== undefined) delete jsonSchema.pattern
      // Members may be added to answers and requests (decision 7).
      delete jsonSchema.additionalProperties
    },
  })
  return made
}

type Json = Readonly<Record<string, unknown>>

const requestId = {
  type: 'string',
  pattern: '^[0-7][0-9A-HJKMNP-TV-Z]{25}$',
  description:
    'A ULID. It identifies the call in the ledger: quote it when you ask about an answer or a charge.',
} as const

/** One schema for each code of the catalogue. Only the authentication error has neither id nor details (Spec §2.1). */
const errorSchemas = (): Json =>
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
            message: { type: 'string', description: 'A message for people. It can change.' },
            code: { const: code },
            ...(bare ? {} : { request_id: requestId, details: { type: 'object' } }),
          },
        },
      ]
    }),
  )

const headerRefs = (...names: readonly HeaderName[]): Json =>
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

const describedHeaders = {
  RequestId: { description: 'The id of the call.', schema: requestId },
  CreditsCharged: { description: 'The credits charged for the call.', schema: text },
  CreditsRemaining: {
    description: 'The remaining balance. It can be below zero if the organization has an overdraft.',
    schema: text,
  },
  RateLimitPolicy: {
    description: 'The limits of the key: the number of calls (q) in a number of seconds (w).',
    schema: text,
  },
  RateLimit: {
    description:
      'The number of calls left (r) in each window, and the number of seconds until the window resets (t).',
    schema: text,
  },
  RetryAfter: {
    description: 'The number of seconds to wait before the next attempt.',
    schema: { type: 'integer', minimum: 0 },
  },
  IdempotentReplayed: {
    description:
      'The answer repeats the answer to an earlier call with the same Idempotency-Key, and was not charged again.',
    schema: { const: 'true' },
  },
} as const satisfies Record<HeaderName, Json>

const headers = (examples: Examples['headers']): Json =>
  Object.fromEntries(
    Object.entries(describedHeaders).map(([name, header]) => {
      const example = examples[name as HeaderName]
      return [name, { ...header, example: name === 'RetryAfter' ? Number(example) : example }]
    }),
  )

const errorExamples = (errors: Examples['errors']): Json =>
  Object.fromEntries(Object.entries(errors).map(([name, value]) => [name, { value }]))

const idempotencyKey = {
  name: 'Idempotency-Key',
  in: 'header',
  required: false,
  description:
    'If you repeat a request with the same key and body, you get the first answer and are never charged again. A key has 1 to 255 visible characters, bare or in quotes, such as 7f1c2d9e-order-1881.',
  // There is no example, because pages that try calls would send the same key with every body.
  schema: { type: 'string', minLength: 1, maxLength: 257 },
} as const
