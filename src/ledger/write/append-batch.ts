import { setTimeout as sleep } from 'node:timers/promises'
import { appendUntilKnown } from '../../event-log/append-until-known.ts'
import { eventIdOf } from '../../event-log/event-id.ts'
import { chain } from '../../event-log/hash-chain.ts'
import {
  AppendConflict,
  type EventLog,
  LogRewritten,
  type NewEvent,
  UnknownOutcome,
} from '../../event-log/port.ts'
import { encodeEvent } from '../../event-log/stored-event.ts'
import type { Account } from '../account.ts'
import type { Batch } from './batch.ts'
import type { LedgerLimits, LedgerObserver } from './options.ts'
import type { LedgerReader } from './reader.ts'

/**
 * Writes a batch, and finds out whether it was written. An append is atomic and at exactly its revision, and the digest of its last
 * event is over all before it. Only that digest shows whose append is there: another process that has some of the
 * commands may have written the first of these events byte for byte, and none of the others.
 */

export type BatchAppend = {
  readonly eventLog: Pick<EventLog, 'append'>
  readonly stream: string
  readonly reader: Pick<LedgerReader, 'page'>
  readonly limits: LedgerLimits
  /** For durations. */
  readonly now: () => number
  readonly observe: LedgerObserver | undefined
}

/**
 * Appends a batch until its outcome is known. `conflict`: something else is in its place. Throws `UnknownOutcome` where the
 * log did not answer in time. Any other error means that it was not written.
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
type Place = {
  readonly base: number
  readonly lastRevision: number
  readonly metadata: string | undefined
}

const placeOf = ({ base, events }: Batch): Place => ({
  base,
  lastRevision: base + events.length,
  metadata: events.at(-1)?.metadata,
})

/**
 * The log recognizes a resent append by its ids. Another process may have written the same ids with other bytes (the
 * same Idempotency-Key, at another time): then the log is right, and the chain continues from its events.
 */
const isThere = async (
  { lastRevision, metadata }: Place,
  reader: Pick<LedgerReader, 'page'>,
  waitMs?: number,
): Promise<boolean> => {
  const [last] = await reader.page(lastRevision, 1, waitMs)
  return last !== undefined && last.metadata === metadata
}

/**
 * Finds out what is at the place of a batch whose append was never answered. `nothing`: it may still be written. Throws where the log
 * cannot be read.
 */
const findOut = async (
  place: Place,
  { reader, limits: { placeReadMs } }: Pick<BatchAppend, 'reader' | 'limits'>,
): Promise<'the batch' | 'something else' | 'nothing'> => {
  // Its beginning first: a batch is written whole, perhaps between the two reads.
  const [first] = await reader.page(place.base + 1, 1, placeReadMs)
  if (first === undefined) return 'nothing'
  return (await isThere(place, reader, placeReadMs)) ? 'the batch' : 'something else'
}

/** The longest pause between two attempts to decide a place. */
const decidePauseMaxMs = 100

/**
 * Decides whether a batch with an unknown outcome was written (ledger protocol rule 3). Where nothing is at its place, a fence takes
 * the place: an append is at exactly its revision, so the batch can never be written afterwards. Tries until the place is decided
 * or the process ends. `failed` is called for each attempt that failed. Throws `LogRewritten` where the log no longer
 * holds the event before the place.
 */
export const decidePlace = async (
  batch: Batch,
  fence: NewEvent,
  { failed, ...append }: BatchAppend & { readonly failed: (error: unknown) => void },
): Promise<'written' | 'conflict' | 'fenced'> => {
  const { eventLog, stream, limits, observe } = append
  const { base } = batch
  for (let pauseMs = Math.max(1, limits.retryPauseMs); ; pauseMs = Math.min(2 * pauseMs, decidePauseMaxMs)) {
    try {
      const there = await findOut(placeOf(batch), append)
      if (there !== 'nothing') return there === 'the batch' ? 'written' : 'conflict'
      await eventLog.append(stream, base === -1 ? 'none' : base, [fence])
      observe?.fence?.()
      return 'fenced'
    } catch (error) {
      if (error instanceof LogRewritten) throw error
      if (error instanceof AppendConflict && error.actual < base)
        throw new LogRewritten(`${stream} ends at revision ${error.actual}, before revision ${base}`)
      failed(error)
    }
    await sleep(pauseMs)
  }
}

/** The event that takes the place of a batch decided on this account. Its id derives from the batch: no other fence has it. */
export const fenceOf = (batch: Batch, account: Account, stream: string, nowMs: number): NewEvent => {
  const { organizationId, revision, digest } = account
  const requestIds = batch.decided.flatMap(({ queued }) => queued.command.requestId ?? [])
  const bare = encodeEvent(
    { type: 'LedgerFenced', data: { request_ids: [...new Set(requestIds)] } },
    {
      id: eventIdOf(organizationId, `fence/${batch.draft.digest}`, 0),
      actor: 'system',
      effectiveAt: new Date(nowMs).toISOString(),
    },
  )
  // A clock that was set back does not put an event before the one it follows.
  const recordedAt = new Date(Math.max(account.recordedAtMs, nowMs)).toISOString()
  return chain(bare, { stream, revision: revision + 1, previous: digest }, recordedAt).event
}
