import pg from 'pg'
import type { Projection } from '../../projections/projection.ts'
import type { Change } from '../../projections/rows.ts'
import { type EventLog, logStart, type Position, placeOf } from '../event-log/port.ts'
import { readCheckpoints, readHaltedStreams, strayCheckpoints } from './checkpoints.ts'
import { createFolder, type Folded, type Folder, type Poison } from './fold.ts'
import { eventByEvent, isDataError, setAside } from './isolate.ts'
import { type Decoded, decodeBatch, within } from './project.ts'
import {
  createIndexes,
  createTables,
  createViews,
  liveTable,
  nextTable,
  rebuildLock,
  writeChanges,
} from './tables.ts'

/**
 * Folds projections anew from the log's beginning into tables beside the live ones, while readers and the live
 * projector go on, and then switches in one transaction. A rebuild that dies leaves the live tables as they were.
 * Several projections are folded together: the log is read and parsed once.
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
  readonly projections: readonly Projection[]
  /** A keyed hash: what rows carry so that their readers know them for the projector's. */
  readonly seal: (text: string) => string
  /**
   * Asked before the switch where the live rows were folded from a log that no longer holds what they stand at. False
   * leaves everything as it is. The tables being compared are named by `liveTable` and `nextTable`.
   */
  readonly mayReplace?: (client: pg.Client) => Promise<boolean>
  /** Throws before the switch where the rows of a stream would stop that do not stop now: for versions nobody asked for. */
  readonly noNewHalts?: boolean
  readonly signal?: AbortSignal
  readonly onProgress?: (progress: RebuildProgress) => void
}

/** Rebuilds and switches. Resolves with the number of events read, and whether the rows were switched. */
export const rebuildProjections = (
  options: RebuildOptions,
): Promise<{ events: number; elapsedMs: number; switched: boolean }> =>
  beside(options, async (client, builds, progress) => {
    const done = (switched: boolean) => ({
      events: progress.events,
      elapsedMs: performance.now() - progress.startedAt,
      switched,
    })
    const stray = await strayCheckpoints(options.eventLog, await readCheckpoints(client))
    const replaces = stray.some(({ name }) => builds.some(({ folder }) => folder.projection.name === name))
    if (replaces && options.mayReplace !== undefined) {
      const targets = await targetsOf(client, builds, options)
      await foldUpTo({ client, ...beginCommit }, builds, targets, options, progress)
      if (!(await options.mayReplace(client))) return done(false)
    }
    await client.query('begin')
    await client.query(`set local lock_timeout = '10s'`)
    await foldToCheckpoints(client, builds, options, progress)
    if (options.noNewHalts === true) await refuseNewHalts(client, builds)
    for (const { folder, position, poison } of builds) {
      const { projection } = folder
      for (const { name } of projection.tables) {
        await client.query(`drop view if exists ${name}`)
        await client.query(`drop table if exists ${liveTable(projection)(name)}`)
        await client.query(
          `alter table ${nextTable(projection)(name)} rename to ${liveTable(projection)(name)}`,
        )
      }
      await createViews(client, projection)
      for (const aside of ['parked_events', 'halted_streams'])
        await client.query(`delete from ${aside} where projection = $1`, [projection.name])
      for (const one of poison) await setAside(client, projection, one)
      const last = position === logStart ? null : await options.eventLog.at(position)
      if (last === null && position !== logStart)
        throw new Error(`the event log holds no event at ${position}, up to which it was folded`)
      const place = last === null ? null : placeOf(last)
      await client.query(
        `update projection_checkpoints set version = $2, position = $3, event_id = $4, digest = $5, state = 'live',
                error = null, generation = generation + 1, updated_at = now()
          where name = $1`,
        [
          projection.name,
          projection.version,
          position.toString(),
          place?.eventId ?? null,
          place?.digest ?? null,
        ],
      )
    }
    await client.query('commit')
    return done(true)
  })

const refuseNewHalts = async (client: pg.Client, builds: readonly Build[]): Promise<void> => {
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

export const rebuildProjection = ({
  projection,
  ...options
}: Omit<RebuildOptions, 'projections'> & { projection: Projection }): ReturnType<typeof rebuildProjections> =>
  rebuildProjections({ ...options, projections: [projection] })

export type Difference = {
  readonly table: string
  readonly live: number
  readonly rebuilt: number
  readonly onlyLive: string[]
  readonly onlyRebuilt: string[]
}

export type Verdict = {
  readonly name: string
  readonly position: Position
  readonly rows: number
  readonly differences: Difference[]
}

/**
 * Rebuilds beside the live tables and compares row for row at the same position; the live projector waits for the
 * length of the comparison, readers do not. Tells the differences, at most five rows of each side per table.
 */
export const verifyProjections = (options: RebuildOptions): Promise<Verdict[]> =>
  beside(options, async (client, builds, progress) => {
    await client.query('begin')
    await foldToCheckpoints(client, builds, options, progress)
    const verdicts: Verdict[] = []
    for (const { folder, position } of builds) {
      const { projection } = folder
      const compared = []
      for (const { name } of projection.tables) compared.push(await compare(client, projection, name))
      verdicts.push({
        name: projection.name,
        position,
        rows: compared.reduce((sum, { rebuilt }) => sum + rebuilt, 0),
        differences: compared.filter(
          ({ live, rebuilt, onlyLive, onlyRebuilt }) =>
            live !== rebuilt || onlyLive.length > 0 || onlyRebuilt.length > 0,
        ),
      })
    }
    await client.query('rollback')
    return verdicts
  })

export const verifyProjection = async ({
  projection,
  ...options
}: Omit<RebuildOptions, 'projections'> & { projection: Projection }): Promise<Verdict> => {
  const [verdict] = await verifyProjections({ ...options, projections: [projection] })
  if (verdict === undefined) throw new Error(`${projection.name} was not compared`)
  return verdict
}

const compare = async (client: pg.Client, projection: Projection, name: string): Promise<Difference> => {
  const [live, next] = [liveTable(projection)(name), nextTable(projection)(name)]
  const { rows } = await client.query<{
    live: string
    rebuilt: string
    only_live: string[]
    only_rebuilt: string[]
  }>(
    `select (select count(*) from ${live}) as live, (select count(*) from ${next}) as rebuilt,
            array(select l::text from ${live} l except all select n::text from ${next} n limit 5) as only_live,
            array(select n::text from ${next} n except all select l::text from ${live} l limit 5) as only_rebuilt`,
  )
  return {
    table: name,
    live: Number(rows[0]?.live),
    rebuilt: Number(rows[0]?.rebuilt),
    onlyLive: rows[0]?.only_live ?? [],
    onlyRebuilt: rows[0]?.only_rebuilt ?? [],
  }
}

/** A projection being folded into its next tables. */
type Build = {
  readonly folder: Folder
  position: Position
  readonly poison: Poison[]
}

type Progress = { events: number; readonly startedAt: number }

/** Builds the next tables nearly up to the live checkpoints, hands them to `then`, and removes what `then` left. */
const beside = async <Result>(
  options: RebuildOptions,
  then: (client: pg.Client, builds: Build[], progress: Progress) => Promise<Result>,
): Promise<Result> => {
  const { url, eventLog, seal, projections } = options
  const client = new pg.Client({ connectionString: url, application_name: 'rebuild' })
  client.on('error', () => undefined)
  await client.connect()
  const builds: Build[] = []
  const progress: Progress = { events: 0, startedAt: performance.now() }
  try {
    // Read models are disposable: a rebuild that loses its last commits in a crash starts again anyway.
    await client.query('set synchronous_commit = off')
    for (const projection of projections) {
      await exclusively(client, projection)
      const table = nextTable(projection)
      builds.push({
        folder: createFolder(projection, { table, eventLog, seal }),
        position: logStart,
        poison: [],
      })
      await createTables(client, projection, table)
    }
    for (;;) {
      const targets = await targetsOf(client, builds, options)
      if (builds.every(({ position }, i) => (targets[i] ?? 0n) - position <= switchLagMax)) break
      await foldUpTo({ client, ...beginCommit }, builds, targets, options, progress)
    }
    for (const { folder } of builds) await createIndexes(client, folder.projection, folder.table)
    return await then(client, builds, progress)
  } finally {
    await client.query('rollback').catch(() => undefined)
    for (const { folder } of builds)
      for (const { name } of folder.projection.tables)
        await client.query(`drop table if exists ${folder.table(name)}`).catch(() => undefined)
    await client.end()
  }
}

/** One rebuild of a projection at a time: they would share their next tables. */
const exclusively = async (client: pg.Client, projection: Projection): Promise<void> => {
  const { rows } = await client.query<{ got: boolean }>('select pg_try_advisory_lock(hashtext($1)) as got', [
    rebuildLock(projection),
  ])
  if (rows[0]?.got !== true)
    throw new Error(`${projection.name} is being rebuilt by another process; wait for it to end`)
}

/**
 * Holds the live projector where it is until the transaction ends, and folds each build up to exactly there.
 */
const foldToCheckpoints = async (
  client: pg.Client,
  builds: Build[],
  options: RebuildOptions,
  progress: Progress,
): Promise<void> => {
  await client.query(
    'select 1 from projection_checkpoints where name = any ($1::text[]) order by name for update',
    [builds.map(({ folder }) => folder.projection.name)],
  )
  const targets = await targetsOf(client, builds, options)
  await foldUpTo({ client, ...savepoint }, builds, targets, options, progress)
}

/**
 * How far each projection is to be folded: to its live checkpoint, or to the log's head where that is another log's, or
 * of this one before it was restored from an older copy.
 */
const targetsOf = async (
  client: pg.Client,
  builds: readonly Build[],
  { eventLog }: RebuildOptions,
): Promise<Position[]> => {
  const checkpoints = await readCheckpoints(client)
  const stray = new Set((await strayCheckpoints(eventLog, checkpoints)).map(({ name }) => name))
  const head = await eventLog.head()
  return builds.map(({ folder: { projection } }) => {
    const checkpoint = checkpoints.find(({ name }) => name === projection.name)
    return checkpoint === undefined || stray.has(projection.name) ? head : checkpoint.position
  })
}

/** Folds every build from where it stands to its target. Reading, folding and writing overlap by one batch each. */
const foldUpTo = async (
  writer: Writer,
  builds: readonly Build[],
  targets: readonly Position[],
  { eventLog, signal, onProgress }: RebuildOptions,
  progress: Progress,
): Promise<void> => {
  const target = targets.reduce((most, one) => (one > most ? one : most), logStart)
  const due = builds.flatMap((build, i) => {
    const to = targets[i] ?? logStart
    return build.position < to ? [{ build, to }] : []
  })
  if (due.length === 0) return
  const after = due.reduce((least, { build }) => (build.position < least ? build.position : least), target)
  const prefixes = [...new Set(due.flatMap(({ build }) => build.folder.projection.prefixes))]
  const done = new AbortController()
  const until = signal === undefined ? done.signal : AbortSignal.any([signal, done.signal])
  let writing: Promise<readonly Batch[]> = Promise.resolve([])
  try {
    for await (const item of readingAhead(eventLog.subscribe({ after, prefixes, batchMax, signal: until }))) {
      if (item.kind === 'events') {
        const decoded = decodeBatch(item.events)
        const batches = due.map(({ build, to }) => ({
          build,
          decoded: within(decoded, { after: build.position, to }),
        }))
        if (batches.some((one) => one.build.folder.needsRows(one.decoded))) {
          await isolateFailed(writer, await writing, [])
          writing = Promise.resolve([])
        }
        const ahead: Batch[] = []
        for (const one of batches) {
          await one.build.folder.prepare(writer.client, one.decoded)
          ahead.push({ ...one, ...one.build.folder.fold(one.decoded) })
        }
        progress.events += item.events.length
        const next = await isolateFailed(writer, await writing, ahead)
        writing = writeBatches(writer, next)
        // Awaited a batch later; until then a failure must not count as unhandled.
        writing.catch(() => undefined)
      }
      // Caught up: what stood in the log at the start was delivered, wherever the last event that concerns nobody here is.
      const reached = item.kind === 'caught-up' ? target : item.position
      for (const { build, to } of due) build.position = reached < to ? reached : to
      const position = reached < target ? reached : target
      onProgress?.({
        position,
        target,
        events: progress.events,
        elapsedMs: performance.now() - progress.startedAt,
      })
      if (reached >= target) {
        // The item asked for ahead may never come: only the abort lets go of it.
        done.abort()
        break
      }
    }
    await isolateFailed(writer, await writing, [])
  } finally {
    done.abort()
    await writing
  }
  signal?.throwIfAborted()
}

/** How a piece of work is begun, kept and undone: in a transaction of its own, or inside one that goes on. */
type Writer = {
  readonly client: pg.Client
  readonly begin: string
  readonly keep: string
  readonly undo: string
}
const beginCommit = { begin: 'begin', keep: 'commit', undo: 'rollback' }
const savepoint = {
  begin: 'savepoint piece',
  keep: 'release savepoint piece',
  undo: 'rollback to savepoint piece',
}

type Batch = Folded & { readonly build: Build; readonly decoded: Decoded }

/** Writes each build's batch whole. Resolves with those the database refused, of which nothing was written. */
const writeBatches = async (writer: Writer, batches: readonly Batch[]): Promise<Batch[]> => {
  const failed: Batch[] = []
  for (const batch of batches) {
    try {
      await writePiece(writer, batch.build.folder, batch.changes)
      batch.build.poison.push(...batch.poison)
    } catch (error) {
      if (!isDataError(error)) throw error
      failed.push(batch)
    }
  }
  return failed
}

/**
 * Writes refused batches event by event, as the live projector does it, and folds anew what was folded on top of them.
 */
const isolateFailed = async (
  writer: Writer,
  failed: readonly Batch[],
  ahead: readonly Batch[],
): Promise<readonly Batch[]> => {
  if (failed.length === 0) return ahead
  const builds = new Set(failed.map(({ build }) => build))
  for (const { build, undo } of ahead) if (builds.has(build)) undo()
  for (const { build, decoded, undo } of failed) {
    undo()
    await eventByEvent(build.folder, decoded, {
      write: (_, changes) => writePiece(writer, build.folder, changes),
      refused: async (poison) => {
        build.poison.push(poison)
      },
    })
  }
  return ahead.map((batch) =>
    builds.has(batch.build) ? { ...batch, ...batch.build.folder.fold(batch.decoded) } : batch,
  )
}

const writePiece = async (
  { client, begin, keep, undo }: Writer,
  { table }: Folder,
  changes: readonly Change[],
): Promise<void> => {
  if (changes.every(({ rows }) => rows.length === 0)) return
  await client.query(begin)
  try {
    await writeChanges(client, changes, table)
    await client.query(keep)
  } catch (error) {
    await client.query(undo).catch(() => undefined)
    throw error
  }
}

/** Asks for the next item before the last one has been dealt with. */
async function* readingAhead<T>(items: AsyncIterable<T>): AsyncGenerator<T> {
  const iterator = items[Symbol.asyncIterator]()
  try {
    let next = iterator.next()
    for (;;) {
      const item = await next
      if (item.done === true) return
      next = iterator.next()
      // Whoever stops early never looks at this one.
      next.catch(() => undefined)
      yield item.value
    }
  } finally {
    await iterator.return?.()
  }
}
