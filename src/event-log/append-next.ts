import { appendUntilKnown } from './append-until-known.ts'
import { AppendConflict, type EventLog, type NewEvent, StreamMissing } from './port.ts'

const conflictsMax = 8

/**
 * Appends to a stream that several processes write to now and then, behind its last event. The ids must not depend on
 * the revision, so that events which may be there already are recognized. Not for ledgers: what may be appended there
 * depends on what they hold (`src/ledger`).
 *
 * Throws what `appendUntilKnown` throws; `AppendConflict` after several attempts.
 */
export const appendNext = async (
  eventLog: Pick<EventLog, 'append' | 'read'>,
  stream: string,
  events: readonly NewEvent[],
): Promise<{ revision: number }> => {
  for (let conflicts = 0; ; conflicts++) {
    const last = await lastOf(eventLog, stream)
    try {
      return await appendUntilKnown(eventLog, stream, last, events)
    } catch (error) {
      if (!(error instanceof AppendConflict) || conflicts >= conflictsMax) throw error
    }
  }
}

const lastOf = async (eventLog: Pick<EventLog, 'read'>, stream: string): Promise<number | 'none'> => {
  try {
    const [last] = await eventLog.read(stream, { direction: 'backwards', max: 1 })
    return last?.revision ?? 'none'
  } catch (error) {
    if (error instanceof StreamMissing) return 'none'
    throw error
  }
}
