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
import { CommandRefused, type Committed, LedgerChanged, type LedgerCommand } from '../command.ts'
import { type decideCommand, isRefusal } from '../decide.ts'
import type { LedgerLimits, LedgerObserver } from './options.ts'
import type { Queued } from './queue.ts'
import type { LedgerReader } from './reader.ts'

export type Batch = {
  /** The ledger's last revision before the batch, or −1 for a new ledger. */
  readonly base: number
  readonly draft: Account
  readonly events: NewEvent[]
  readonly decided: { readonly queued: Queued; readonly committed: Committed }[]
  /** Commands that the rules do not allow. Their callers are answered when the batch is durable. */
  readonly refused: { readonly queued: Queued; readonly error: Error }[]
  /** The decisions by first event id, so that a command that is repeated within the batch is decided only once. */
  readonly byFirstEventId: Map<string, Committed>
  bytes: number
  /** Whether the batch contains events whose ids are derived from a new request id. No other process can write such events. */
  exclusive: boolean
}

export type Decide = typeof decideCommand

type BatchRules = {
  readonly stream: string
  readonly limits: Pick<LedgerLimits, 'batchCommandsMax' | 'batchBytesMax'>
  readonly decide: Decide
  /** The current time in this process. It is recorded in events, and determines which lots have expired. */
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

/** All commands of a batch, decided or refused. */
export const commandsOf = ({ decided, refused }: Batch): Queued[] =>
  [...decided, ...refused].map(({ queued }) => queued)

/** The commands whose callers are still waiting. If the batch was not written, these are decided again. */
export const waitingOf = (batch: Batch): Queued[] => commandsOf(batch).filter(({ gaveUp }) => !gaveUp)

/** Whether no other request can send the same command, because its key is a request id instead of an Idempotency-Key. */
export const isUnrepeatable = ({ key, requestId }: LedgerCommand): boolean => key === requestId

/**
 * Decides queued commands in order until the batch is full, each on the account that results from the previous ones. Stops before a
 * command for which the ledger must be searched first.
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
    // The draft can already contain some of this command's events, so the other commands are decided again on a new draft.
    broken.push(culprit)
    queue.splice(queue.indexOf(culprit.queued), 1)
  }
}

/**
 * Adds decided commands to the batch. If the events of a command contradict the account, returns that command and leaves the queue
 * unchanged.
 */
const decideInto = (
  batch: Batch,
  queue: Queued[],
  { stream, limits, decide, nowMs }: BatchRules,
): Batch['refused'][number] | undefined => {
  let taken = 0
  for (const queued of queue) {
    if (batch.decided.length >= limits.batchCommandsMax || batch.bytes >= limits.batchBytesMax) break
    // The ledger was not searched far enough, so it could already contain this command.
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

/**
 * Decides one command. Returns its new events, null if there are none or the command is refused, or `full` if the events do not fit into
 * the batch.
 */
const decideOne = (
  batch: Batch,
  queued: Queued,
  { decide, nowMs }: Pick<BatchRules, 'decide' | 'nowMs'>,
): Decided | null | 'full' => {
  const twin = batch.byFirstEventId.get(queued.firstEventId)
  if (twin !== undefined) {
    // A repeated command has the same result as the first one.
    batch.decided.push({ queued, committed: { ...twin, repeated: true } })
    return null
  }
  try {
    const events = decide(batch.draft, queued.command, queued.idOf, nowMs)
    if (isRefusal(events)) {
      const Refusal = events.changed === true ? LedgerChanged : CommandRefused
      batch.refused.push({ queued, error: new Refusal(events.refused) })
      return null
    }
    if (events.length > appendEventsMax)
      throw new RangeError(
        `command ${queued.command.key} has ${events.length} events, but an append can contain at most ${appendEventsMax}`,
      )
    if (batch.events.length + events.length > appendEventsMax) return 'full'
    return { events, encoded: encodeDecision(queued, events) }
  } catch (error) {
    batch.refused.push({ queued, error: asError(error) })
    return null
  }
}

const asError = (error: unknown): Error => (error instanceof Error ? error : new Error(String(error)))

/** Serializes the events of a command. Throws TypeError for data that events cannot contain. */
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

/** Adds a command's events to the batch and its hash chain, and folds them into the draft. Throws if they contradict the account. */
const addToBatch = (
  batch: Batch,
  queued: Queued,
  { events, encoded }: Decided,
  { stream, nowMs }: Pick<BatchRules, 'stream' | 'nowMs'>,
): void => {
  const { draft, byFirstEventId } = batch
  // Recording times must not decrease, even if the clock was set back.
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
  // A command without events is not in the ledger, so a later command with the same key can still add events.
  if (events.length === 0) return
  byFirstEventId.set(firstEventId, committed)
  batch.exclusive ||= isUnrepeatable(command)
}

/**
 * Writes a batch and finds out whether it was written. Only the digest of the batch's last event proves that, because another process can
 * have written some of the same commands.
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
 * Appends a batch, and repeats the append until the outcome is known. `conflict`: another event is in the batch's place. Throws
 * `UnknownOutcome` if the log does not answer in time. Any other error means that nothing was written.
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
  // A log treats an append as repeated only if it already contains all of its event ids.
  if (exclusive || repeated === false) return 'written'
  try {
    return (await isThere(placeOf(batch), reader)) ? 'written' : 'conflict'
  } catch (error) {
    throw new UnknownOutcome(`${stream} cannot be read after an append`, { cause: error })
  }
}

/** The place of a batch in the stream. `metadata` is the metadata of the batch's last event, which contains the digest. */
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
 * The log recognizes a repeated append only by its event ids. Another process can have written the same ids with other bytes (the same
 * Idempotency-Key at another time), so the metadata is compared.
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
 * Finds out which event is in the place of a batch with an unknown outcome. `nothing`: the place is empty, so the batch can still be
 * written.
 */
const findOut = async (
  place: Place,
  { reader, limits: { placeReadMs } }: Pick<BatchAppend, 'reader' | 'limits'>,
): Promise<'the batch' | 'something else' | 'nothing'> => {
  // The first event is read before the last one, because the whole batch can be written between the two reads.
  const [first] = await reader.page(place.base + 1, 1, placeReadMs)
  if (first === undefined) return 'nothing'
  return (await isThere(place, reader, placeReadMs)) ? 'the batch' : 'something else'
}

const decidePauseMaxMs = 100

/**
 * Finds out whether a batch with an unknown outcome was written (ledger protocol rule 3). If the batch's place is empty, another event
 * (the fence) is written there, so that the batch can never be written later. Retries until the outcome is known, and calls `failed` after
 * each failed attempt. Throws `LogRewritten` if the log has lost the event before the place.
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

/** The fence for a batch that was decided on this account. Its id is derived from the batch, so it is unique. */
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
  const recordedAt = new Date(Math.max(account.recordedAtMs, nowMs)).toISOString()
  return chain(bare, { stream, revision: revision + 1, previous: digest }, recordedAt).event
}
