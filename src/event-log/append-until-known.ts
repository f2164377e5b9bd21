import { setTimeout as sleep } from 'node:timers/promises'
import {
  AppendConflict,
  type Appended,
  type EventLog,
  type ExpectedRevision,
  LogRewritten,
  type NewEvent,
  Unavailable,
  UnknownOutcome,
} from './port.ts'

/** How long an append is repeated. */
export type AppendPatience = {
  /**
   * How long the append is repeated while its outcome is unknown. Must be longer than any engine's own deadline, so that the append is
   * sent at least twice.
   */
  readonly unknownMs: number
  /** How long the append is repeated if the log has certainly not accepted it. 0: it is not repeated. */
  readonly unavailableMs: number
  readonly pauseMs: number
}

export const appendPatience: AppendPatience = { unknownMs: 15_000, unavailableMs: 0, pauseMs: 50 }

/**
 * Appends at exactly `expected`, and repeats the identical append while its outcome is unknown (ledger protocol rule 3). After an
 * unknown outcome, only success or a conflict is certain. If a repeated append fails in another way, the first append can still be in the
 * log.
 *
 * Throws the errors of `EventLog.append`, but `UnknownOutcome` only after `unknownMs`.
 */
export const appendUntilKnown = async (
  eventLog: Pick<EventLog, 'append'>,
  stream: string,
  expected: ExpectedRevision,
  events: readonly NewEvent[],
  {
    unknownMs,
    unavailableMs,
    pauseMs,
    now = () => performance.now(),
    onUnknown,
  }: AppendPatience & { readonly now?: () => number; readonly onUnknown?: () => void } = appendPatience,
): Promise<Appended> => {
  const startedMs = now()
  for (let unknown = false; ; await sleep(pauseMs)) {
    try {
      return await eventLog.append(stream, expected, events)
    } catch (error) {
      if (error instanceof AppendConflict) throw error
      if (error instanceof LogRewritten) {
        if (!unknown) throw error
        throw new UnknownOutcome(`no answer to an append to ${stream}`, { cause: error })
      }
      if (error instanceof UnknownOutcome) {
        unknown = true
        onUnknown?.()
      } else if (!unknown && !(error instanceof Unavailable)) throw error
      if (now() - startedMs < (unknown ? unknownMs : unavailableMs)) continue
      throw unknown ? new UnknownOutcome(`no answer to an append to ${stream}`, { cause: error }) : error
    }
  }
}
