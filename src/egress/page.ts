import { PassThrough, type Readable, type Transform } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { createBrotliDecompress, createGunzip, createInflate } from 'node:zlib'
import type { Dispatcher } from 'undici'
import {
  addressesToDial,
  clientTo,
  type Dialling,
  failureToReach,
  type NoPage,
  refusalOf,
  urlLengthMax,
} from './dial.ts'

/**
 * Fetches one page from a web server that a stranger chose. The time, the bytes before and after decompression, the headers, the redirects, and above
 * all the addresses (`dial.ts`) are limited. A redirect is a new page, so everything is checked again.
 *
 * `fetch` is not used, because it resolves names, follows redirects and decompresses without a limit. Connections are not reused and proxy variables
 * are ignored, because both would lead to addresses that were not checked. External failures are returned, never thrown.
 */
export type PageRequest = {
  readonly url: string
  /** `host`, `accept` and `accept-encoding` are added. After a redirect to another origin, only `user-agent` and `accept-language` are kept. */
  readonly headers?: Readonly<Record<string, string>>
  /** The accepted media types in lower case, such as `text/html`. */
  readonly accept: readonly string[]
  /** The time limit for everything together, from resolving the name to the last byte of the body, including redirects. */
  readonly deadlineMs: number
  readonly connectTimeoutMs?: number
  readonly wireBytesMax?: number
  readonly decodedBytesMax?: number
  readonly redirectsMax?: number
  /** Called for the target of a redirect before it is resolved. By default, only the guard decides. */
  readonly mayRedirectTo?: (url: URL) => boolean
  readonly signal?: AbortSignal
}

/**
 * `page`: an answer with any status. The body is empty if there is none, or if the status is not 2xx and the media type is not accepted. `detail` is
 * a word for logs and tests:
 *
 * - refused: `url`, `scheme`, `userinfo`, `port`, `address`, `redirect`, `content_type`, `content_encoding`
 * - timeout: `deadline`, `connect`, `dns`, `aborted` (by the caller)
 * - too_large: `headers`, `wire`, `decoded`
 * - unreachable: the code of the error, such as ENOTFOUND, ECONNREFUSED or Z_DATA_ERROR, or the name of an error without a code
 * - too_many_redirects: the target of the first redirect beyond the limit
 */
export type PageAnswer =
  | {
      readonly kind: 'page'
      readonly status: number
      /** Names are in lower case. Repeated headers are joined by commas. */
      readonly headers: Readonly<Record<string, string>>
      readonly body: Buffer
      /** The URL after redirects. */
      readonly url: string
    }
  | NoPage

const wireBytesMaxDefault = 2 * 1024 * 1024
const decodedBytesMaxDefault = 8 * 1024 * 1024
const redirectsMaxDefault = 3

const redirectStatuses = new Set([301, 302, 303, 307, 308])
const bodilessStatuses = new Set([204, 205, 304])
/** Only these headers are sent to another origin after a redirect, because any other header can contain a secret. */
const headersForAnyone = new Set(['user-agent', 'accept-language'])

/** Fetches a page with GET over http or https. Only exempt addresses (`EGRESS_ALLOW`) can use a port other than the default. */
export const fetchBounded = async (request: PageRequest, dialling: Dialling): Promise<PageAnswer> => {
  const deadline = AbortSignal.timeout(request.deadlineMs)
  const signal = request.signal === undefined ? deadline : AbortSignal.any([deadline, request.signal])
  let url = URL.parse(request.url)
  let headers = request.headers ?? {}
  for (let redirects = 0; ; redirects++) {
    if (url === null) return { kind: 'refused', detail: 'url' }
    const answer = await fetchOnce({ ...request, url, headers, signal, deadline }, dialling)
    if (answer.kind !== 'redirect') return answer
    const target: URL | null = URL.parse(answer.location, url.href)
    if (target === null) return { kind: 'refused', detail: 'url' }
    if (redirects >= (request.redirectsMax ?? redirectsMaxDefault))
      return { kind: 'too_many_redirects', detail: target.href.slice(0, urlLengthMax) }
    if (request.mayRedirectTo?.(target) === false) return { kind: 'refused', detail: 'redirect' }
    if (target.origin !== url.origin)
      headers = Object.fromEntries(
        Object.entries(headers).filter(([name]) => headersForAnyone.has(name.toLowerCase())),
      )
    url = target
  }
}

type Hop = Omit<PageRequest, 'url' | 'signal'> & {
  readonly url: URL
  readonly headers: Readonly<Record<string, string>>
  readonly signal: AbortSignal
  readonly deadline: AbortSignal
}

type Redirect = { readonly kind: 'redirect'; readonly location: string }

const fetchOnce = async (hop: Hop, dialling: Dialling): Promise<PageAnswer | Redirect> => {
  const { url, signal } = hop
  const refusal = refusalOf(url)
  if (refusal !== null) return { kind: 'refused', detail: refusal }
  const dialled = await addressesToDial(hop, dialling)
  if (dialled.kind !== 'addresses') return dialled
  const client = clientTo(url, {
    addresses: dialled.addresses,
    connectTimeoutMs: hop.connectTimeoutMs,
    ca: dialling.ca,
  })
  try {
    const response = await client.request({
      method: 'GET',
      path: url.pathname + url.search,
      headers: { ...hop.headers, accept: hop.accept.join(', '), 'accept-encoding': 'gzip, deflate, br' },
      signal,
    })
    // If the client is destroyed, an unread body emits an error, which needs a listener.
    response.body.on('error', () => undefined)
    return await answerOf(response, hop)
  } catch (error) {
    return failureOf(error, hop)
  } finally {
    await client.destroy()
  }
}

const answerOf = async (response: Dispatcher.ResponseData, hop: Hop): Promise<PageAnswer | Redirect> => {
  const { statusCode: status, body } = response
  const headers = textHeaders(response.headers)
  if (redirectStatuses.has(status) && headers.location !== undefined)
    return { kind: 'redirect', location: headers.location }
  const page = { kind: 'page', status, headers, url: hop.url.href } as const
  if (bodilessStatuses.has(status)) return { ...page, body: Buffer.alloc(0) }
  const mediaType = (headers['content-type'] ?? '').split(';', 1)[0]?.trim().toLowerCase() ?? ''
  if (!hop.accept.includes(mediaType)) {
    if (status >= 200 && status < 300) return { kind: 'refused', detail: 'content_type' }
    return { ...page, body: Buffer.alloc(0) }
  }
  const decoder = decoderOf(headers['content-encoding'] ?? '')
  if (decoder === null) return { kind: 'refused', detail: 'content_encoding' }
  if (Number(headers['content-length']) > (hop.wireBytesMax ?? wireBytesMaxDefault))
    return { kind: 'too_large', detail: 'wire' }
  return { ...page, body: await read(body, decoder, hop) }
}

const textHeaders = (headers: Dispatcher.ResponseData['headers']): Record<string, string> =>
  Object.fromEntries(
    Object.entries(headers).flatMap(([name, value]) =>
      value === undefined ? [] : [[name.toLowerCase(), Array.isArray(value) ? value.join(', ') : value]],
    ),
  )

/** Returns null for a coding that was not requested. Chains of codings are also refused, because each of them multiplies the size. */
const decoderOf = (contentEncoding: string): Transform | null => {
  switch (contentEncoding.trim().toLowerCase()) {
    case '':
    case 'identity':
      return new PassThrough()
    case 'gzip':
    case 'x-gzip':
      return createGunzip()
    case 'deflate':
      return createInflate()
    case 'br':
      return createBrotliDecompress()
    default:
      return null
  }
}

class TooLarge extends Error {
  override name = 'TooLarge'
}

/** Never stores more of the body than its limits before and after decompression, because decoders produce only 16 KiB at a time. */
const read = async (body: Readable, decoder: Transform, hop: Hop): Promise<Buffer> => {
  const chunks: Buffer[] = []
  await pipeline(
    body,
    upTo(hop.wireBytesMax ?? wireBytesMaxDefault, 'wire'),
    decoder,
    upTo(hop.decodedBytesMax ?? decodedBytesMaxDefault, 'decoded'),
    async (source: AsyncIterable<Buffer>) => {
      for await (const chunk of source) chunks.push(chunk)
    },
    { signal: hop.signal },
  )
  return Buffer.concat(chunks)
}

const upTo = (bytesMax: number, what: 'wire' | 'decoded') =>
  async function* (source: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
    let bytes = 0
    for await (const chunk of source) {
      bytes += chunk.length
      if (bytes > bytesMax) throw new TooLarge(what)
      yield chunk
    }
  }

const failureOf = (error: unknown, hop: Hop): NoPage =>
  error instanceof TooLarge ? { kind: 'too_large', detail: error.message } : failureToReach(error, hop)
