import type { Readable } from 'node:stream'
import type { FastifyReply } from 'fastify'
import { formatCredits } from '../billing/money.ts'
import type { RateVerdict } from '../guard/limits/rate-limit.ts'
import { endSpan } from '../tracing/spans.ts'
import type { Call } from './call.ts'
import type { CallDependencies } from './dependencies.ts'
import { errorCatalogue, type Refusal } from './errors.ts'
import type { Decided, StreamedBody } from './form.ts'
import type { CallResult, Credits } from './result.ts'
import { streamed } from './streamed.ts'

/** Turns results into HTTP. Only `error-handler.ts` does this as well. */

export type AnswerHeaders = Record<string, string>

const jsonType = 'application/json; charset=utf-8'

/** Headers of every answer. Caches must not store answers, and browsers must not guess their media type. */
export const safeHeaders = { 'cache-control': 'no-store', 'x-content-type-options': 'nosniff' } as const

/** Returns the headers of an answer to a call (decision 5). */
export const callHeaders = (
  requestId: string,
  verdict: RateVerdict | undefined,
  credits: Credits | undefined,
): AnswerHeaders => {
  const headers: AnswerHeaders = { ...safeHeaders, 'content-type': jsonType, 'x-request-id': requestId }
  if (credits !== undefined) {
    headers['credits-charged'] = formatCredits(credits.charged)
    headers['credits-remaining'] = formatCredits(credits.remaining)
  }
  if (verdict !== undefined) {
    let policy = ''
    let state = ''
    for (const { policy: name, limit, windowSeconds, remaining, resetSeconds } of verdict.windows) {
      const more = policy === '' ? '' : ', '
      policy += `${more}"${name}";q=${limit};w=${windowSeconds}`
      state += `${more}"${name}";r=${remaining};t=${resetSeconds}`
    }
    headers['ratelimit-policy'] = policy
    headers.ratelimit = state
  }
  return headers
}

/** Returns the error object (Spec §2.1). The authentication error has neither request_id nor details. */
export const errorBody = (refusal: Refusal, requestId: string): string => {
  const { error } = errorCatalogue[refusal.code]
  return JSON.stringify(
    refusal.code === 'AUTH_001'
      ? { error, message: refusal.message, code: refusal.code }
      : {
          error,
          message: refusal.message,
          code: refusal.code,
          request_id: requestId,
          details: refusal.details,
        },
  )
}

export const statusOf = (refusal: Refusal): number => refusal.status ?? errorCatalogue[refusal.code].status

/** `json` is the result, `beside` the other members of its envelope. */
export type Rendered = { readonly json: string; readonly beside: string }

export const renderResult = ({ result, beside }: Decided): Rendered => ({
  json: JSON.stringify(result),
  beside: beside === undefined ? '' : `,${JSON.stringify(beside).slice(1, -1)}`,
})

/** Returns the body of an answer (decision 4): the result in its envelope, or alone if the capability uses no envelope. */
export const bodyOf = ({ form, requestId, startedMs }: Call, { json, beside }: Rendered): string => {
  if (form.body === 'flat') return json
  const elapsedMs = Math.round((performance.now() - startedMs) * 1000) / 1000
  return `{"result":${json},"processing_time_ms":${elapsedMs},"request_id":"${requestId}"${beside}}`
}

/** Returns the HTTP status and body for a result. */
export const written = (
  result: CallResult,
  requestId: string,
): { readonly status: number; readonly body: string | StreamedBody } => {
  switch (result.kind) {
    case 'answered':
      return { status: result.retryAfterSeconds === undefined ? 200 : 202, body: result.body }
    case 'replayed':
      return result
    case 'refused':
    case 'failed':
      return { status: statusOf(result.refusal), body: errorBody(result.refusal, requestId) }
  }
}

/** Sends the answer to a call, and reports it to metrics, trace and log. */
export const send = (
  reply: FastifyReply,
  call: Call,
  {
    verdict,
    result,
    organizationId,
    dependencies: { observe, logger },
  }: {
    readonly verdict: RateVerdict | undefined
    readonly result: CallResult
    /** Null if there was no valid key. */
    readonly organizationId: string | null
    readonly dependencies: Pick<CallDependencies, 'observe' | 'logger'>
  },
): FastifyReply => {
  const { requestId, form, startedMs } = call
  const refusal = 'refusal' in result ? result.refusal : undefined
  const headers = callHeaders(requestId, verdict, result.credits)
  const retryAfterSeconds = result.kind === 'answered' ? result.retryAfterSeconds : refusal?.retryAfterSeconds
  if (retryAfterSeconds !== undefined) headers['retry-after'] = String(retryAfterSeconds)
  if (result.kind === 'replayed') headers['idempotent-replayed'] = 'true'
  // RFC 9110 §15.5.2 requires this header with 401. No registered scheme describes a key in x-api-key.
  if (refusal?.code === 'AUTH_001') headers['www-authenticate'] = 'Key'
  const ms = performance.now() - startedMs
  // A request without a valid key is not a call.
  if (observe !== undefined && refusal?.code !== 'AUTH_001') {
    const outcome = 'refusal' in result ? result.kind : 'answered'
    observe.answered(form.capability, outcome, refusal?.code, ms / 1000, result.credits?.charged ?? 0n)
  }
  const { status, body } = written(result, requestId)
  endSpan(call.span, () => attributesOf(call, { status, code: refusal?.code }), status >= 500)
  // Logs the route instead of the URL, which can contain personal data.
  if (logger.isLevelEnabled('debug'))
    logger.debug(
      {
        method: form.method,
        route: form.path,
        status,
        request_id: requestId,
        ms: Math.round(ms * 10) / 10,
        organization_id: organizationId,
        credits: formatCredits(result.credits?.charged ?? 0n),
      },
      'a call was answered',
    )
  if (typeof body === 'string') return reply.code(status).headers(headers).send(body)
  return reply
    .code(status)
    .headers({ ...headers, ...body.headers, 'content-type': body.type })
    .send(streamOf(body))
}

const attributesOf = (
  { form, requestId }: Call,
  { status, code }: { readonly status: number; readonly code: string | undefined },
) => ({
  'http.request.method': form.method,
  'http.route': form.path,
  'http.response.status_code': status,
  'enrichment.request_id': requestId,
  'enrichment.capability': form.capability,
  ...(code === undefined ? {} : { 'enrichment.code': code }),
})

const streamOf = ({ chunks }: StreamedBody): Readable =>
  streamed(async (write) => {
    for await (const chunk of chunks()) await write(chunk)
  })

/** Refuses a request that is not a call. */
export const sendRefusal = (
  reply: FastifyReply,
  refusal: Refusal,
  requestId: string,
  more: AnswerHeaders = {},
): FastifyReply =>
  reply
    .code(statusOf(refusal))
    .headers({ ...callHeaders(requestId, undefined, undefined), ...more })
    .send(errorBody(refusal, requestId))
