import type pg from 'pg'
import { logStart, placeOf } from '../event-log/port.ts'
import type { Build } from './build.ts'
import { readCheckpoints, readHaltedStreams, strayCheckpoints } from './checkpoints.ts'
import { setAside } from './isolate.ts'
import {
  beside,
  foldToCheckpoints,
  foldToTargets,
  type SecondSet,
  type SecondSetOptions,
} from './second-set.ts'
import { createViews, liveTable, nextTable } from './tables.ts'

type RebuildOptions = SecondSetOptions & {
  /**
   * Asked before the switch where the live rows were folded from a log that no longer holds their place. False leaves
   * everything as it is. The tables to compare are named by `liveTable` and `nextTable`.
   */
  readonly mayReplace?: (client: pg.Client) => Promise<boolean>
  /** Throws before the switch where the rows of a stream would stop that do not stop now: for versions raised unasked. */
  readonly noNewHalts?: boolean
}

export type Rebuilt = { readonly events: number; readonly elapsedMs: number; readonly switched: boolean }

/** Folds projections anew and switches to the new tables in one transaction. Readers see the old rows until then. */
export const rebuildProjections = (options: RebuildOptions): Promise<Rebuilt> =>
  beside(options, async (work) => {
    const switched = await mayReplace(work, options)
    if (switched) await switchTables(work, options)
    return { events: work.events, elapsedMs: performance.now() - work.startedAt, switched }
  })

const mayReplace = async (work: SecondSet, options: RebuildOptions): Promise<boolean> => {
  if (options.mayReplace === undefined) return true
  const stray = await strayCheckpoints(options.eventLog, await readCheckpoints(work.client))
  const replaced = work.builds.some(({ folder }) => stray.some(({ name }) => name === folder.projection.name))
  if (!replaced) return true
  await foldToTargets(work)
  return options.mayReplace(work.client)
}

const switchTables = async (work: SecondSet, { noNewHalts }: RebuildOptions): Promise<void> => {
  const { client, builds } = work
  await client.query('begin')
  await client.query(`set local lock_timeout = '10s'`)
  await foldToCheckpoints(work)
  if (noNewHalts === true) await refuseNewHalts(work)
  for (const build of builds) {
    const { projection } = build.folder
    const [live, next] = [liveTable(projection), nextTable(projection)]
    for (const { name } of projection.tables) {
      await client.query(`drop view if exists ${name}`)
      await client.query(`drop table if exists ${live(name)}`)
      await client.query(`alter table ${next(name)} rename to ${live(name)}`)
    }
    await createViews(client, projection)
    for (const aside of ['parked_events', 'halted_streams'])
      await client.query(`delete from ${aside} where projection = $1`, [projection.name])
    for (const poison of build.poison) await setAside(client, projection, poison)
    await moveTo(work, build)
  }
  await client.query('commit')
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

/** The live checkpoint names the event up to which the new rows were folded, and a new generation fences the projector. */
const moveTo = async ({ client, options }: SecondSet, { folder, position }: Build): Promise<void> => {
  const last = position === logStart ? null : await options.eventLog.at(position)
  if (last === null && position !== logStart)
    throw new Error(`the event log holds no event at ${position}, up to which it was folded`)
  const place = last === null ? null : placeOf(last)
  const { name, version } = folder.projection
  await client.query(
    `update projection_checkpoints set version = $2, position = $3, event_id = $4, digest = $5, state = 'live',
            error = null, generation = generation + 1, updated_at = now()
      where name = $1`,
    [name, version, position.toString(), place?.eventId ?? null, place?.digest ?? null],
  )
}
