import pg from 'pg'
import type { Projection, TableName } from '../../projections/projection.ts'
import { type EventLog, logStart, type Position } from '../event-log/port.ts'
import { concerns, decodeBatch, type Folded, foldBatch } from './project.ts'
import { createIndexes, createTables, createViews, liveTable, nextTable, runStatements } from './tables.ts'

/**
 * Folds a projection anew from the log's beginning into tables beside the live ones, while readers and the live
 * projector go on, and then switches in one transaction. A rebuild that dies leaves the live tables as they were.
 */

const batchMax = 5_000
/** What may be left to fold while the live projector waits for the switch. */
const switchLagMax = 2_000n

export type RebuildProgress = {
  readonly position: Position
  readonly target: Position
  readonly events: number
  readonly elapsedMs: number
}

export type RebuildOptions = {
  readonly url: string
  readonly eventLog: EventLog
  readonly projection: Projection
  readonly signal?: AbortSignal
  readonly onProgress?: (progress: RebuildProgress) => void
}

/** Rebuilds and switches. Resolves with the number of events read; throws where the projection cannot fold the log. */
export const rebuildProjection = async (
  options: RebuildOptions,
): Promise<{ events: number; elapsedMs: number }> => {
  const { projection } = options
  return beside(options, async (client, built) => {
    await client.query('begin')
    await client.query(`set local lock_timeout = '10s'`)
    const to = within(await lockCheckpoint(client, projection), await options.eventLog.head())
    await built.foldUpTo(to)
    for (const { name } of projection.tables) {
      await client.query(`drop view if exists ${name}`)
      await client.query(`drop table if exists ${liveTable(projection)(name)}`)
      await client.query(
        `alter table ${nextTable(projection)(name)} rename to ${liveTable(projection)(name)}`,
      )
    }
    await createViews(client, projection)
    await client.query('delete from parked_events where projection = $1', [projection.name])
    for (const { position, stream, error } of built.poison)
      await client.query(
        'insert into parked_events (projection, position, stream, error) values ($1, $2, $3, $4)',
        [projection.name, position.toString(), stream, error],
      )
    await client.query(
      `update projection_checkpoints set version = $2, position = $3, state = 'live', error = null, updated_at = now() where name = $1`,
      [projection.name, projection.version, to.toString()],
    )
    await client.query('commit')
    return built.told()
  })
}

export type Difference = {
  readonly table: string
  readonly live: number
  readonly rebuilt: number
  readonly onlyLive: string[]
  readonly onlyRebuilt: string[]
}

/**
 * Rebuilds beside the live tables and compares row for row at the same position; the live projector waits for the
 * length of the comparison, readers do not. Returns the differences, at most five rows of each side per table.
 */
export const verifyProjection = async (
  options: RebuildOptions,
): Promise<{ position: Position; rows: number; differences: Difference[] }> => {
  const { projection } = options
  return beside(options, async (client, built) => {
    await client.query('begin')
    const position = within(await lockCheckpoint(client, projection), await options.eventLog.head())
    await built.foldUpTo(position)
    const differences: Difference[] = []
    let rows = 0
    for (const { name } of projection.tables) {
      const [live, next] = [liveTable(projection)(name), nextTable(projection)(name)]
      const found = await client.query<{
        live: string
        rebuilt: string
        only_live: string[]
        only_rebuilt: string[]
      }>(
        `select (select count(*) from ${live}) as live, (select count(*) from ${next}) as rebuilt,
                array(select l::text from ${live} l except all select n::text from ${next} n limit 5) as only_live,
                array(select n::text from ${next} n except all select l::text from ${live} l limit 5) as only_rebuilt`,
      )
      const row = found.rows[0]
      if (row === undefined) continue
      rows += Number(row.rebuilt)
      if (row.only_live.length > 0 || row.only_rebuilt.length > 0 || row.live !== row.rebuilt)
        differences.push({
          table: name,
          live: Number(row.live),
          rebuilt: Number(row.rebuilt),
          onlyLive: row.only_live,
          onlyRebuilt: row.only_rebuilt,
        })
    }
    await client.query('rollback')
    return { position, rows, differences }
  })
}

type Built = {
  /** Folds everything after what is folded so far, up to and including a position. */
  foldUpTo(position: Position): Promise<void>
  /** What a read model without money could not fold. */
  readonly poison: Folded['poison']
  told(): { events: number; elapsedMs: number }
}

/** Builds the next tables nearly up to the live checkpoint, hands them to `then`, and removes what `then` left. */
const beside = async <Result>(
  { url, eventLog, projection, signal, onProgress }: RebuildOptions,
  then: (client: pg.Client, built: Built) => Promise<Result>,
): Promise<Result> => {
  const client = new pg.Client({ connectionString: url, application_name: `rebuild ${projection.name}` })
  client.on('error', () => undefined)
  await client.connect()
  const table = nextTable(projection)
  const startedAt = performance.now()
  let position = logStart
  let events = 0
  const poison: Folded['poison'][number][] = []
  const foldUpTo = async (to: Position): Promise<void> => {
    if (position >= to) return
    const done = new AbortController()
    const either = signal === undefined ? done.signal : AbortSignal.any([signal, done.signal])
    for await (const item of eventLog.subscribe({
      after: position,
      prefixes: projection.prefixes,
      batchMax,
      signal: either,
    })) {
      if (item.kind === 'events') {
        const wanted = item.events.filter(
          (event) => event.position <= to && concerns(projection, event.stream),
        )
        poison.push(...(await foldInto(client, { projection, table }, wanted)))
        events += wanted.length
      }
      position = item.position < to ? item.position : to
      onProgress?.({ position, target: to, events, elapsedMs: performance.now() - startedAt })
      if (item.position >= to) break
    }
    done.abort()
    signal?.throwIfAborted()
  }
  let exclusively = false
  try {
    const exclusive = await client.query<{ got: boolean }>(
      'select pg_try_advisory_lock(hashtext($1)) as got',
      [`rebuild ${projection.name}`],
    )
    if (exclusive.rows[0]?.got !== true)
      throw new Error(`${projection.name} is being rebuilt by another process; wait for it to end`)
    exclusively = true
    // Read models are disposable: a rebuild that loses its last commits in a crash starts again anyway.
    await client.query('set synchronous_commit = off')
    await createTables(client, projection, table)
    for (;;) {
      const target = within(await checkpointOf(client, projection), await eventLog.head())
      if (target - position <= switchLagMax) break
      await foldUpTo(target)
    }
    await createIndexes(client, projection, table)
    return await then(client, {
      foldUpTo,
      poison,
      told: () => ({ events, elapsedMs: performance.now() - startedAt }),
    })
  } finally {
    await client.query('rollback').catch(() => undefined)
    if (exclusively)
      for (const { name } of projection.tables)
        await client.query(`drop table if exists ${table(name)}`).catch(() => undefined)
    await client.end()
  }
}

/** A checkpoint ahead of the log, after the log was restored from a backup, is no place to fold up to. */
const within = (checkpoint: Position, head: Position): Position => (checkpoint < head ? checkpoint : head)

const foldInto = async (
  client: pg.Client,
  { projection, table }: { projection: Projection; table: TableName },
  recorded: Parameters<typeof decodeBatch>[0],
): Promise<Folded['poison']> => {
  const { statements, poison } = foldBatch(projection, decodeBatch(recorded), table)
  const first = poison[0]
  if (first !== undefined && projection.money)
    throw new Error(
      `${projection.name} cannot fold event ${first.position} of ${first.stream}: ${first.error}`,
    )
  await runStatements(client, statements)
  return poison
}

/** Holds the live projector where it is until the transaction ends, and tells where that is. */
const lockCheckpoint = async (client: pg.Client, projection: Projection): Promise<Position> =>
  positionFrom(
    await client.query('select position from projection_checkpoints where name = $1 for update', [
      projection.name,
    ]),
  )

const checkpointOf = async (client: pg.Client, projection: Projection): Promise<Position> =>
  positionFrom(
    await client.query('select position from projection_checkpoints where name = $1', [projection.name]),
  )

const positionFrom = ({ rows }: pg.QueryResult<{ position: string }>): Position =>
  BigInt(rows[0]?.position ?? 0)
