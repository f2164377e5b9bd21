import { setTimeout as sleep } from 'node:timers/promises'
import {
  AppendConflict,
  type EventLog,
  type ExpectedRevision,
  type NewEvent,
  StreamMissing,
  UnknownOutcome,
} from './port.ts'

const conflictsMax = 8
const resendsMax = 5
const resendPauseMs = 50

/**
 * Appends to a stream that several processes write to now and then: behind whatever stands there. The ids must not depend on
 * the revision, so that what was written, perhaps, is recognized. Not for ledgers: what may be appended there depends
 * on what stands there (`ledger/commit.ts`).
 *
 * Throws what `EventLog.append` throws; `UnknownOutcome` after several attempts to find out.
 */
export const appendNext = async (
  eventLog: Pick<EventLog, 'append' | 'read'>,
  stream: string,
  events: readonly NewEvent[],
): Promise<{ revision: number }> => {
  for (let conflicts = 0; ; conflicts++) {
    const last = await lastOf(eventLog, stream)
    try {
      return await appendSurely(eventLog, stream, last, events)
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

/**
 * Appends at exactly `expected`, and sends the identical append again while nobody knows what became of it. Throws what
 * `EventLog.append` throws; `UnknownOutcome` only after several attempts to find out.
 */
export const appendSurely = async (
  eventLog: Pick<EventLog, 'append'>,
  stream: string,
  expected: ExpectedRevision,
  events: readonly NewEvent[],
): Promise<{ revision: number }> => {
  let unknown = false
  for (let resends = 0; ; resends++) {
    try {
      return await eventLog.append(stream, expected, events)
    } catch (error) {
      unknown ||= error instanceof UnknownOutcome
      // A refusal of the second copy says nothing of the first. Only a conflict does: something else stands in its place.
      if (!unknown || error instanceof AppendConflict) throw error
      if (resends >= resendsMax)
        throw new UnknownOutcome(`no word about an append to ${stream}`, { cause: error })
      await sleep(resendPauseMs * (resends + 1))
    }
  }
}
