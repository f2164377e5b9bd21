import type { IncomingMessage } from 'node:http'
import type { Socket } from 'node:net'
import { type Refusal, unreadableBody } from './errors.ts'

/** Decision 3: a larger body is REQ_001 with 413. */
export const bodyBytesMax = 16 * 1024

/** A request that is refused before its body is there. */
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
  /** The bytes of a request's body. Throws `BodyRefused`. */
  read(request: IncomingMessage): Promise<Buffer>
  /** Ends the read under way on a connection whose bytes make no sense, or do not come. False: there is none. */
  breakOff(socket: Socket, refusal: Refusal): boolean
}

/** Reads bodies as bytes: their content is checked in the call, after the caller is known. */
export const createBodyReader = (): BodyReader => {
  const reading = new WeakMap<Socket, { request: IncomingMessage; refuse(error: Error): void }>()
  return {
    read: (request) => {
      const { promise, resolve, reject } = Promise.withResolvers<Buffer>()
      const chunks: Buffer[] = []
      let bytes = 0
      const refuse = (error: Error): void => {
        stop()
        // The rest of the body is useless; it is read so that the client can read the answer.
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
      const broken = (): void => refuse(new BodyRefused(unreadableBody('The body broke off.')))
      const stop = (): void => {
        // The next request may be read already.
        if (reading.get(request.socket)?.request === request) reading.delete(request.socket)
        request.off('data', take).off('end', end).off('error', broken)
        // The connection may still break: by then no caller waits.
        request.on('error', () => undefined)
      }
      // Node.js has checked that it is a number.
      if (Number(request.headers['content-length'] ?? 0) > bodyBytesMax) refuse(tooLarge())
      else {
        reading.set(request.socket, { request, refuse })
        request.on('data', take).on('end', end).on('error', broken)
      }
      return promise
    },
    breakOff: (socket, refusal) => {
      const broken = reading.get(socket)
      // A complete request is read in a moment: the broken bytes came after it.
      if (broken === undefined || broken.request.complete) return false
      broken.refuse(new BodyRefused(refusal))
      return true
    },
  }
}
