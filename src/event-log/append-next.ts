import { chainedTo, lastOf } from './append-chained.ts'
import { appendUntilKnown } from './append-until-known.ts'
import { AppendConflict, type EventLog, type NewEvent } from './port.ts'

const conflictsMax = 8

/**
 * Appends after the last event of a stream that several processes write to occasionally. The ids must not depend on the
 * revision, so that repeated events are recognized. Not for ledgers, where earlier events decide whether a command may
 * be appended.
 *
 * Throws what `appendUntilKnown` throws, and `AppendConflict` after several attempts.
 */
export const appendNext = async (
  eventLog: Pick<EventLog, 'append' | 'read'>,
  stream: string,
  events: readonly NewEvent[],
): Promise<{ revision: number }> => {
  for (let conflicts = 0; ; conflicts++) {
    const last = await lastOf(eventLog, stream)
    try {
      const chained = chainedTo(last, stream, events)
      return await appendUntilKnown(eventLog, stream, last?.revision ?? 'none', chained)
    } catch (error) {
      if (!(error instanceof AppendConflict) || conflicts >= conflictsMax) throw error
    }
  }
}
