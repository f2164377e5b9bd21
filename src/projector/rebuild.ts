import type pg from 'pg'
import type { Projection, TableName } from '../../projections/projection.ts'
import { logStart, placeOf } from '../event-log/port.ts'
import { type Checkpoint, readCheckpoints, readHaltedStreams, strayCheckpoints } from './checkpoints.ts'
import { compareTotals, type TotalDifference } from './compare-totals.ts'
import type { Poison } from './fold.ts'
import { setAside } from './isolate.ts'
import { dropKept, keptDays } from './kept.ts'
import { asideOf, endNoted } from './noted-build.ts'
import {
  beside,
  foldToCheckpoints,
  foldToTargets,
  type SecondSet,
  type SecondSetOptions,
} from './second-set.ts'
import { createViews, dropTables, keptTable, liveTable, nextTable, renameTables } from './tables.ts'

type RebuildOptions = SecondSetOptions & {
  /**
   * Asked before the switch where the live rows were folded from a log that no longer holds their place. False leaves
   * everything as it is. The tables to compare are named by `liveTable` and `nextTable`.
   */
  readonly mayReplace?: (client: pg.Client) => Promise<boolean>
  /** Throws before the switch where the rows of a stream would stop that do not stop now: for versions raised unasked. */
  readonly noNewHalts?: boolean
}

export type Rebuilt = {
  /** Read by this rebuild; one that was killed before had read the others. */
  readonly events: number
  readonly elapsedMs: number
  readonly switched: boolean
  /** Whether it went on with what another one had left. */
  readonly resumed: boolean
  /** Figures of money that the new rows and those they replaced do not agree in, at the same position. */
  readonly differences: readonly TotalDifference[]
}

/**
 * Folds projections anew and switches to the new tables in one transaction. Readers see the old rows until then. The old
 * rows are kept, for a rollback.
 */
export const rebuildProjections = (options: RebuildOptions): Promise<Rebuilt> =>
  beside('replace', options, async (work) => {
    const switched = await mayReplace(work, options)
    const differences = switched ? await switchTables(work, options) : []
    const resumed = work.builds.some(({ from }) => from > logStart)
    const elapsedMs = performance.now() - work.startedAt
    return { events: work.events, elapsedMs, switched, resumed, differences }
  })

const mayReplace = async (work: SecondSet, options: RebuildOptions): Promise<boolean> => {
  if (options.mayReplace === undefined) return true
  const stray = await strayCheckpoints(options.eventLog, await readCheckpoints(work.client))
  const replaced = work.builds.some(({ folder }) => stray.some(({ name }) => name === folder.projection.name))
  if (!replaced) return true
  await foldToTargets(work)
  return options.mayReplace(work.client)
}

const switchTables = async (work: SecondSet, { noNewHalts }: RebuildOptions): Promise<TotalDifference[]> => {
  const { client, builds, options } = work
  const differences: TotalDifference[] = []
  await client.query('begin')
  await client.query(`set local lock_timeout = '10s'`)
  await foldToCheckpoints(work)
  if (noNewHalts === true) await refuseNewHalts(work)
  const checkpoints = await readCheckpoints(client)
  const stray = await strayCheckpoints(options.eventLog, checkpoints)
  for (const { folder, position, poison } of builds) {
    const { projection } = folder
    const replaced = checkpoints.find(({ name }) => name === projection.name)
    if (replaced === undefined) throw new Error(`${projection.name} has no checkpoint`)
    // Rows of another history agree with nothing, and are of no use to roll back to; nor are those of before the first event.
    const keep = !stray.includes(replaced) && replaced.state === 'live' && replaced.position === position
    if (keep && replaced.version === projection.version)
      differences.push(
        ...(await compareTotals(client, projection, {
          live: liveTable(projection),
          rebuilt: nextTable(projection),
        })),
      )
    const last = position === logStart ? null : await options.eventLog.at(position)
    if (last === null && position !== logStart)
      throw new Error(`the event log holds no event at ${position}, up to which it was folded`)
    await switchTo(client, projection, {
      ...{ replaced, poison, keep, from: nextTable(projection) },
      place: last === null ? null : placeOf(last),
    })
    await endNoted(client, projection)
  }
  await client.query('commit')
  return differences
}

/** What takes the place of live rows, and whether those are kept. */
type Switch = {
  readonly replaced: Checkpoint
  readonly from: TableName
  /** The event up to which the rows were folded; null before the first. */
  readonly place: Checkpoint['place']
  readonly poison: readonly Poison[]
  readonly keep: boolean
}

/**
 * Puts other tables in the place of a projection's live ones, in the caller's transaction, which holds the checkpoint. The new
 * generation fences the projector, and tells whoever holds rows in memory that they were replaced.
 */
export const switchTo = async (
  client: pg.ClientBase,
  projection: Projection,
  { replaced, from, place, poison, keep }: Switch,
): Promise<void> => {
  const { name, version } = projection
  const [live, old] = [liveTable(projection), liveTable(replaced)]
  const was = (table: string): string => `${old(table)}_was`
  for (const table of projection.tables) await client.query(`drop view if exists ${table.name}`)
  await renameTables(client, projection, { from: old, to: was })
  await renameTables(client, projection, { from, to: live })
  const aside = keep ? await readAside(client, projection) : []
  await dropKept(client, projection)
  if (keep) {
    await renameTables(client, projection, { from: was, to: keptTable(replaced) })
    await client.query(
      `insert into projection_kept (name, version, generation, position, event_id, digest, aside, kept_until)
       select name, version, generation, position, event_id, digest, $2, now() + $3 * interval '1 d'
         from projection_checkpoints where name = $1`,
      [name, asideOf(aside), keptDays],
    )
  } else await dropTables(client, projection, was)
  await createViews(client, projection)
  await client.query('delete from halted_streams where projection = $1', [name])
  // That an event was released is not forgotten where it is met again.
  await client.query(
    'delete from parked_events where projection = $1 and (released_at is null or position <> all ($2::bigint[]))',
    [name, poison.map(({ position }) => position.toString())],
  )
  for (const one of poison) await setAside(client, projection, one)
  await client.query(
    `update projection_checkpoints set version = $2, position = $3, event_id = $4, digest = $5, state = 'live',
            error = null, generation = generation + 1, updated_at = now()
      where name = $1`,
    [name, version, (place?.position ?? logStart).toString(), place?.eventId ?? null, place?.digest ?? null],
  )
}

const readAside = async (client: pg.ClientBase, { name }: Projection): Promise<Poison[]> => {
  const { rows } = await client.query<{ position: string; stream: string; error: string }>(
    `select position, stream, error from parked_events where projection = $1 and released_at is null
     union all select position, stream, error from halted_streams where projection = $1`,
    [name],
  )
  return rows.map(({ position, ...row }) => ({ position: BigInt(position), ...row }))
}

const refuseNewHalts = async ({ client, builds }: SecondSet): Promise<void> => {
  const halted = await readHaltedStreams(client)
  for (const { folder, poison } of builds) {
    const { name, money } = folder.projection
    const fresh = poison.find(
      ({ stream }) => !halted.some((one) => one.projection === name && one.stream === stream),
    )
    if (money && fresh !== undefined)
      throw new Error(`${name} cannot fold event ${fresh.position} of ${fresh.stream}: ${fresh.error}`)
  }
}
