import type pg from 'pg'
import { deadlineSignal, within } from '../concurrency/deadline.ts'
import { remembered } from '../concurrency/remembered.ts'
import type { EventLog, Position } from '../event-log/port.ts'
import { type DiskWatch, spaceText } from '../guard/disk-space.ts'
import type { Ledger } from '../ledger/commit.ts'
import {
  type Checkpoint,
  type HaltedStream,
  readCheckpoints,
  readHaltedStreams,
  strayCheckpoints,
} from '../projector/checkpoints.ts'

/**
 * Whether this process can do its work, asked of everything it depends on. Asked by load balancers and by Prometheus,
 * so it costs the same however often they ask: one look a second, shared by all who ask meanwhile, and at most
 * one question under way to each dependency, however long the answer takes.
 */

const rememberedMs = 1_000
/** Of one question. Two are asked one after the other, so a look takes two seconds at most. */
const deadlineMs = 1_000
/** Rows older than this are no longer what the dashboard may show as the present. */
export const lagSecondsMax = 60

export type ProjectionLag = {
  readonly name: string
  /** Between its checkpoint and the event log's head, in the log's own positions. */
  readonly behind: bigint
  /** Age of the oldest event its rows do not show; 0 when there is none. */
  readonly seconds: number
  readonly halted: boolean
  /** Streams whose rows have stopped, while the others go on. */
  readonly haltedStreams: readonly string[]
}

/** `degraded`: works, with less than it should have. */
type CheckStatus = 'ok' | 'degraded' | 'failed' | 'timed_out'
export type Check = {
  readonly status: CheckStatus
  readonly lag_seconds?: number
  /** Projections that are halted, or whose log was restored under them. */
  readonly halted?: readonly string[]
  /** Streams whose rows have stopped: named where rows are shown, counted elsewhere. */
  readonly halted_streams?: readonly string[] | number
  /** A sentence for a person. */
  readonly detail?: string
}

type Readiness = {
  readonly ready: boolean
  readonly checks: Readonly<Record<string, Check>>
}

export type Health = {
  /**
   * `showsRows`: this host shows read models, so late ones make it unready. Calls do not read
   * them: if a late projector took calls away, a delayed statement would become an outage.
   */
  readiness(options: { showsRows: boolean }): Promise<Readiness>
  /** Null: the log or the database did not answer within the deadline. */
  projectionLags(): Promise<readonly ProjectionLag[] | null>
}

/** A read model in memory: stale from the moment it no longer follows the event log. Calls depend on it. */
export type LiveModel = {
  readonly name: string
  /** Null while it follows. */
  failure(): Error | null
}

export type HealthOptions = {
  readonly eventLog: Pick<EventLog, 'at' | 'head' | 'subscribe'>
  /** Where this process writes: not ready while appends fail, or once the log was found to be another one. */
  readonly ledger?: Pick<Ledger, 'failure'>
  readonly pool: pg.Pool
  /** Not ready while calls are refused for want of room. */
  readonly diskSpace?: Pick<DiskWatch, 'seen'>
  /** Measures durations; the time of day is the log's own, and never compared with this machine's. */
  readonly monotonic: () => number
  readonly projections: readonly { readonly name: string }[]
  /** Held in memory and fed by the event log; what the name says is checked under that name. */
  readonly liveModels?: readonly LiveModel[]
  /** Undefined where rate limits were never meant to be shared. */
  readonly rateLimitsShared?: () => boolean
  /** Null while all processes count rate limits together; otherwise what to do about it. */
  readonly rateLimitsApart?: () => string | null
}

type Told<Value> = { readonly value: Value } | { readonly status: 'failed' | 'timed_out' }

export const createHealth = ({
  eventLog,
  ledger,
  pool,
  diskSpace,
  monotonic,
  projections,
  liveModels = [],
  rateLimitsShared,
  rateLimitsApart = () => null,
}: HealthOptions): Health => {
  const names = new Set(projections.map(({ name }) => name))
  const head = askedInTime(() => eventLog.head())
  const checkpoints = askedInTime(async () => {
    // A checkpoint of a projection that this version no longer has never moves again.
    const standing = (await readCheckpoints(pool)).filter(({ name }) => names.has(name))
    return { standing, halted: await readHaltedStreams(pool) }
  })
  let compared: readonly Checkpoint[] = []
  // A question to the event log: what fails here is no fault of the database.
  const strays = askedInTime(
    async () => new Set((await strayCheckpoints(eventLog, compared)).map(({ name }) => name)),
  )

  let newest: { readonly position: Position; readonly seenAtMs: number } | undefined

  const look = async () => {
    const [headTold, checkpointsTold] = await Promise.all([head(), checkpoints()])
    if ('value' in headTold && headTold.value !== newest?.position)
      newest = { position: headTold.value, seenAtMs: monotonic() }
    if (!('value' in headTold && 'value' in checkpointsTold))
      return { logStatus: statusOf(headTold), checkpointsTold, lags: null }
    const { standing, halted } = checkpointsTold.value
    compared = standing
    const [straysTold, ages] = await Promise.all([
      strays(),
      agesOf(standing, headTold.value, (after) =>
        within(
          ageOfNext(eventLog, after, {
            head: headTold.value,
            headSeenMs: monotonic() - (newest?.seenAtMs ?? monotonic()),
          }),
          // A subscription notices its end only when what it has asked the log comes back.
          { waitMs: deadlineMs },
          () => null,
        ),
      ),
    ])
    const lags =
      'value' in straysTold
        ? lagsOf({ standing, halted, stray: straysTold.value }, headTold.value, ages)
        : null
    return { logStatus: statusOf(straysTold), checkpointsTold, lags }
  }
  const looked = remembered(look, { keptMs: rememberedMs })

  return {
    projectionLags: async () => (await looked()).lags,
    readiness: async ({ showsRows }) => {
      const { logStatus, checkpointsTold, lags } = await looked()
      const checks: Record<string, Check> = {
        event_log: { status: logStatus },
        database: { status: statusOf(checkpointsTold) },
        projections: checkOf(lags, showsRows),
      }
      if (ledger !== undefined) checks.ledger = { status: ledger.failure() === null ? 'ok' : 'failed' }
      const disk = diskSpace?.seen() ?? null
      if (disk !== null) checks.disk_space = { status: diskStatus[disk.state], detail: spaceText(disk.space) }
      // Asked each time: it costs nothing, and a revoked key must not pass for as long as a look is remembered.
      for (const { name, failure } of liveModels)
        checks[name] = { status: failure() === null ? 'ok' : 'failed' }
      const apart = rateLimitsApart()
      if (apart !== null) checks.rate_limiter = { status: 'degraded', detail: apart }
      else if (rateLimitsShared !== undefined)
        checks.rate_limiter = { status: rateLimitsShared() ? 'ok' : 'degraded' }
      const ready = Object.values(checks).every(({ status }) => status === 'ok' || status === 'degraded')
      return { ready, checks }
    },
  }
}

const diskStatus = { ok: 'ok', low: 'degraded', full: 'failed' } as const

const statusOf = (told: Told<unknown>): CheckStatus => ('value' in told ? 'ok' : told.status)

const checkOf = (lags: readonly ProjectionLag[] | null, showsRows: boolean): Check => {
  // Unknown because the log or the database is away: their own checks say so.
  if (lags === null) return { status: showsRows ? 'failed' : 'degraded' }
  const seconds = Math.max(0, ...lags.map((lag) => lag.seconds))
  const late = seconds > lagSecondsMax || lags.some(({ halted }) => halted)
  const streams = [...new Set(lags.flatMap(({ haltedStreams }) => haltedStreams))]
  const status = late ? (showsRows ? 'failed' : 'degraded') : streams.length > 0 ? 'degraded' : 'ok'
  const halted = lags.flatMap((lag) => (lag.halted ? [lag.name] : []))
  return {
    status,
    lag_seconds: Math.round(seconds * 1000) / 1000,
    ...(halted.length === 0 ? {} : { halted }),
    ...(streams.length === 0 ? {} : { halted_streams: showsRows ? streams : streams.length }),
  }
}

type Ages = ReadonlyMap<Position, number | null>

/** How old the events are that rows do not show yet, by the positions of the rows that are behind. */
const agesOf = async (
  standing: readonly Checkpoint[],
  head: Position,
  ageAfter: (after: Position) => Promise<number | null>,
): Promise<Ages> => {
  // Most are at the same position, so there are fewer questions than projections.
  const places = [...new Set(standing.map(({ position }) => position))].filter((place) => place < head)
  return new Map(await Promise.all(places.map(async (place) => [place, await ageAfter(place)] as const)))
}

/** Null when the log does not say how old an event is. */
const lagsOf = (
  {
    standing,
    stray,
    halted,
  }: {
    standing: readonly Checkpoint[]
    stray: ReadonlySet<string>
    halted: readonly HaltedStream[]
  },
  head: Position,
  ages: Ages,
): readonly ProjectionLag[] | null => {
  const lags: ProjectionLag[] = []
  for (const checkpoint of standing) {
    const { name, position, state } = checkpoint
    const seconds = position < head ? ages.get(position) : 0
    if (seconds === undefined || seconds === null) return null
    lags.push({
      name,
      behind: position < head ? head - position : 0n,
      seconds,
      halted: state === 'halted' || stray.has(name),
      haltedStreams: halted.flatMap(({ projection, stream }) => (projection === name ? [stream] : [])),
    })
  }
  return lags
}

/**
 * How long ago the event after a position was recorded, seconds: by the log's clock up to its head, and from when the
 * head was first seen by ours. Null: no answer within the deadline.
 */
const ageOfNext = async (
  eventLog: Pick<EventLog, 'at' | 'subscribe'>,
  after: Position,
  { head, headSeenMs }: { head: Position; headSeenMs: number },
): Promise<number | null> => {
  const enough = new AbortController()
  const signal = deadlineSignal(deadlineMs, enough.signal)
  try {
    for await (const item of eventLog.subscribe({ after, prefixes: [], batchMax: 1, signal })) {
      const [first] = item.kind === 'events' ? item.events : []
      if (first !== undefined) {
        const last = first.position === head ? first : await eventLog.at(head)
        if (last === null) return null
        return (Math.max(0, last.recordedAtMs - first.recordedAtMs) + headSeenMs) / 1000
      }
      if (item.kind === 'caught-up') return 0
    }
    return null
  } catch {
    return null
  } finally {
    enough.abort()
  }
}

/** Asks, and waits no longer than the deadline. A question still under way is waited for, not asked again. */
const askedInTime = <Value>(ask: () => Promise<Value>): (() => Promise<Told<Value>>) => {
  const asked = remembered(() =>
    ask().then(
      (value): Told<Value> => ({ value }),
      (): Told<Value> => ({ status: 'failed' }),
    ),
  )
  return () => within(asked(), { waitMs: deadlineMs }, () => ({ status: 'timed_out' as const }))
}
