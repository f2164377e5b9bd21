import { isUtf8 } from 'node:buffer'
import type { IncomingMessage } from 'node:http'
import type { Socket } from 'node:net'
import type { FastifyRequest } from 'fastify'
import { type Refusal, unreadableBody } from './errors.ts'
import type { JsonObject } from './form.ts'
import { hasRepeatedMember } from './json-text.ts'

/** A larger body is refused with REQ_001 and status 413 (decision 3). */
export const bodyBytesMax = 16 * 1024

/** The refusal of a request whose body has not arrived completely. */
export class BodyRefused extends Error {
  override name = 'BodyRefused'
  readonly refusal: Refusal

  constructor(refusal: Refusal) {
    super(refusal.message)
    this.refusal = refusal
  }
}

const tooLarge = (): BodyRefused =>
  new BodyRefused(unreadableBody(`The body is larger than ${bodyBytesMax} bytes.`, 413))

type BodyReader = {
  /** Throws `BodyRefused`. */
  read(request: IncomingMessage): Promise<Buffer>
  /** Ends the current read on a connection because bytes are invalid or missing. Returns false if nothing is being read. */
  breakOff(socket: Socket, refusal: Refusal): boolean
}

/** Reads bodies as bytes, because a call parses its body only after its caller is known. */
export const createBodyReader = (): BodyReader => {
  const reading = new WeakMap<Socket, { request: IncomingMessage; refuse(error: Error): void }>()
  return {
    read: (request) => {
      const { promise, resolve, reject } = Promise.withResolvers<Buffer>()
      const chunks: Buffer[] = []
      let bytes = 0
      const refuse = (error: Error): void => {
        stop()
        // The rest of the body is read and discarded, so that the client can read the answer.
        request.resume()
        reject(error)
      }
      const take = (chunk: Buffer): void => {
        bytes += chunk.length
        if (bytes > bodyBytesMax) refuse(tooLarge())
        else chunks.push(chunk)
      }
      const end = (): void => {
        stop()
        resolve(chunks.length === 1 && chunks[0] !== undefined ? chunks[0] : Buffer.concat(chunks))
      }
      const broken = (): void => refuse(new BodyRefused(unreadableBody('The body is incomplete.')))
      const stop = (): void => {
        // The process may already be reading the next request on the connection.
        if (reading.get(request.socket)?.request === request) reading.delete(request.socket)
        request.off('data', take).off('end', end).off('error', broken)
        // The connection may break after the read has ended, and an error event without a listener would end the process.
        request.on('error', () => undefined)
      }
      // Node.js has already checked that the header is a number.
      if (Number(request.headers['content-length'] ?? 0) > bodyBytesMax) refuse(tooLarge())
      else {
        reading.set(request.socket, { request, refuse })
        request.on('data', take).on('end', end).on('error', broken)
      }
      return promise
    },
    breakOff: (socket, refusal) => {
      const broken = reading.get(socket)
      // If the request is complete, only the bytes after it are invalid, so its body is still read.
      if (broken === undefined || broken.request.complete) return false
      broken.refuse(new BodyRefused(refusal))
      return true
    },
  }
}

/** The parameters of a request, or the refusal (REQ_001) if they cannot be read. */
type Parameters = { readonly body: JsonObject } | { readonly refusal: Refusal }

/**
 * Returns the body, or for a GET the query and path parameters. A DELETE can also use the query, because some clients and proxies
 * send no body with a DELETE. If a name is in both, the body counts.
 */
export const readParameters = (method: string, request: FastifyRequest): Parameters => {
  if (method === 'GET')
    return { body: { ...(request.query as JsonObject), ...(request.params as JsonObject) } }
  if (method !== 'DELETE') return readBody(request)
  // A parameter that is sent twice is a list, and therefore has the wrong type.
  const query: JsonObject = { ...(request.query as JsonObject) }
  if (!hasBody(request)) return { body: query }
  const read = readBody(request)
  return 'refusal' in read ? read : { body: { ...query, ...read.body } }
}

/** Whether a request has a body, which may be empty (RFC 9112 §6). */
const hasBody = ({ headers }: FastifyRequest): boolean =>
  headers['transfer-encoding'] !== undefined || Number(headers['content-length'] ?? 0) > 0

const noBytes = Buffer.alloc(0)

const readBody = (request: FastifyRequest): Parameters => {
  const refusal = notJson(request.headers)
  if (refusal !== null) return { refusal }
  const bytes = Buffer.isBuffer(request.body) ? request.body : noBytes
  // Decoding would replace invalid bytes with U+FFFD, so different bodies would become the same text.
  if (!isUtf8(bytes)) return { refusal: unreadableBody('The body is not valid UTF-8.') }
  try {
    const text = bytes.toString()
    const body: unknown = JSON.parse(text)
    if (typeof body !== 'object' || body === null || Array.isArray(body))
      return { refusal: unreadableBody('The body must be a JSON object.') }
    return hasRepeatedMember(text, body)
      ? { refusal: unreadableBody('An object in the body has the same member more than once.') }
      : { body: body as JsonObject }
  } catch {
    return { refusal: unreadableBody('The body is not valid JSON.') }
  }
}

/** Returns a refusal if the headers show that the body is not JSON in UTF-8 (RFC 8259 §8.1). */
const notJson = (headers: FastifyRequest['headers']): Refusal | null => {
  // Almost all clients send exactly these headers.
  if (headers['content-type'] === 'application/json' && headers['content-encoding'] === undefined) return null
  const [type = '', ...parameters] = (headers['content-type'] ?? '').split(';')
  if (type.trim().toLowerCase() !== 'application/json')
    return unreadableBody('The Content-Type must be application/json.', 415)
  for (const parameter of parameters) {
    const [name = '', value = ''] = parameter.split('=', 2)
    if (name.trim().toLowerCase() === 'charset' && !/^"?utf-?8"?$/i.test(value.trim()))
      return unreadableBody('The charset must be UTF-8.', 415)
  }
  const coding = headers['content-encoding'] ?? ''
  return /^(identity)?$/i.test(coding) ? null : unreadableBody('The body must not be compressed.', 415)
}
