import type { Logger } from 'pino'
import { within } from '../concurrency/deadline.ts'
import type { EventLog, Position } from '../event-log/port.ts'
import type { Foundation } from '../foundation/foundation.ts'
import {
  type Checkpoint,
  type HaltedStream,
  readCheckpoints,
  readHaltedStreams,
} from '../projector/checkpoints.ts'

/**
 * How far the rows that pages show are behind the event log: looked at every few seconds, and kept for an hour in this process. A
 * restart loses the hour, and nothing else: where the projections are is in the database, and what happened in the event log.
 */

/** One look at the end of the log and at every projection. */
export type Look = {
  readonly atMs: number
  readonly head: Position
  readonly checkpoints: readonly Checkpoint[]
  readonly haltedStreams: readonly HaltedStream[]
}

/** What of a look is kept for the hour. */
export type Sample = Pick<Look, 'atMs' | 'head'> & { readonly positions: ReadonlyMap<string, Position> }

export type Positions = {
  /** The oldest first. */
  samples(): readonly Sample[]
  /** Not older than a second; null where log or database do not answer soon. All pages of a moment share one. */
  now(): Promise<Look | null>
  /** For how long at least a position has been behind the log's end; 0 where it is not known to be. Milliseconds. */
  behindMs(position: Position, look: Pick<Look, 'atMs' | 'head'>): number
  /** When the event at a position was recorded; null where it is not known. */
  recordedAtMs(position: Position): Promise<number | null>
  close(): void
}

export const sampleEveryMs = 5_000
const keptMs = 60 * 60_000
const freshMs = 1_000
/** A page does not wait longer to learn how old its rows are. */
const answerMaxMs = 1_000
const timesMax = 50

type Options = {
  readonly logger: Pick<Logger, 'warn'>
  readonly everyMs?: number
  readonly nowMs?: () => number
}

/** Begins to look. Never rejects, and keeps no process alive. */
export const openPositions = (
  { pool, eventLog }: Pick<Foundation, 'pool' | 'eventLog'>,
  { logger, everyMs = sampleEveryMs, nowMs = Date.now }: Options,
): Positions => {
  const samples: Sample[] = []
  let last: { readonly look: Look | null; readonly endedAtMs: number } | null = null
  let looking: Promise<Look | null> | null = null
  let away = false

  const ask = async (): Promise<Look> => {
    const [head, checkpoints, haltedStreams] = await Promise.all([
      eventLog.head(),
      readCheckpoints(pool),
      readHaltedStreams(pool),
    ])
    // The head was read beside the checkpoints: one may have passed it.
    const end = checkpoints.reduce((most, { position }) => (position > most ? position : most), head)
    return { atMs: nowMs(), head: end, checkpoints, haltedStreams }
  }

  /** One at a time: what hangs is not asked again beside itself. */
  const look = (): Promise<Look | null> => {
    looking ??= ask()
      .catch((error: unknown) => {
        if (!away) logger.warn({ err: error }, 'dashboard: it is not known how far the rows are behind')
        return null
      })
      .then((found) => {
        away = found === null
        last = { look: found, endedAtMs: nowMs() }
        looking = null
        return found
      })
    return looking
  }

  const sample = async (): Promise<void> => {
    const found = await look()
    if (found === null) return
    const positions = new Map(found.checkpoints.map(({ name, position }) => [name, position]))
    samples.push({ atMs: found.atMs, head: found.head, positions })
    while ((samples[0]?.atMs ?? found.atMs) < found.atMs - keptMs) samples.shift()
  }

  void sample()
  const timer = setInterval(() => void sample(), everyMs)
  timer.unref()

  return {
    samples: () => samples,
    now: async () => {
      if (last !== null && nowMs() - last.endedAtMs < freshMs) return last.look
      return within(look(), { waitMs: answerMaxMs }, () => null)
    },
    behindMs: (position, { atMs, head }) => {
      if (position >= head) return 0
      const first = samples.find((one) => one.head > position)
      return first === undefined ? 0 : Math.max(0, atMs - first.atMs)
    },
    recordedAtMs: createTimes(eventLog),
    close: () => clearInterval(timer),
  }
}

/** When events were recorded, of the last few that were asked for. */
const createTimes = (eventLog: Pick<EventLog, 'at'>): Positions['recordedAtMs'] => {
  const times = new Map<Position, number>()
  return async (position) => {
    const known = times.get(position)
    if (known !== undefined || position <= 0n) return known ?? null
    const asked = eventLog.at(position).catch(() => null)
    const event = await within(asked, { waitMs: answerMaxMs }, () => null)
    if (event === null) return null
    if (times.size >= timesMax) times.clear()
    times.set(position, event.recordedAtMs)
    return event.recordedAtMs
  }
}
