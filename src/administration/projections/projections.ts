import { projections as allProjections } from '../../../projections/index.ts'
import { deadlineSignal, within } from '../../concurrency/deadline.ts'
import type { EventLog, Position, RecordedEvent } from '../../event-log/port.ts'
import type { Foundation } from '../../foundation/foundation.ts'
import {
  type HaltedStream,
  readCheckpoints,
  readHaltedStreams,
  strayCheckpoints,
  strayMessage,
} from '../../projector/checkpoints.ts'

export type ProjectionState = {
  readonly name: string
  readonly version: number
  /** Also `halted` if the event log no longer contains the last event in the rows. */
  readonly state: 'live' | 'halted'
  readonly error: string | null
  readonly position: Position
  /** The distance to the log's head: in events in PostgreSQL, in bytes in EventStoreDB. Null if the position does not belong to this log. */
  readonly behind: bigint | null
  /** The number of events that were set aside, at most 1,000, which is enough to show that a release is broken. */
  readonly parked: number
  readonly haltedStreams: readonly HaltedStream[]
  readonly updatedAt: Date
}

/** The position of every projection, and the end of the event log. */
export const projectionStates = async ({
  pool,
  eventLog,
}: Pick<Foundation, 'pool'> & { readonly eventLog: Pick<EventLog, 'at' | 'head'> }): Promise<{
  head: Position
  states: ProjectionState[]
}> => {
  const [head, checkpoints, parked, halted] = await Promise.all([
    eventLog.head(),
    readCheckpoints(pool),
    pool.query<{ projection: string; parked: number }>(
      `select c.projection, count(*)::integer as parked
         from (select name as projection from projection_checkpoints) c
        cross join lateral (select 1 from parked_events p
                             where p.projection = c.projection and p.released_at is null limit $1) p
        group by c.projection`,
      [parkedMax],
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
      // The head and the checkpoints were not read in one snapshot, so a checkpoint can be ahead of the head.
      behind: ended ? null : position < head ? head - position : 0n,
      parked: parked.rows.find(({ projection }) => projection === name)?.parked ?? 0,
      haltedStreams: halted.filter(({ projection }) => projection === name),
    }
  })
  return { head, states }
}

const parkedMax = 1_000

export type ProjectionLag = Omit<ProjectionState, 'behind'> & {
  /** The distance from the projection's position to the event log's head: in events in PostgreSQL, in bytes in EventStoreDB. */
  readonly behind: bigint
  /** The age of the oldest event that the projection has not folded; 0 if it has folded all events. */
  readonly seconds: number
}

type LagOptions = Pick<Foundation, 'pool'> & {
  readonly eventLog: Pick<EventLog, 'at' | 'head' | 'subscribe'>
  /** The age of the newest event. By default, the time since this process first saw it, so that two clocks are not compared. */
  readonly headAgeMs?: (last: RecordedEvent) => number
  readonly monotonic?: () => number
}

/** Measures the lag of rows behind the event log. The returned function throws if the log or the database does not answer. */
export function createProjectionLags({
  pool,
  eventLog,
  headAgeMs,
  monotonic = () => performance.now(),
}: LagOptions): () => Promise<readonly ProjectionLag[]> {
  // Projections of other releases are left out, because their checkpoints do not advance.
  const names = new Set(allProjections.map(({ name }) => name))
  let newest: { readonly position: Position; readonly seenAtMs: number } | undefined
  return async () => {
    const { head, states } = await projectionStates({ pool, eventLog })
    if (head !== newest?.position) newest = { position: head, seenAtMs: monotonic() }
    const { seenAtMs } = newest
    const known = states.filter(({ name }) => names.has(name))
    // Most projections are at the same position, so each position is read only once.
    const places = [...new Set(known.map(({ position }) => position))].filter((place) => place < head)
    const ages = new Map(
      await Promise.all(
        places.map(
          async (after) =>
            [
              after,
              await ageOfNext(eventLog, { after, head }, headAgeMs ?? (() => monotonic() - seenAtMs)),
            ] as const,
        ),
      ),
    )
    return known.map((state) => {
      const { position } = state
      return {
        ...state,
        behind: position < head ? head - position : 0n,
        seconds: ages.get(position) ?? 0,
      }
    })
  }
}

const nextMaxMs = 1_000

/**
 * The age in seconds of the event after a position. The log's clock measures the time from this event to the log's head, and the
 * clock of this process the time since then.
 */
async function ageOfNext(
  eventLog: Pick<EventLog, 'at' | 'subscribe'>,
  { after, head }: { readonly after: Position; readonly head: Position },
  headAgeMs: (last: RecordedEvent) => number,
): Promise<number> {
  const enough = new AbortController()
  const signal = deadlineSignal(nextMaxMs, enough.signal)
  const next = async (): Promise<number | null> => {
    for await (const item of eventLog.subscribe({ after, prefixes: [], batchMax: 1, signal })) {
      const [first] = item.kind === 'events' ? item.events : []
      if (first !== undefined) {
        const last = first.position === head ? first : await eventLog.at(head)
        if (last === null) return null
        return (Math.max(0, last.recordedAtMs - first.recordedAtMs) + Math.max(0, headAgeMs(last))) / 1_000
      }
      if (item.kind === 'caught-up') return 0
    }
    return null
  }
  try {
    // The wait is limited here, because a subscription reacts to the abort only when the log answers.
    const seconds = await within(next(), { waitMs: nextMaxMs }, () => null)
    if (seconds === null) throw new Error('the event log does not report the age of an event')
    return seconds
  } finally {
    enough.abort()
  }
}
