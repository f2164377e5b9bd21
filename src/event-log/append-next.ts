import { setTimeout as sleep } from 'node:timers/promises'
import { within } from '../concurrency/deadline.ts'
import { chainedTo, lastOf } from './append-chained.ts'
import { appendUntilKnown } from './append-until-known.ts'
import { AppendConflict, type EventLog, type NewEvent } from './port.ts'

/** Many can append at the same time, for example the refused sign-ins of a minute. After this time, a conflict is final. */
const conflictsMaxMs = 10_000
/** Pauses are random, so that those who were refused together do not try again together. */
const pauseMaxMs = 50

/** So that one append without an answer does not delay all later ones. */
const turnMaxMs = 1_000
/** The last attempt in this process for each stream. */
const lastAttempts = new Map<string, Promise<unknown>>()

/** The attempts of one process wait for each other, in order of arrival. Otherwise most of them would conflict. */
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
 * Repeats an append to a stream that is decided again after each conflict. Throws `AppendConflict` after several seconds
 * of conflicts.
 */
export const repeatConflicts = async <Result>(
  stream: string,
  attempt: () => Promise<Result>,
): Promise<Result> => {
  const startedMs = performance.now()
  for (let conflicts = 0; ; conflicts++) {
    try {
      return await inTurn(stream, attempt)
    } catch (error) {
      if (!(error instanceof AppendConflict) || performance.now() - startedMs >= conflictsMaxMs) throw error
    }
    await sleep(Math.random() * Math.min(pauseMaxMs, 2 ** conflicts))
  }
}

/**
 * Appends after the last event of a stream to which several processes write occasionally. The ids must not depend on
 * the revision, so that repeated events are recognized. Not for ledgers, where earlier events decide whether a command
 * may be appended.
 *
 * Throws what `appendUntilKnown` and `repeatConflicts` throw.
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
