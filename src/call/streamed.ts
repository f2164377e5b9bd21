import { once } from 'node:events'
import { PassThrough } from 'node:stream'

/** How slowly an answer may be read that is made while it is sent. */
export type ReaderBounds = {
  /** A reader that takes nothing for so long is gone. */
  readonly silenceMaxMs: number
  /** All the time that a reader may keep the answer waiting. */
  readonly graceMs: number
  /** On top of that. */
  readonly bytesPerSecondMin: number
}

const readerBounds: ReaderBounds = { silenceMaxMs: 20_000, graceMs: 30_000, bytesPerSecondMin: 32 * 1024 }

/** Resolves when more can be written. Rejects once the reader is gone. */
export type Write = (text: string) => Promise<void>

/**
 * An answer that is written piece by piece, as it is read. When a reader is too slow or gone the answer breaks off, and
 * `produce` fails at its next piece: so whatever it holds for the answer is given back in time. The time in which the next
 * piece is being made does not count.
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
    if (body.destroyed) throw new Error('the reader of the answer is gone')
  }
  produce(write).then(
    () => body.end(),
    // What was sent until now is not to be believed: the connection breaks off.
    (error: unknown) => body.destroy(error instanceof Error ? error : new Error(String(error))),
  )
  return body
}
