import { once } from 'node:events'
import { PassThrough } from 'node:stream'
import type { FastifyReply } from 'fastify'

/** How slowly an answer may be read that is made while it is sent. */
export type ReaderBounds = {
  /** A reader that takes nothing for this long is given up. */
  readonly silenceMaxMs: number
  /** How long a reader may keep the answer waiting in total. */
  readonly graceMs: number
  /** On top of that. */
  readonly bytesPerSecondMin: number
}

const readerBounds: ReaderBounds = { silenceMaxMs: 20_000, graceMs: 30_000, bytesPerSecondMin: 32 * 1024 }

/** Resolves when more can be written. Rejects once the answer has been abandoned. */
export type Write = (text: string) => Promise<void>

/**
 * An answer that is written piece by piece, as it is read. When the reader is too slow or has left, the answer is cut off and
 * `produce` fails at its next piece, so it releases its connection and its place in time. Time spent making the next piece does
 * not count.
 */
export const streamed = (
  produce: (write: Write) => Promise<void>,
  { silenceMaxMs, graceMs, bytesPerSecondMin }: ReaderBounds = readerBounds,
): PassThrough => {
  const body = new PassThrough()
  // It may fail before anyone reads it: the reader finds it failed.
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
    if (body.destroyed) throw new Error('the answer was given up: its reader is too slow or has left')
  }
  produce(write).then(
    () => body.end(),
    // The answer is incomplete. Cutting the connection shows that to the reader.
    (error: unknown) => body.destroy(error instanceof Error ? error : new Error(String(error))),
  )
  return body
}

/**
 * Answers with a file that is written while it is sent. Rejects with what goes wrong before its first piece; after that, the file is cut
 * off. When the reader leaves, its next piece fails.
 */
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
        if (text !== '') begin()
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
