import { appendUntilKnown } from '../event-log/append-until-known.ts'
import { AppendConflict, type EventLog, UnknownOutcome } from '../event-log/port.ts'
import type { Batch } from './batch.ts'
import type { LedgerLimits, LedgerObserver } from './options.ts'
import type { LedgerReader } from './reader.ts'

/** Writes a batch, and finds out what became of it. An append is atomic and at exactly its revision. */

export type BatchAppend = {
  readonly eventLog: Pick<EventLog, 'append'>
  readonly stream: string
  readonly reader: Pick<LedgerReader, 'page'>
  readonly limits: LedgerLimits
  readonly now: () => number
  readonly observe: LedgerObserver | undefined
}

/**
 * Appends a batch until its outcome is known. `conflict`: something else is in its place. Throws `UnknownOutcome` where the
 * log did not tell in time, and otherwise what means that it was not written.
 */
export const appendBatch = async (
  batch: Batch,
  { eventLog, stream, reader, limits, now, observe }: BatchAppend,
): Promise<'written' | 'conflict'> => {
  const { base, events, decided, contended } = batch
  const startedAt = now()
  try {
    await appendUntilKnown(eventLog, stream, base === -1 ? 'none' : base, events, {
      unknownMs: limits.unknownRetryMs,
      unavailableMs: limits.unavailableRetryMs,
      pauseMs: limits.retryPauseMs,
      now,
      onUnknown: () => observe?.unknownOutcome?.(),
    })
  } catch (error) {
    if (!(error instanceof AppendConflict)) throw error
    observe?.conflict?.()
    return 'conflict'
  }
  observe?.batch?.(decided.length, events.length, now() - startedAt)
  if (!contended) return 'written'
  try {
    return await isAsDecided(batch, reader)
  } catch (error) {
    throw new UnknownOutcome(`${stream} cannot be read after an append`, { cause: error })
  }
}

/**
 * The log recognizes a resent append by its ids. Where another process may have written the same ids with other bytes (the
 * same Idempotency-Key, at another time), what is there is the truth, and the chain continues from it.
 */
const isAsDecided = async (
  { base, events }: Batch,
  reader: Pick<LedgerReader, 'page'>,
): Promise<'written' | 'conflict'> => {
  const [last] = await reader.page(base + events.length, 1)
  return last?.metadata === events.at(-1)?.metadata ? 'written' : 'conflict'
}

/**
 * What is in a batch's place, whose append was never answered. `nothing`: it may still arrive. Throws where the log cannot
 * be read.
 */
export const findOut = async (
  { base, events }: Batch,
  reader: Pick<LedgerReader, 'page'>,
): Promise<'the batch' | 'something else' | 'nothing'> => {
  const [there] = await reader.page(base + 1, 1)
  if (there === undefined) return 'nothing'
  // The metadata holds the digest: the same ids with other bytes would be another process's.
  return there.metadata === events[0]?.metadata ? 'the batch' : 'something else'
}
