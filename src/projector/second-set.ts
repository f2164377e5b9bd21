import pg from 'pg'
import type { Projection, RowSeal, TableName } from '../../projections/projection.ts'
import { begin } from '../concurrency/transaction.ts'
import { type EventLog, logStart, type Position } from '../event-log/port.ts'
import { type Build, foldUp, inSavepoint, inTransaction } from './build.ts'
import { readCheckpoints, strayCheckpoints } from './checkpoints.ts'
import { noTotals, TotalsDiffer } from './compare-totals.ts'
import { createFolder } from './fold.ts'
import { beginNoted, endNoted, noteBuild, noteIndexed, readNoted } from './noted-build.ts'
import { createIndexes, createTables, dropTables, nextTable, rebuildLock, verifyTable } from './tables.ts'

/**
 * Projections that are rebuilt from the log into a second set of tables, while readers and the live projector continue to use the
 * live tables. All projections are folded together, so the log is read only once.
 */
export type SecondSet = {
  readonly client: pg.Client
  readonly options: SecondSetOptions
  readonly builds: readonly OpenBuild[]
  events: number
  readonly startedAt: number
}

type OpenBuild = Build & {
  /** The position from which the build started: after 0, it continued a killed build. */
  readonly from: Position
  readonly indexed: boolean
}

export type SecondSetOptions = {
  readonly url: string
  readonly eventLog: EventLog
  readonly projections: readonly Projection[]
  /** Adds a keyed hash to each row, so that readers can verify that the projector wrote it. */
  readonly seal: RowSeal
  readonly signal?: AbortSignal
  readonly onProgress?: (progress: RebuildProgress) => void
  /** If true, the tables of a killed rebuild are dropped, and the build starts at the beginning of the log. */
  readonly anew?: boolean
}

export type RebuildProgress = {
  readonly position: Position
  readonly target: Position
  readonly events: number
  readonly elapsedMs: number
}

/**
 * `replace`: the new tables will replace the live ones, and if this fails, the next rebuild can continue. `compare`: the new tables are
 * only compared with the live ones.
 */
type Purpose = 'replace' | 'compare'

const tablesFor: Readonly<Record<Purpose, (projection: Projection) => TableName>> = {
  replace: nextTable,
  compare: verifyTable,
}

/** The maximum number of events that can still be left to fold while the live projector is stopped for the switch. */
const switchLagMax = 2_000n

/** The rebuild was cancelled, and its tables were dropped. */
export class Cancelled extends Error {
  override name = 'Cancelled'
}

/**
 * Builds the new tables nearly up to the live checkpoints, calls `then`, and drops the tables that are left afterwards. After a failure,
 * tables with the purpose `replace` are kept for the next rebuild, except after `Cancelled` and `TotalsDiffer`.
 */
export const beside = async <Result>(
  purpose: Purpose,
  options: SecondSetOptions,
  then: (work: SecondSet) => Promise<Result>,
): Promise<Result> => {
  const client = new pg.Client({ connectionString: options.url, application_name: 'rebuild' })
  client.on('error', () => undefined)
  await client.connect()
  const builds: OpenBuild[] = []
  const work: SecondSet = { client, options, builds, events: 0, startedAt: performance.now() }
  let leaves = false
  try {
    // It does not matter if a crash loses the last commits, because the next rebuild continues from the commits before.
    await client.query('set synchronous_commit = off')
    for (const projection of options.projections)
      builds.push(await openBuild(client, projection, purpose, options))
    for (;;) {
      await aim(work)
      if (builds.every(({ position, target }) => target - position <= switchLagMax)) break
      await foldUp(work, inTransaction)
    }
    for (const build of builds) await index(work, build)
    return await then(work)
  } catch (error) {
    leaves = purpose === 'replace' && !(error instanceof Cancelled || error instanceof TotalsDiffer)
    throw error
  } finally {
    await client.query('rollback').catch(() => undefined)
    if (!leaves) for (const build of builds) await drop(client, build, purpose).catch(() => undefined)
    await client.end()
  }
}

const index = async ({ client }: SecondSet, { folder, indexed }: OpenBuild): Promise<void> => {
  if (indexed) return
  await client.query(begin)
  await createIndexes(client, folder.projection, folder.table)
  await noteIndexed(client, folder.projection)
  await client.query('commit')
}

const drop = async (client: pg.Client, { folder }: OpenBuild, purpose: Purpose): Promise<void> => {
  await dropTables(client, folder.projection, folder.table)
  if (purpose === 'replace') await endNoted(client, folder.projection)
}

/** Folds every build up to its current target, each batch in its own transaction. */
export const foldToTargets = async (work: SecondSet): Promise<void> => {
  await aim(work)
  await foldUp(work, inTransaction)
}

/** Stops the live projector until the end of the caller's transaction, and folds each build up to the exact position of the live rows. */
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
  purpose: Purpose,
  { eventLog, seal, anew = false }: SecondSetOptions,
): Promise<OpenBuild> => {
  await exclusively(client, projection)
  const table = tablesFor[purpose](projection)
  const totals = purpose === 'replace' && projection.totals !== undefined ? noTotals() : undefined
  const open = { folder: createFolder(projection, { table, eventLog, seal }), target: logStart, totals }
  if (purpose === 'compare') {
    await createTables(client, projection, table)
    return { ...open, position: logStart, from: logStart, indexed: true, poison: [] }
  }
  const note: Build['note'] = (to, poison) => noteBuild(client, projection, to, poison)
  const noted = anew ? null : await readNoted(client, eventLog, projection)
  if (noted !== null) {
    const { place, poison, indexed } = noted
    const halted = projection.money ? poison.map(({ stream }) => stream) : []
    const folder = createFolder(projection, { table, eventLog, seal, halted })
    return { ...open, folder, position: place.position, from: place.position, indexed, poison, note }
  }
  await client.query(begin)
  await createTables(client, projection, table)
  await beginNoted(client, projection)
  await client.query('commit')
  return { ...open, position: logStart, from: logStart, indexed: false, poison: [], note }
}

/** Allows only one rebuild of a projection at a time, because two rebuilds would write to the same tables. */
const exclusively = async (client: pg.Client, projection: Projection): Promise<void> => {
  const { rows } = await client.query<{ got: boolean }>('select pg_try_advisory_lock(hashtext($1)) as got', [
    rebuildLock(projection),
  ])
  if (rows[0]?.got !== true)
    throw new Error(
      `${projection.name} is being rebuilt by another process; wait for that rebuild, or cancel it with "projection cancel ${projection.name}"`,
    )
}

/**
 * Sets the target of each build to the projection's live checkpoint. If the log does not contain the event of that checkpoint, or if
 * there is none yet, the target is the end of the log.
 */
const aim = async ({ client, builds, options: { eventLog } }: SecondSet): Promise<void> => {
  const checkpoints = await readCheckpoints(client)
  const stray = new Set((await strayCheckpoints(eventLog, checkpoints)).map(({ name }) => name))
  const head = await eventLog.head()
  for (const build of builds) {
    const { name } = build.folder.projection
    const checkpoint = checkpoints.find((one) => one.name === name)
    const { position = logStart } = checkpoint ?? {}
    build.target = position === logStart || stray.has(name) ? head : position
  }
}
