import type { FastifyError } from 'fastify'
import { internalError, type Refusal, unreadableBody } from './errors.ts'

/** What HTTP itself got wrong, in the catalogue's words. Everything else that is thrown here is a bug of ours. */
export const refusalOf = (error: FastifyError, bodyBytesMax: number): Refusal => {
  if (error.code === 'FST_ERR_CTP_BODY_TOO_LARGE')
    return unreadableBody(`The body is larger than ${bodyBytesMax} bytes.`, 413)
  if (error.code === 'FST_ERR_CTP_INVALID_MEDIA_TYPE')
    return unreadableBody('The Content-Type must be application/json.', 415)
  if (typeof error.statusCode === 'number' && error.statusCode < 500)
    return unreadableBody('The request could not be read.')
  return internalError()
}

/**
 * The answer to bytes that are no HTTP request, or one with headers beyond the limit: written by hand, because no
 * request came to be.
 */
export const rawBadRequest = (
  requestId: string,
  status: '400 Bad Request' | '431 Request Header Fields Too Large',
): string => {
  const body = JSON.stringify({
    error: 'bad_request',
    message: status.startsWith('431')
      ? 'The request headers are too large.'
      : 'This is not a valid HTTP request.',
    code: 'REQ_001',
    request_id: requestId,
    details: {},
  })
  return `HTTP/1.1 ${status}\r\nContent-Type: application/json; charset=utf-8\r\nX-Request-Id: ${requestId}\r\nContent-Length: ${Buffer.byteLength(body)}\r\nConnection: close\r\n\r\n${body}`
}
