import { appendUntilKnown } from '../event-log/append-until-known.ts'
import { AppendConflict, type EventLog, UnknownOutcome } from '../event-log/port.ts'
import type { Batch } from './batch.ts'
import type { LedgerLimits, LedgerObserver } from './options.ts'
import type { LedgerReader } from './reader.ts'

/**
 * Writes a batch, and finds out what became of it. An append is atomic and at exactly its revision, and the digest of its last
 * event is over all before it. Only that one tells whose append is there: another process that has some of the
 * commands may have written the first of these events byte for byte, and none of the others.
 */

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
  const { base, events, decided, exclusive } = batch
  const startedAt = now()
  let repeated: boolean | undefined
  try {
    const appended = await appendUntilKnown(eventLog, stream, base === -1 ? 'none' : base, events, {
      unknownMs: limits.unknownRetryMs,
      unavailableMs: limits.unavailableRetryMs,
      pauseMs: limits.retryPauseMs,
      now,
      onUnknown: () => observe?.unknownOutcome?.(),
    })
    repeated = appended.repeated
  } catch (error) {
    if (!(error instanceof AppendConflict)) throw error
    observe?.conflict?.()
    return 'conflict'
  }
  observe?.batch?.(decided.length, events.length, now() - startedAt)
  // A log takes an append for one it holds only where it holds every one of its ids.
  if (exclusive || repeated === false) return 'written'
  try {
    return (await isThere(placeOf(batch), reader)) ? 'written' : 'conflict'
  } catch (error) {
    throw new UnknownOutcome(`${stream} cannot be read after an append`, { cause: error })
  }
}

/** Where a batch ends, and the metadata of its last event, which hold its digest. */
export type Place = {
  readonly base: number
  readonly lastRevision: number
  readonly metadata: string | undefined
}

export const placeOf = ({ base, events }: Batch): Place => ({
  base,
  lastRevision: base + events.length,
  metadata: events.at(-1)?.metadata,
})

/**
 * The log recognizes a resent append by its ids. Where another process may have written the same ids with other bytes (the
 * same Idempotency-Key, at another time), what is there is the truth, and the chain
 * continues from it.
 */
const isThere = async (
  { lastRevision, metadata }: Place,
  reader: Pick<LedgerReader, 'page'>,
): Promise<boolean> => {
  const [last] = await reader.page(lastRevision, 1)
  return last !== undefined && last.metadata === metadata
}

/**
 * What is in the place of a batch whose append was never answered. `nothing`: it may still arrive. Throws where the log
 * cannot be read.
 */
export const findOut = async (
  place: Place,
  reader: Pick<LedgerReader, 'page'>,
): Promise<'the batch' | 'something else' | 'nothing'> => {
  // Its beginning first: it arrives whole, and between two reads.
  const [first] = await reader.page(place.base + 1, 1)
  if (first === undefined) return 'nothing'
  return (await isThere(place, reader)) ? 'the batch' : 'something else'
}
