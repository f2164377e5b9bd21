import { once } from 'node:events'
import { PassThrough } from 'node:stream'
import type { FastifyReply } from 'fastify'

/** The minimum speed at which a reader must read an answer that is produced while it is sent. */
export type ReaderBounds = {
  /** The time without any reading after which the answer is cut off. */
  readonly silenceMaxMs: number
  /** The maximum time for which a reader can keep the answer waiting in total. */
  readonly graceMs: number
  /** The minimum rate. It gives larger answers more time. */
  readonly bytesPerSecondMin: number
}

const readerBounds: ReaderBounds = { silenceMaxMs: 20_000, graceMs: 30_000, bytesPerSecondMin: 32 * 1024 }

/** Resolves when more can be written. Rejects once the answer has been abandoned. Bytes are text in UTF-8. */
export type Write = (text: string | Buffer) => Promise<void>

/**
 * An answer that is produced in parts while it is read. If the reader is too slow or has disconnected, the answer is cut off, and
 * the next `write` of `produce` fails, which releases its connection. The time for producing a part does not count.
 */
export const streamed = (
  produce: (write: Write) => Promise<void>,
  { silenceMaxMs, graceMs, bytesPerSecondMin }: ReaderBounds = readerBounds,
): PassThrough => {
  const body = new PassThrough()
  // Without a listener, an error before the body is read would end the process. The error is passed to the reader later.
  body.on('error', () => undefined)
  let bytes = 0
  let waitedMs = 0
  const write: Write = async (text) => {
    if (!body.destroyed) {
      bytes += Buffer.byteLength(text)
      if (body.write(text)) return
      const sinceMs = performance.now()
      const leftMs = graceMs + (bytes / bytesPerSecondMin) * 1_000 - waitedMs
      const late = setTimeout(
        () => body.destroy(new Error('the answer was not read in time')),
        Math.min(silenceMaxMs, leftMs),
      )
      await Promise.race([once(body, 'drain'), once(body, 'close')]).finally(() => clearTimeout(late))
      waitedMs += performance.now() - sinceMs
    }
    if (body.destroyed)
      throw new Error('the answer was cut off, because its reader is too slow or has disconnected')
  }
  produce(write).then(
    () => body.end(),
    // The connection is cut, so that the reader sees that the answer is incomplete.
    (error: unknown) => body.destroy(error instanceof Error ? error : new Error(String(error))),
  )
  return body
}

/** Answers with a file that is produced while it is sent. Rejects with errors before the first part. A later error cuts the file off. */
export const sendFile = async (
  reply: FastifyReply,
  { name, type }: { readonly name: string; readonly type: string },
  produce: (write: Write) => Promise<unknown>,
): Promise<FastifyReply> => {
  const { promise: begun, resolve: begin, reject: failed } = Promise.withResolvers<void>()
  const body = streamed(async (write) => {
    try {
      await produce(async (text) => {
        const accepted = write(text)
        if (text.length > 0) begin()
        await accepted
      })
      begin()
    } catch (error) {
      failed(error)
      throw error
    }
  })
  reply.raw.once('close', () => body.destroy())
  await begun
  return reply
    .type(`${type}; charset=utf-8`)
    .header('cache-control', 'no-store')
    .header('content-disposition', `attachment; filename="${name}"`)
    .send(body)
}
