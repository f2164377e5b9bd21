import { setTimeout as sleep } from 'node:timers/promises'
import { appendUntilKnown } from '../../event-log/append-until-known.ts'
import { chain } from '../../event-log/hash-chain.ts'
import {
  AppendConflict,
  appendEventsMax,
  type EventLog,
  LogRewritten,
  type NewEvent,
  UnknownOutcome,
} from '../../event-log/port.ts'
import { encodeEvent, eventIdOf } from '../../event-log/stored-event.ts'
import type { LedgerEvent } from '../../events/catalogue.ts'
import { type Account, balanceOf, draftOf, evolve } from '../account.ts'
import { CommandRefused, type Committed, type LedgerCommand } from '../command.ts'
import { type decideCommand, isRefusal } from '../decide.ts'
import type { LedgerLimits, LedgerObserver } from './options.ts'
import type { Queued } from './queue.ts'
import type { LedgerReader } from './reader.ts'

/** Commands decided together, serialised and chained. No I/O. */

export type Batch = {
  /** The ledger's last revision before the batch; −1 for a new one. */
  readonly base: number
  readonly draft: Account
  readonly events: NewEvent[]
  readonly decided: { readonly queued: Queued; readonly committed: Committed }[]
  /** Commands the rules forbid. Their callers are refused when the batch they were decided with is durable. */
  readonly refused: { readonly queued: Queued; readonly error: Error }[]
  /** The decisions, by first event id: a command sent twice is decided once. */
  readonly byFirstEventId: Map<string, Committed>
  bytes: number
  /**
   * It holds events whose ids no other process can write: of a command whose key is a fresh request id. Of all others
   * another process may be writing the very same ids with other bytes.
   */
  exclusive: boolean
}

/** The rules of a ledger. */
export type Decide = typeof decideCommand

type BatchRules = {
  readonly stream: string
  readonly limits: { readonly batchCommandsMax: number; readonly batchBytesMax: number }
  readonly decide: Decide
  /** The time of day in this process, by which events are recorded and lots expire. */
  readonly nowMs: number
}

const newBatch = (from: Account): Batch => ({
  base: from.revision,
  draft: draftOf(from),
  events: [],
  decided: [],
  refused: [],
  byFirstEventId: new Map(),
  bytes: 0,
  exclusive: false,
})

/** The commands of a batch. */
export const commandsOf = ({ decided, refused }: Batch): Queued[] =>
  [...decided, ...refused].map(({ queued }) => queued)

/** The commands of a batch that can never be written, to be decided again: those whose callers still wait. */
export const waitingOf = (batch: Batch): Queued[] => commandsOf(batch).filter(({ gaveUp }) => !gaveUp)

/** Whether no other request can have the same command: its key is a request id, and not an Idempotency-Key. */
export const isUnrepeatable = ({ key, requestId }: LedgerCommand): boolean => key === requestId

/**
 * Takes commands from the front of the queue and decides each against the account as the ones before it left it, until
 * the batch is full. It ends before a command whose key may come back and that the ledger was not looked through for.
 */
export const decideBatch = (account: Account, queue: Queued[], rules: BatchRules): Batch => {
  const broken: Batch['refused'] = []
  for (;;) {
    const batch = newBatch(account)
    const culprit = decideInto(batch, queue, rules)
    if (culprit === undefined) {
      batch.refused.push(...broken)
      return batch
    }
    // The draft holds a part of its events and is no longer usable: all others are decided again, without it.
    broken.push(culprit)
    queue.splice(queue.indexOf(culprit.queued), 1)
  }
}

/** Gives the command whose events contradict the account, having taken nothing from the queue then. */
const decideInto = (
  batch: Batch,
  queue: Queued[],
  { stream, limits, decide, nowMs }: BatchRules,
): Batch['refused'][number] | undefined => {
  let taken = 0
  for (const queued of queue) {
    if (batch.decided.length >= limits.batchCommandsMax || batch.bytes >= limits.batchBytesMax) break
    // It may be in a part of the ledger that was not looked through: it arrived during the look, or waits for the next.
    if (queued.absentUpTo < batch.base) break
    const decided = decideOne(batch, queued, { decide, nowMs })
    if (decided === 'full') break
    if (decided !== null) {
      try {
        addToBatch(batch, queued, decided, { stream, nowMs })
      } catch (error) {
        return { queued, error: asError(error) }
      }
    }
    taken++
  }
  queue.splice(0, taken)
  return undefined
}

type Decided = { readonly events: readonly LedgerEvent[]; readonly encoded: readonly NewEvent[] }

/** What a command adds to the batch; null: nothing, and it is answered or refused. `full`: there is no room left for it. */
const decideOne = (
  batch: Batch,
  queued: Queued,
  { decide, nowMs }: Pick<BatchRules, 'decide' | 'nowMs'>,
): Decided | null | 'full' => {
  const twin = batch.byFirstEventId.get(queued.firstEventId)
  if (twin !== undefined) {
    // The same command again shares the fate of the batch that holds it.
    batch.decided.push({ queued, committed: { ...twin, repeated: true } })
    return null
  }
  try {
    const events = decide(batch.draft, queued.command, queued.idOf, nowMs)
    if (isRefusal(events)) {
      batch.refused.push({ queued, error: new CommandRefused(events.refused) })
      return null
    }
    if (events.length > appendEventsMax)
      throw new RangeError(
        `command ${queued.command.key} leads to ${events.length} events; an append holds ${appendEventsMax}`,
      )
    if (batch.events.length + events.length > appendEventsMax) return 'full'
    return { events, encoded: encodeDecision(queued, events) }
  } catch (error) {
    batch.refused.push({ queued, error: asError(error) })
    return null
  }
}

const asError = (error: unknown): Error => (error instanceof Error ? error : new Error(String(error)))

/** Serialises what was decided for a command. Throws TypeError for data events cannot hold. */
const encodeDecision = (
  { command, firstEventId, idOf }: Queued,
  decision: readonly LedgerEvent[],
): NewEvent[] => {
  const effectiveAt = new Date(command.atMs).toISOString()
  return decision.map((event, i) =>
    encodeEvent(event, {
      id: idOf(i),
      actor: command.actor,
      effectiveAt,
      requestId: command.requestId,
      repeats: command.repeats,
      traceId: command.traceId,
      causationId: i === 0 ? undefined : firstEventId,
    }),
  )
}

/** Chains encoded events onto the batch and folds them into its draft. Throws if they contradict the account. */
const addToBatch = (
  batch: Batch,
  queued: Queued,
  { events, encoded }: Decided,
  { stream, nowMs }: Pick<BatchRules, 'stream' | 'nowMs'>,
): void => {
  const { draft, byFirstEventId } = batch
  // A clock that was set back does not put an event before the one it follows.
  draft.recordedAtMs = Math.max(draft.recordedAtMs, nowMs)
  const recordedAt = new Date(draft.recordedAtMs).toISOString()
  const { command, firstEventId } = queued
  encoded.forEach((bare, i) => {
    const event = events[i]
    if (event === undefined) return
    const revision = draft.revision + 1
    const chained = chain(bare, { stream, revision, previous: draft.digest }, recordedAt)
    evolve(draft, event, revision)
    draft.digest = chained.digest
    batch.events.push(chained.event)
    batch.bytes += chained.event.data.length + chained.event.metadata.length
  })
  const { revision } = draft
  const { requestId } = command
  const committed = { events, revision, balance: balanceOf(draft, command.atMs), repeated: false, requestId }
  batch.decided.push({ queued, committed })
  // A command without events left no trace: the same key may come again and lead to events.
  if (events.length === 0) return
  byFirstEventId.set(firstEventId, committed)
  batch.exclusive ||= isUnrepeatable(command)
}

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
 * Finds out what is at the place of a batch whose append was never answered. `nothing`: it may still be written. Throws if the log
 * cannot be read.
 */
const findOut = async (
  place: Place,
  { reader, limits: { placeReadMs } }: Pick<BatchAppend, 'reader' | 'limits'>,
): Promise<'the batch' | 'something else' | 'nothing'> => {
  // Reads the batch's first event first: a batch is written whole, and that may happen between the two reads.
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
