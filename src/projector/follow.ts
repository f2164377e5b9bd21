import { setTimeout as sleep } from 'node:timers/promises'
import type pg from 'pg'
import type { Projection } from '../../projections/projection.ts'
import { type LogPlace, logStart } from '../event-log/port.ts'
import { alone } from '../tracing/spans.ts'
import {
  type Checkpoint,
  haltProjections,
  readCheckpoints,
  readHaltedStreams,
  strayCheckpoints,
  strayMessage,
} from './checkpoints.ts'
import { createFolder } from './fold.ts'
import { onlyInRows } from './only-in-rows.ts'
import { rebuildProjections } from './rebuild.ts'
import type { ProjectorOptions, ProjectorWaits } from './run.ts'
import { liveTable, prepareProjections } from './tables.ts'
import { createBatchWriter, type Standing } from './write.ts'

const batchMax = 2_000

type Following = ProjectorOptions & {
  readonly waits: ProjectorWaits
  readonly pool: pg.Pool
  readonly epoch: bigint
  /** Aborts when the lease is lost or the projector is stopped. */
  readonly signal: AbortSignal
  /** Called after each processed item of the log. */
  readonly works: () => void
}

/** Follows the log until the signal aborts, or until a halted projection is live again. Throws if it fails. */
export const follow = async (following: Following): Promise<'ended' | 'all halted'> => {
  const { pool, epoch, projections } = following
  const client = await pool.connect()
  let broken: Error | undefined
  client.on('error', (error) => {
    broken = error
  })
  try {
    await prepareProjections(client, projections)
    await client.query('update projection_checkpoints set lease_epoch = $1 where lease_epoch <= $1', [
      epoch.toString(),
    ])
    await haltStray(client, following)
    await buildRaisedVersions(client, following)
    const { standing, known } = await openStanding(client, following)
    if (standing.size === 0) return 'all halted'
    await writeAll(client, { standing, known }, following)
    return 'ended'
  } finally {
    client.release(broken ?? true)
  }
}

type Level = { readonly standing: Set<Standing>; readonly known: LogPlace | undefined }

const writeAll = async (
  client: pg.PoolClient,
  { standing, known }: Level,
  { pool, eventLog, projections, epoch, signal, logger, works, waits }: Following,
): Promise<void> => {
  const { batchIntervalMs, revivalCheckMs } = waits
  const restart = new AbortController()
  const watching = setInterval(() => {
    countLive(pool, projections).then(
      (live) => live > standing.size && restart.abort(),
      () => undefined,
    )
  }, revivalCheckMs)
  const until = AbortSignal.any([signal, restart.signal])
  const writer = createBatchWriter({ client, standing, epoch, logger })
  const after = known?.position ?? logStart
  try {
    for await (const item of eventLog.subscribe({ after, known, prefixes: [], batchMax, signal: until })) {
      const startedAt = performance.now()
      if (item.kind === 'events') {
        const { events } = item
        await alone(
          'projector batch',
          () => ({ 'enrichment.events': events.length }),
          () => writer.write(events),
        )
      }
      works()
      if (standing.size === 0) return
      const took = performance.now() - startedAt
      if (item.kind === 'events' && item.events.length < batchMax && took < batchIntervalMs)
        await sleep(batchIntervalMs - took, undefined, { signal: until }).catch(() => undefined)
    }
  } finally {
    clearInterval(watching)
  }
}

const countLive = async (pool: pg.Pool, projections: readonly Projection[]): Promise<number> => {
  const live = (await readCheckpoints(pool)).filter(({ state }) => state === 'live')
  return projections.filter((one) =>
    live.some(({ name, version }) => name === one.name && version === one.version),
  ).length
}

/** Halts projections with a checkpoint whose event is not in the log. They stay halted until they are rebuilt. */
const haltStray = async (client: pg.PoolClient, { eventLog, logger }: Following): Promise<void> => {
  const live = (await readCheckpoints(client)).filter(({ state }) => state === 'live')
  const stray = await strayCheckpoints(eventLog, live)
  if (stray.length === 0) return
  const message = strayMessage(stray)
  const names = stray.map(({ name }) => name)
  await haltProjections(client, names, message)
  logger.fatal({ projections: names }, `projector: ${message}`)
}

const buildRaisedVersions = async (
  client: pg.PoolClient,
  { url, eventLog, seal, projections, signal, logger }: Following,
): Promise<void> => {
  for (const checkpoint of await readCheckpoints(client)) {
    const projection = projections.find(({ name }) => name === checkpoint.name)
    if (projection === undefined || checkpoint.version >= projection.version) continue
    const { name, version } = projection
    // The rows can contain facts that the log has lost, and only an operator can decide to discard them.
    const refuse = (): void =>
      logger.error(
        { projection: name },
        'projector: the new version is not used, because the event log was restored or replaced, or has lost events; run "projection rebuild --all"',
      )
    if ((await strayCheckpoints(eventLog, [checkpoint])).length > 0) {
      refuse()
      continue
    }
    logger.info(
      { projection: name, from: checkpoint.version, to: version },
      'projector: building a new version',
    )
    try {
      const mayReplace = async (next: pg.Client): Promise<boolean> =>
        (await onlyInRows(next, [projection])).length === 0
      const { switched } = await rebuildProjections({
        url,
        eventLog,
        seal,
        projections: [projection],
        signal,
        mayReplace,
      })
      if (!switched) refuse()
    } catch (error) {
      if (signal.aborted) throw error
      logger.fatal(
        { err: error, projection: name },
        'projector: the new version could not be built; readers continue to use the old one',
      )
    }
  }
}

const openStanding = async (
  client: pg.PoolClient,
  { projections, eventLog, seal, logger }: Following,
): Promise<Level> => {
  const standing = new Set<Standing>()
  let least: Pick<Checkpoint, 'position' | 'place'> | undefined
  const halted = await readHaltedStreams(client)
  for (const checkpoint of await readCheckpoints(client)) {
    const { name, version, generation, position, state, error } = checkpoint
    const projection = projections.find((one) => one.name === name)
    if (projection === undefined || version !== projection.version) continue
    if (state === 'halted') {
      logger.error({ projection: name }, `projector: ${name} is halted: ${error}`)
      continue
    }
    const folder = createFolder(projection, {
      table: liveTable(projection),
      eventLog,
      seal,
      halted: halted.flatMap((one) => (one.projection === name ? [one.stream] : [])),
    })
    standing.add({ folder, generation, position })
    if (least === undefined || position < least.position) least = checkpoint
  }
  return { standing, known: least?.place ?? undefined }
}
