import type { IncomingMessage } from 'node:http'
import { type Refusal, unreadableBody } from './errors.ts'

/** A host as it may stand in a URI (RFC 3986 §3.2.2), with its port; or nothing. */
const hostPattern = /^[A-Za-z0-9._~!$&'()*+,;=%:[\]-]{0,255}$/

/**
 * What a proxy may read differently than this process does, and Node.js lets pass: it is unclear what such a request
 * asks for, so it is refused whatever it does (RFC 9112 §3.2 and §6.1, RFC 9110 §5.3). Null: it is clear.
 */
export const misframed = ({ rawHeaders, headers, httpVersion }: IncomingMessage): Refusal | null => {
  let hosts = 0
  let types = 0
  for (let n = 0; n < rawHeaders.length; n += 2) {
    const name = rawHeaders[n] ?? ''
    // Most names are of another length: nothing is made lower case for nothing.
    if (name.length === 4 && name.toLowerCase() === 'host') hosts++
    else if (name.length === 12 && name.toLowerCase() === 'content-type') types++
  }
  if (hosts === 0 && httpVersion === '1.1') return unreadableBody('The Host header is missing.')
  if (hosts > 1) return unreadableBody('The Host header is sent more than once.')
  if (!hostPattern.test(headers.host ?? '')) return unreadableBody('The Host header is not a host.')
  if (types > 1) return unreadableBody('The Content-Type header is sent more than once.')
  const coding = headers['transfer-encoding']
  if (coding !== undefined && (coding.toLowerCase() !== 'chunked' || httpVersion === '1.0'))
    return unreadableBody('The Transfer-Encoding must be chunked, and the request HTTP/1.1.')
  return null
}
