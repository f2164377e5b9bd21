import type { FastifyReply } from 'fastify'
import { formatCredits, type MicroCredits } from '../billing/money.ts'
import type { RateVerdict } from '../guard/rate-limit.ts'
import { errorCatalogue, type Refusal } from './errors.ts'

/** The only place, beside `error-handler.ts`, that knows how answers look in HTTP. */

export type Credits = { readonly charged: MicroCredits; readonly remaining: MicroCredits }

export type AnswerHeaders = Record<string, string>

const jsonType = 'application/json; charset=utf-8'

/** Of every answer: it is of this moment, for this caller, and of the type it says it is. */
export const safeHeaders = { 'cache-control': 'no-store', 'x-content-type-options': 'nosniff' } as const

/** Headers every call of a known key carries (decision 5). */
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

/** The error object (Spec §2.1): the authentication error has neither request_id nor details. */
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

export const send = (
  reply: FastifyReply,
  { status, headers, body }: { status: number; headers: AnswerHeaders; body: string },
): FastifyReply => reply.code(status).headers(headers).send(body)

/** Sends a refusal with whatever headers are known by then. */
export const sendRefusal = (
  reply: FastifyReply,
  refusal: Refusal,
  headers: AnswerHeaders,
  requestId: string,
): FastifyReply => {
  if (refusal.retryAfterSeconds !== undefined) headers['retry-after'] = String(refusal.retryAfterSeconds)
  return send(reply, { status: statusOf(refusal), headers, body: errorBody(refusal, requestId) })
}
