import type { Logger } from 'pino'
import type { Projection } from '../../../projections/projection.ts'
import type { DomainEventOf } from '../../events/catalogue.ts'
import type { Foundation } from '../../foundation/foundation.ts'
import { knownEventLog, rememberEventLog } from '../../foundation/own-event-log.ts'
import type { TotalDifference } from '../../projector/compare-totals.ts'
import { type OnlyInRows, onlyInRows } from '../../projector/only-in-rows.ts'
import { rebuildProjections } from '../../projector/rebuild.ts'
import { Cancelled, type RebuildProgress } from '../../projector/second-set.ts'
import { prepareProjections, rebuildLock } from '../../projector/tables.ts'
import { recordOperation } from '../operator-events.ts'

export type RebuildAsked = {
  readonly projections: readonly Projection[]
  readonly reason: string
  readonly actor: string
  readonly logger: Pick<Logger, 'fatal'>
  /** If true, the partial result of a killed rebuild is not used. */
  readonly anew?: boolean
  /** Called with everything that a rebuild from a shorter log would lose. If the result is false, the current rows are kept. */
  readonly mayForget: (lost: readonly OnlyInRows[]) => Promise<boolean>
  readonly onProgress: (progress: RebuildProgress) => void
}

type Ended = DomainEventOf<'RebuildEnded'>['data']

/** The interval at which the progress row is written and checked for a request to cancel. */
const beatMs = 500
const namedMax = 20
/** How long to wait until the server has ended the connection of a silent rebuild. */
const terminateMaxMs = 5_000

/**
 * Records the actor, rebuilds the projections and switches to the new rows. Throws `Cancelled` if the rebuild is cancelled, and
 * `TotalsDiffer` if the new rows do not have the totals of the event log. If the replaced rows were wrong, their figures are logged at
 * level fatal.
 */
export const rebuild = async (foundation: Foundation, asked: RebuildAsked) => {
  const { url, eventLog, pool, eventLogName, secrets } = foundation
  const { projections: chosen, reason, actor, mayForget, onProgress, logger, anew = false } = asked
  const known = await knownEventLog(pool)
  const names = chosen.map(({ name }) => name)
  const rebuildId = await recordOperation(
    eventLog,
    { type: 'RebuildRequested', data: { projections: names, reason } },
    { actor },
  )
  const row = await beginRow(foundation, { rebuildId, names, reason, actor })
  const end = async (
    ended: Pick<Ended, 'result' | 'events' | 'elapsed_ms'>,
    differences: readonly TotalDifference[],
    error?: unknown,
  ) => {
    await row.end(ended.result, differences, error)
    const named = differences.slice(0, namedMax)
    const data = {
      ...ended,
      rebuild_id: rebuildId,
      projections: names,
      differences: differences.length,
      named,
    }
    await recordOperation(eventLog, { type: 'RebuildEnded', data }, { actor })
  }
  try {
    const rebuilt = await rebuildProjections({
      url,
      eventLog,
      seal: secrets.rowSeal,
      projections: chosen,
      anew,
      signal: row.signal,
      mayReplace: async (client) => mayForget(await onlyInRows(client, chosen)),
      onProgress: (progress) => {
        row.beat(progress)
        onProgress(progress)
      },
    })
    const { switched, events, differences } = rebuilt
    if (switched && known !== undefined && known !== eventLogName) await rememberEventLog(pool, eventLogName)
    if (differences.length > 0)
      logger.fatal(
        { projections: names, differences: differences.length, named: differences.slice(0, namedMax) },
        'rebuild: the amounts of money in the replaced rows differed from the event log',
      )
    await end(
      { result: switched ? 'switched' : 'declined', events, elapsed_ms: Math.round(rebuilt.elapsedMs) },
      differences,
    )
    return { rebuildId, ...rebuilt }
  } catch (error) {
    const cancelled = row.signal.reason instanceof Cancelled
    const { events, elapsedMs } = row.last()
    await end(
      { result: cancelled ? 'cancelled' : 'failed', events, elapsed_ms: Math.round(elapsedMs) },
      [],
      error,
    ).catch(() => undefined)
    throw cancelled ? row.signal.reason : error
  } finally {
    row.close()
  }
}

/** Writes the progress row. The row also contains a request to cancel the rebuild. */
const beginRow = async (
  { pool }: Pick<Foundation, 'pool'>,
  {
    rebuildId,
    names,
    reason,
    actor,
  }: { rebuildId: string; names: readonly string[]; reason: string; actor: string },
) => {
  await pool.query(
    `insert into projection_rebuilds (rebuild_id, projections, actor, reason) values ($1, $2, $3, $4)`,
    [rebuildId, names, actor, reason],
  )
  const ending = new AbortController()
  let last: RebuildProgress = { position: 0n, target: 0n, events: 0, elapsedMs: 0 }
  let writing: Promise<void> | undefined
  const write = async (): Promise<void> => {
    const { rows } = await pool.query<{ cancelled_by: string | null }>(
      `update projection_rebuilds set position = $2, target = $3, events = $4, elapsed_ms = $5, updated_at = now()
        where rebuild_id = $1 returning cancelled_by`,
      [rebuildId, last.position.toString(), last.target.toString(), last.events, Math.round(last.elapsedMs)],
    )
    const by = rows[0]?.cancelled_by
    if (typeof by === 'string') ending.abort(new Cancelled(`the rebuild was cancelled by ${by}`))
  }
  const timer = setInterval(() => {
    // An error is ignored here, because the rebuild itself fails if the database is unavailable.
    writing ??= write()
      .catch(() => undefined)
      .finally(() => {
        writing = undefined
      })
  }, beatMs)
  return {
    signal: ending.signal,
    last: () => last,
    beat: (progress: RebuildProgress): void => {
      last = progress
    },
    end: async (
      result: Ended['result'],
      differences: readonly TotalDifference[],
      error?: unknown,
    ): Promise<void> => {
      clearInterval(timer)
      await writing
      await pool.query(
        `update projection_rebuilds set state = $2, position = $3, target = $4, events = $5, elapsed_ms = $6, differences = $7,
                error = $8, updated_at = now(), ended_at = now() where rebuild_id = $1`,
        [
          rebuildId,
          result,
          last.position.toString(),
          last.target.toString(),
          last.events,
          Math.round(last.elapsedMs),
          JSON.stringify(differences),
          error === undefined ? null : String(error instanceof Error ? error.message : error).slice(0, 1_000),
        ],
      )
    },
    close: (): void => clearInterval(timer),
  }
}

type RebuildRow = {
  readonly rebuild_id: string
  readonly projections: readonly string[]
  /** `interrupted`: the process of the rebuild has died, and the next rebuild continues from its partial result. */
  readonly state: 'running' | 'interrupted' | Ended['result']
  readonly position: string
  readonly target: string
  readonly events: number
  readonly events_per_second: number
  readonly started_at: Date
  readonly ended_at: Date | null
  readonly actor: string
  readonly reason: string
  readonly differences: readonly TotalDifference[]
  readonly error: string | null
}

const listedMax = 100
/** Without a heartbeat for this long, the process of a rebuild is dead. */
const silentMs = 20 * beatMs

/** The newest rebuilds, including running ones, newest first. */
export const rebuilds = async ({ pool }: Pick<Foundation, 'pool'>): Promise<RebuildRow[]> => {
  const { rows } = await pool.query<RebuildRow>(
    `select rebuild_id, projections, position, target, events::float8, started_at, ended_at, actor, reason, differences, error,
            coalesce(round(events * 1000.0 / nullif(elapsed_ms, 0)), 0)::float8 as events_per_second,
            case when state = 'running' and updated_at < now() - $1 * interval '1 ms' then 'interrupted' else state end as state
       from projection_rebuilds order by started_at desc limit $2`,
    [silentMs, listedMax],
  )
  return rows
}

/**
 * Cancels running rebuilds of these projections, in any process, and drops the partial results of killed or frozen ones. Returns the ids
 * of the cancelled rebuilds.
 */
export const cancelRebuilds = async (
  { pool }: Pick<Foundation, 'pool'>,
  { projections: chosen, actor }: { readonly projections: readonly Projection[]; readonly actor: string },
): Promise<string[]> => {
  const names = chosen.map(({ name }) => name)
  const { rows } = await pool.query<{ rebuild_id: string; state: string; projections: string[] }>(
    `update projection_rebuilds set cancelled_by = $2,
            state = case when updated_at < now() - $3 * interval '1 ms' then 'cancelled' else state end,
            ended_at = case when updated_at < now() - $3 * interval '1 ms' then now() end
      where state = 'running' and projections && $1::text[] returning rebuild_id, state, projections`,
    [names, actor, silentMs],
  )
  // The server keeps the connection of a process that is frozen, or whose host was lost, so the lock is kept too.
  const silent = rows.flatMap(({ state, projections }) => (state === 'cancelled' ? projections : []))
  await pool.query(
    `select pg_terminate_backend(pid, $2) from pg_locks
      where locktype = 'advisory' and database = (select oid from pg_database where datname = current_database())
        and (classid::bigint << 32 | objid::bigint) in (select hashtext(name) from unnest($1::text[]) as name)`,
    [silent.map((name) => rebuildLock({ name })), terminateMaxMs],
  )
  // The partial result of a killed rebuild is dropped here; a running rebuild drops its own.
  await pool.query(
    `delete from projection_builds b where name = any ($1::text[])
        and not exists (select from projection_rebuilds r where r.state = 'running' and b.name = any (r.projections))`,
    [names],
  )
  const client = await pool.connect()
  try {
    await prepareProjections(client, chosen)
  } finally {
    client.release()
  }
  return rows.map(({ rebuild_id }) => rebuild_id)
}
