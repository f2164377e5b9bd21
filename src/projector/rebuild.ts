import type pg from 'pg'
import { begin } from '../concurrency/transaction.ts'
import { logStart, placeOf } from '../event-log/port.ts'
import type { Build } from './build.ts'
import { type Checkpoint, readCheckpoints, readHaltedStreams, strayCheckpoints } from './checkpoints.ts'
import { compareWithLog, type TotalDifference, TotalsDiffer } from './compare-totals.ts'
import { setAside } from './isolate.ts'
import { endNoted } from './noted-build.ts'
import {
  beside,
  foldToCheckpoints,
  foldToTargets,
  type SecondSet,
  type SecondSetOptions,
} from './second-set.ts'
import { createViews, dropTables, liveTable, nextTable, renameTables } from './tables.ts'

type RebuildOptions = SecondSetOptions & {
  /**
   * Called before the switch if the log lacks the event of a live checkpoint, or events of a ledger. If it returns false, nothing is changed.
   * The rows to compare are in the views and in the tables that `nextTable` names.
   */
  readonly mayReplace?: (client: pg.Client) => Promise<boolean>
}

export type Rebuilt = {
  /** The number of events that this rebuild has read, without those that a killed rebuild had read before. */
  readonly events: number
  readonly elapsedMs: number
  readonly switched: boolean
  /** Whether this rebuild continued a killed one. */
  readonly resumed: boolean
  /** The totals that differed between the replaced rows and the log. */
  readonly differences: readonly TotalDifference[]
}

/**
 * Rebuilds projections, and then switches to the new tables in one transaction. Readers see the old rows until then. If the new rows
 * of a money projection do not have the totals of the log, throws `TotalsDiffer` and keeps the old rows.
 */
export const rebuildProjections = (options: RebuildOptions): Promise<Rebuilt> =>
  beside('replace', options, async (work) => {
    const switched = await mayReplace(work, options)
    const differences = switched ? await switchTables(work) : []
    const resumed = work.builds.some(({ from }) => from > logStart)
    const elapsedMs = performance.now() - work.startedAt
    return { events: work.events, elapsedMs, switched, resumed, differences }
  })

const mayReplace = async (work: SecondSet, options: RebuildOptions): Promise<boolean> => {
  if (options.mayReplace === undefined) return true
  await foldToTargets(work)
  const stray = await strayCheckpoints(options.eventLog, await readCheckpoints(work.client))
  const lacking = work.builds.some(
    ({ folder, totals }) =>
      totals?.lacking === true || stray.some(({ name }) => name === folder.projection.name),
  )
  return lacking ? options.mayReplace(work.client) : true
}

const switchTables = async (work: SecondSet): Promise<TotalDifference[]> => {
  const { client, builds, options } = work
  const differences: TotalDifference[] = []
  await client.query(begin)
  await client.query(`set local lock_timeout = '10s'`)
  await foldToCheckpoints(work)
  const checkpoints = await readCheckpoints(client)
  const stray = await strayCheckpoints(options.eventLog, checkpoints)
  for (const build of builds) {
    const { projection } = build.folder
    const replaced = checkpoints.find(({ name }) => name === projection.name)
    if (replaced === undefined) throw new Error(`${projection.name} has no checkpoint`)
    // The live rows cannot be compared if they were folded from other events, or are at a different position.
    const comparable = !stray.includes(replaced) && replaced.position === build.position
    if (comparable) await refuseNewHalts(work, build)
    await refuseOtherTotals(work, build)
    if (comparable && replaced.state === 'live' && replaced.version === projection.version)
      differences.push(...(await differencesOf(work, build)))
    await switchTo(work, build, replaced)
    await endNoted(client, projection)
  }
  await client.query('commit')
  return differences
}

/** Throws if a ledger would be halted in the new tables, but is not halted in the live tables. */
const refuseNewHalts = async (
  { client }: SecondSet,
  { folder: { projection }, totals, poison }: Build,
): Promise<void> => {
  const { name } = projection
  if (totals === undefined || poison.length === 0) return
  const halted = await readHaltedStreams(client)
  const fresh = poison.find(
    ({ stream }) => !halted.some((one) => one.projection === name && one.stream === stream),
  )
  if (fresh !== undefined)
    throw new Error(
      `${name} was not replaced, because it cannot fold event ${fresh.position} of ${fresh.stream}: ${fresh.error}`,
    )
}

const refuseOtherTotals = async (
  { client }: SecondSet,
  { folder: { projection, table }, totals, poison }: Build,
): Promise<void> => {
  if (totals === undefined) return
  const [first, ...more] = await compareWithLog(client, projection, { table, totals, poison })
  if (first === undefined) return
  const { organization_id, figure, rows, log } = first
  throw new TotalsDiffer(
    `${projection.name} was not replaced: for ${organization_id} the rebuilt rows have ${figure} ${rows ?? 'nothing'}, and the event log has ${log ?? 'nothing'}${more.length === 0 ? '' : `; ${more.length} more figures differ`}. The live rows are unchanged. Report this as a bug.`,
  )
}

/** Returns the totals in which the live rows differ from the rebuilt rows. */
const differencesOf = async (
  { client }: SecondSet,
  { folder: { projection }, totals, poison }: Build,
): Promise<TotalDifference[]> => {
  if (totals === undefined) return []
  const found = await compareWithLog(client, projection, { table: liveTable(projection), totals, poison })
  return found.map(({ rows: live, log: rebuilt, ...one }) => ({
    projection: projection.name,
    ...one,
    live,
    rebuilt,
  }))
}

/**
 * Replaces a projection's live tables with the rebuilt tables, in the caller's transaction, which must have locked the checkpoint. The
 * new generation prevents the projector from writing to the old tables, and shows other processes that the rows in their memory are out
 * of date.
 */
const switchTo = async (
  { client, options: { eventLog } }: SecondSet,
  { folder: { projection }, position, poison }: Build,
  replaced: Checkpoint,
): Promise<void> => {
  const { name, version } = projection
  const last = position === logStart ? null : await eventLog.at(position)
  if (last === null && position !== logStart)
    throw new Error(`the event log has no event at ${position}, up to which the rows were folded`)
  for (const table of projection.tables) await client.query(`drop view if exists ${table.name}`)
  await dropTables(client, projection, liveTable(replaced))
  await renameTables(client, projection, { from: nextTable(projection), to: liveTable(projection) })
  await createViews(client, projection)
  await client.query('delete from halted_streams where projection = $1', [name])
  // If an operator has released an event, it stays released even if the rebuild has set it aside again.
  await client.query(
    'delete from parked_events where projection = $1 and (released_at is null or position <> all ($2::bigint[]))',
    [name, poison.map((one) => one.position.toString())],
  )
  for (const one of poison) await setAside(client, projection, one)
  await client.query(
    `update projection_checkpoints set version = $2, position = $3, event_id = $4, digest = $5, state = 'live',
            error = null, generation = generation + 1, updated_at = now()
      where name = $1`,
    [name, version, position.toString(), last?.id ?? null, last === null ? null : placeOf(last).digest],
  )
}
