import { setTimeout as sleep } from 'node:timers/promises'
import { within } from '../concurrency/deadline.ts'
import { chainedTo, lastOf } from './append-chained.ts'
import { appendUntilKnown } from './append-until-known.ts'
import { AppendConflict, type EventLog, EventsUnreadable, type NewEvent } from './port.ts'

/** How long an append is repeated after conflicts. Many processes can append to the same stream, for example to the stream of refused sign-ins. */
const conflictsMaxMs = 10_000
/** The maximum pause after a conflict. It is random, so that conflicting appends are not repeated at the same time. */
const pauseMaxMs = 50

/** How long an attempt waits for the previous one, so that an append without an answer does not delay all later ones. */
const turnMaxMs = 1_000
/** The last attempt in this process for each stream. */
const lastAttempts = new Map<string, Promise<unknown>>()

/** Runs the attempts of this process one after another, because concurrent attempts would mostly conflict. */
const inTurn = async <Result>(stream: string, attempt: () => Promise<Result>): Promise<Result> => {
  const before = lastAttempts.get(stream)
  const own = within(before ?? Promise.resolve(), { waitMs: turnMaxMs }, () => undefined).then(attempt)
  const ended = own.catch(() => undefined)
  lastAttempts.set(stream, ended)
  try {
    return await own
  } finally {
    if (lastAttempts.get(stream) === ended) lastAttempts.delete(stream)
  }
}

/**
 * Repeats an append after each conflict. Every attempt reads the stream again. If the conflicts continue for several seconds, throws
 * `AppendConflict`, or `EventsUnreadable` if no one else appended, so that the log must have lost the end of the stream.
 */
export const repeatConflicts = async <Result>(
  stream: string,
  attempt: () => Promise<Result>,
): Promise<Result> => {
  const startedMs = performance.now()
  let before: number | undefined
  for (let conflicts = 0; ; conflicts++) {
    try {
      return await inTurn(stream, attempt)
    } catch (error) {
      if (!(error instanceof AppendConflict)) throw error
      if (performance.now() - startedMs >= conflictsMaxMs)
        throw error.actual === before ? lostEnd(error) : error
      before = error.actual
    }
    await sleep(Math.random() * Math.min(pauseMaxMs, 2 ** conflicts))
  }
}

const lostEnd = ({ stream, actual }: AppendConflict): EventsUnreadable =>
  new EventsUnreadable({
    stream,
    firstRevision: actual,
    lastRevision: actual,
    why: 'it is missing from the event log; restore it from a backup',
  })

/**
 * Appends after the last event of a stream to which several processes write occasionally. The ids must not depend on the revision, so
 * that repeated events are recognized. Not for ledgers, because their commands depend on earlier events.
 *
 * Throws the errors of `appendUntilKnown` and `repeatConflicts`.
 */
export const appendNext = (
  eventLog: Pick<EventLog, 'append' | 'read'>,
  stream: string,
  events: readonly NewEvent[],
): Promise<{ revision: number }> =>
  repeatConflicts(stream, async () => {
    const last = await lastOf(eventLog, stream)
    return appendUntilKnown(eventLog, stream, last?.revision ?? 'none', chainedTo(last, stream, events))
  })
