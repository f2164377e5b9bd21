import type { Logger } from 'pino'
import type { Projection } from '../../projections/projection.ts'
import { appendNext } from '../event-log/append-next.ts'
import { eventIdOf } from '../event-log/event-id.ts'
import type { EventLog, Position } from '../event-log/port.ts'
import { encodeEvent } from '../event-log/stored-event.ts'
import { operatorStream } from '../events/streams.ts'
import type { Foundation } from '../foundation/foundation.ts'
import { knownEventLog, rememberEventLog } from '../foundation/own-event-log.ts'
import {
  type HaltedStream,
  readCheckpoints,
  readHaltedStreams,
  strayCheckpoints,
  strayMessage,
} from '../projector/checkpoints.ts'
import { type OnlyInRows, onlyInRows } from '../projector/only-in-rows.ts'
import { rebuildProjections } from '../projector/rebuild.ts'
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
  /** Events up to the log's head; null where its position means nothing in this log. */
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
      'select projection, count(*)::integer as parked from parked_events group by projection',
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

type Rebuild = {
  readonly projections: readonly Projection[]
  readonly reason: string
  readonly actor: string
  /** Asked with what a rebuild from a shorter log would forget; `false` leaves the rows as they are. */
  readonly mayForget: (lost: readonly OnlyInRows[]) => Promise<boolean>
  readonly onProgress: (progress: RebuildProgress) => void
}

/** Records who asked, folds the projections anew and switches to the new rows. */
export const rebuild = async (
  { url, eventLog, pool, eventLogName, secrets }: Foundation,
  { projections: chosen, reason, actor, mayForget, onProgress }: Rebuild,
): Promise<{ events: number; elapsedMs: number; switched: boolean }> => {
  const known = await knownEventLog(pool)
  await recordRebuild(eventLog, { projections: chosen.map(({ name }) => name), reason, actor })
  const rebuilt = await rebuildProjections({
    url,
    eventLog,
    seal: secrets.rowSeal,
    projections: chosen,
    mayReplace: async (client) => mayForget(await onlyInRows(client, chosen)),
    onProgress,
  })
  if (rebuilt.switched && known !== undefined && known !== eventLogName)
    await rememberEventLog(pool, eventLogName)
  return rebuilt
}

const recordRebuild = async (
  eventLog: EventLog,
  { projections: names, reason, actor }: { projections: string[]; reason: string; actor: string },
): Promise<void> => {
  const at = new Date().toISOString()
  await appendNext(eventLog, operatorStream, [
    encodeEvent(
      { type: 'RebuildRequested', data: { projections: names, reason } },
      { id: eventIdOf(operatorStream, `rebuild/${at}/${process.pid}`, 0), actor, effectiveAt: at },
    ),
  ])
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
