import { METHODS, STATUS_CODES } from 'node:http'
import type { FastifyError } from 'fastify'
import { type AnswerHeaders, callHeaders, errorBody, statusOf } from './answer.ts'
import { internalError, type Refusal, tooSlow, unreadableBody } from './errors.ts'
import { BodyRefused } from './request-body.ts'

/** Returns the refusal for an HTTP fault. Any other error is a bug and becomes SYS_001. */
export const refusalOf = (error: FastifyError): Refusal => {
  if (error instanceof BodyRefused) return error.refusal
  if (error.code === 'FST_ERR_CTP_INVALID_MEDIA_TYPE')
    return unreadableBody('The Content-Type must be application/json.', 415)
  if (typeof error.statusCode === 'number' && error.statusCode < 500)
    return unreadableBody('The request could not be read.')
  return internalError()
}

/** Returns the refusal for a connection with bytes that are not an HTTP request or do not arrive in time. */
export const brokenRequest = (code: string | undefined): Refusal => {
  if (code === 'HPE_HEADER_OVERFLOW') return unreadableBody('The request headers are too large.', 431)
  if (code === 'HPE_CHUNK_EXTENSIONS_OVERFLOW')
    return unreadableBody('The chunk extensions are too large.', 413)
  return code === 'ERR_HTTP_REQUEST_TIMEOUT' ? tooSlow() : unreadableBody('This is not a valid HTTP request.')
}

const requestLine = /([!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}) (\S{1,2048}) HTTP\/1\.[01]\r?\n/y
const tokenCharacter = /[!#$%&'*+.^_`|~0-9A-Za-z-]/

/** The error of Node.js for bytes that it cannot parse. */
export type BrokenRequest = {
  readonly code?: string
  readonly rawPacket?: unknown
  readonly bytesParsed?: number
}

/** Returns the request that Node.js rejected because of its unknown method; null for any other fault. */
export const unknownMethodIn = ({
  rawPacket,
  bytesParsed = 0,
}: BrokenRequest): { readonly method: string; readonly url: string } | null => {
  if (!Buffer.isBuffer(rawPacket)) return null
  const text = rawPacket.toString('latin1')
  // The parser stops inside an unknown method, or after a method of another protocol. The method may belong to a later request.
  let start = Math.min(bytesParsed, text.length)
  while (start > 0 && tokenCharacter.test(text.charAt(start - 1))) start--
  for (const at of [start, 0]) {
    requestLine.lastIndex = at
    const [, method, url] = requestLine.exec(text) ?? []
    if (method !== undefined && url !== undefined && !METHODS.includes(method)) return { method, url }
  }
  return null
}

/** Returns an answer as raw text, for a fault without a request object. The answer ends the connection. */
export const rawAnswer = (refusal: Refusal, requestId: string, more: AnswerHeaders = {}): string => {
  const body = errorBody(refusal, requestId)
  const status = statusOf(refusal)
  const headers = {
    ...callHeaders(requestId, undefined, undefined),
    ...more,
    'content-length': String(Buffer.byteLength(body)),
    connection: 'close',
  }
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`)
  return `HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\n${lines.join('')}\r\n${body}`
}
