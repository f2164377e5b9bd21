import type { Logger } from 'pino'
import type { Projection } from '../../projections/projection.ts'
import type { Position } from '../event-log/port.ts'
import type { Foundation } from '../foundation/foundation.ts'
import {
  type HaltedStream,
  readCheckpoints,
  readHaltedStreams,
  strayCheckpoints,
  strayMessage,
} from '../projector/checkpoints.ts'
import type { RebuildProgress } from '../projector/second-set.ts'
import { type Verdict, verifyProjections } from '../projector/verify.ts'
import { catchUp } from './catch-up.ts'

export type ProjectionState = {
  readonly name: string
  readonly version: number
  /** Also halted where the event log no longer holds the event its rows end at. */
  readonly state: 'live' | 'halted'
  readonly error: string | null
  readonly position: Position
  /** Positions up to the log's head: events on the Postgres log, bytes on EventStoreDB. Null where its position means nothing in this log. */
  readonly behind: bigint | null
  /** Events it could not read. */
  readonly parked: number
  /** Streams whose rows have stopped. */
  readonly haltedStreams: readonly HaltedStream[]
  readonly updatedAt: Date
}

/** Where every projection is, and where the event log ends. */
export const projectionStates = async ({
  pool,
  eventLog,
}: Pick<Foundation, 'pool' | 'eventLog'>): Promise<{ head: Position; states: ProjectionState[] }> => {
  const [head, checkpoints, parked, halted] = await Promise.all([
    eventLog.head(),
    readCheckpoints(pool),
    pool.query<{ projection: string; parked: number }>(
      'select projection, count(*)::integer as parked from parked_events where released_at is null group by projection',
    ),
    readHaltedStreams(pool),
  ])
  const stray = await strayCheckpoints(eventLog, checkpoints)
  const states = checkpoints.map((checkpoint): ProjectionState => {
    const { name, version, position, updatedAt } = checkpoint
    const ended = stray.includes(checkpoint)
    return {
      name,
      version,
      position,
      updatedAt,
      state: ended ? 'halted' : checkpoint.state,
      error: ended ? strayMessage([checkpoint]) : checkpoint.error,
      // The head was read beside the checkpoints: one may have passed it.
      behind: ended ? null : position < head ? head - position : 0n,
      parked: parked.rows.find(({ projection }) => projection === name)?.parked ?? 0,
      haltedStreams: halted.filter(({ projection }) => projection === name),
    }
  })
  return { head, states }
}

/** Brings the live rows up to date, then rebuilds projections beside them and compares row for row. */
export const verifyRows = async (
  foundation: Foundation,
  {
    projections,
    logger,
    onProgress,
  }: {
    projections: readonly Projection[]
    logger: Logger
    onProgress: (progress: RebuildProgress) => void
  },
): Promise<Verdict[]> => {
  await catchUp(foundation, logger)
  const { url, eventLog, secrets } = foundation
  return verifyProjections({ url, eventLog, seal: secrets.rowSeal, projections, onProgress })
}
