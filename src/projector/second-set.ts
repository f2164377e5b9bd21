import pg from 'pg'
import type { Projection } from '../../projections/projection.ts'
import { type EventLog, logStart, type Position } from '../event-log/port.ts'
import { type Build, foldUp, inSavepoint, inTransaction } from './build.ts'
import { readCheckpoints, strayCheckpoints } from './checkpoints.ts'
import { createFolder } from './fold.ts'
import { createIndexes, createTables, nextTable, rebuildLock } from './tables.ts'

/**
 * Projections being folded anew from the log's beginning into tables beside the live ones, while readers and the live
 * projector go on. Several are folded together: the log is read and parsed once. A process that dies meanwhile leaves the
 * live tables as they were.
 */
export type SecondSet = {
  readonly client: pg.Client
  readonly options: SecondSetOptions
  readonly builds: readonly Build[]
  /** Events read so far. */
  events: number
  readonly startedAt: number
}

export type SecondSetOptions = {
  readonly url: string
  readonly eventLog: EventLog
  readonly projections: readonly Projection[]
  /** A keyed hash: rows carry it so that their readers know them for the projector's. */
  readonly seal: (text: string) => string
  readonly signal?: AbortSignal
  readonly onProgress?: (progress: RebuildProgress) => void
}

export type RebuildProgress = {
  readonly position: Position
  readonly target: Position
  readonly events: number
  readonly elapsedMs: number
}

/** What may be left to fold while the live projector waits for the switch, in events. */
const switchLagMax = 2_000n

/** Builds the next tables nearly up to the live checkpoints, hands them to `then`, and drops what `then` left of them. */
export const beside = async <Result>(
  options: SecondSetOptions,
  then: (work: SecondSet) => Promise<Result>,
): Promise<Result> => {
  const client = new pg.Client({ connectionString: options.url, application_name: 'rebuild' })
  client.on('error', () => undefined)
  await client.connect()
  const builds: Build[] = []
  const work: SecondSet = { client, options, builds, events: 0, startedAt: performance.now() }
  try {
    // Read models are disposable: a rebuild that loses its last commits in a crash starts again anyway.
    await client.query('set synchronous_commit = off')
    for (const projection of options.projections) builds.push(await openBuild(client, projection, options))
    for (;;) {
      await aim(work)
      if (builds.every(({ position, target }) => target - position <= switchLagMax)) break
      await foldUp(work, inTransaction)
    }
    for (const { folder } of builds) await createIndexes(client, folder.projection, folder.table)
    return await then(work)
  } finally {
    await client.query('rollback').catch(() => undefined)
    for (const { folder } of builds)
      for (const { name } of folder.projection.tables)
        await client.query(`drop table if exists ${folder.table(name)}`).catch(() => undefined)
    await client.end()
  }
}

/** Folds every build up to its target as it is now, each batch in a transaction of its own. */
export const foldToTargets = async (work: SecondSet): Promise<void> => {
  await aim(work)
  await foldUp(work, inTransaction)
}

/** Holds the live projector where it is until the caller's transaction ends, and folds each build up to exactly there. */
export const foldToCheckpoints = async (work: SecondSet): Promise<void> => {
  await work.client.query(
    'select 1 from projection_checkpoints where name = any ($1::text[]) order by name for update',
    [work.builds.map(({ folder }) => folder.projection.name)],
  )
  await aim(work)
  await foldUp(work, inSavepoint)
}

const openBuild = async (
  client: pg.Client,
  projection: Projection,
  { eventLog, seal }: SecondSetOptions,
): Promise<Build> => {
  await exclusively(client, projection)
  const table = nextTable(projection)
  await createTables(client, projection, table)
  const folder = createFolder(projection, { table, eventLog, seal })
  return { folder, position: logStart, target: logStart, poison: [] }
}

/** One rebuild of a projection at a time: two would share the next tables. */
const exclusively = async (client: pg.Client, projection: Projection): Promise<void> => {
  const { rows } = await client.query<{ got: boolean }>('select pg_try_advisory_lock(hashtext($1)) as got', [
    rebuildLock(projection),
  ])
  if (rows[0]?.got !== true)
    throw new Error(`${projection.name} is being rebuilt by another process; wait for it to end`)
}

/**
 * Sets how far each projection is to be folded: to its live checkpoint. Where that checkpoint is of another log, or of this
 * one before it was restored from an older copy, to the log's head.
 */
const aim = async ({ client, builds, options: { eventLog } }: SecondSet): Promise<void> => {
  const checkpoints = await readCheckpoints(client)
  const stray = new Set((await strayCheckpoints(eventLog, checkpoints)).map(({ name }) => name))
  const head = await eventLog.head()
  for (const build of builds) {
    const { name } = build.folder.projection
    const checkpoint = checkpoints.find((one) => one.name === name)
    build.target = checkpoint === undefined || stray.has(name) ? head : checkpoint.position
  }
}
