import { setTimeout as sleep } from 'node:timers/promises'
import { chainedTo, lastOf } from './append-chained.ts'
import { appendUntilKnown } from './append-until-known.ts'
import { AppendConflict, type EventLog, type NewEvent } from './port.ts'

/** Many can append at the same time, for example the refused sign-ins of a minute. After this time, a conflict is final. */
const conflictsMaxMs = 10_000
/** Pauses are random, so that those who were refused together do not try again together. */
const pauseMaxMs = 50

/**
 * Appends after the last event of a stream to which several processes write occasionally. The ids must not depend on
 * the revision, so that repeated events are recognized. Not for ledgers, where earlier events decide whether a command
 * may be appended.
 *
 * Throws what `appendUntilKnown` throws, and `AppendConflict` after several seconds of conflicts.
 */
export const appendNext = async (
  eventLog: Pick<EventLog, 'append' | 'read'>,
  stream: string,
  events: readonly NewEvent[],
): Promise<{ revision: number }> => {
  const startedMs = performance.now()
  for (let conflicts = 0; ; conflicts++) {
    const last = await lastOf(eventLog, stream)
    try {
      const chained = chainedTo(last, stream, events)
      return await appendUntilKnown(eventLog, stream, last?.revision ?? 'none', chained)
    } catch (error) {
      if (!(error instanceof AppendConflict) || performance.now() - startedMs >= conflictsMaxMs) throw error
    }
    await sleep(Math.random() * Math.min(pauseMaxMs, 2 ** conflicts))
  }
}
