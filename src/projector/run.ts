import { setTimeout as sleep } from 'node:timers/promises'
import pg from 'pg'
import type { Logger } from 'pino'
import type { Projection } from '../../projections/projection.ts'
import { createOutage } from '../event-log/outage.ts'
import { type EventLog, type LogPlace, logStart } from '../event-log/port.ts'
import {
  type Checkpoint,
  Fenced,
  haltProjections,
  readCheckpoints,
  readHaltedStreams,
  strayCheckpoints,
  strayMessage,
} from './checkpoints.ts'
import { createFolder } from './fold.ts'
import { acquireLease, leaseRenewMs, releaseLease } from './lease.ts'
import { rebuildProjection } from './rebuild.ts'
import { liveTable, prepareProjections } from './tables.ts'
import { createBatchWriter, type Standing } from './write.ts'

/**
 * Moves facts to rows. One process at a time holds the lease; it follows the event log, folds each batch in memory
 * and writes rows and checkpoints in one transaction, so that a row is there exactly once whatever happens.
 */

const leaseName = 'projector'
const batchMax = 2_000
/** Small batches cost as much as large ones; under load a batch gathers at least this long. */
const batchIntervalMs = 100
const leaseRetryMs = 1_000
const failurePauseMs = 500
/** Its rows were replaced by a rebuild, or another projector has the lease: asking again is all there is to it. */
const fencedPauseMs = 50
const failurePauseMaxMs = 10_000
/** How often a halted projection is looked at: a rebuild elsewhere may have brought it back to life. */
const revivalCheckMs = 5_000

export type ProjectorOptions = {
  readonly url: string
  readonly eventLog: EventLog
  readonly projections: readonly Projection[]
  /** A keyed hash: what rows carry so that their readers know them for the projector's. */
  readonly seal: (text: string) => string
  readonly logger: Logger
  /** Unique among the processes that share the database. */
  readonly owner: string
}

export type Projector = {
  /** Runs until stopped; never throws. */
  run(): Promise<void>
  stop(): Promise<void>
}

export const createProjector = ({
  url,
  eventLog,
  projections,
  seal,
  logger,
  owner,
}: ProjectorOptions): Projector => {
  const stopping = new AbortController()
  const pool = new pg.Pool({
    connectionString: url,
    max: 3,
    application_name: 'projector',
    connectionTimeoutMillis: 5_000,
  })
  pool.on('error', (error) => logger.warn({ err: error }, 'projector: idle connection lost'))
  const outage = createOutage({ logger, what: 'projector: folding', level: 'error' })
  let running: Promise<void> | undefined

  /** Holds the lease while `work` runs; `work`'s signal aborts when the lease is lost. */
  const underLease = async (work: (epoch: bigint, signal: AbortSignal) => Promise<void>): Promise<void> => {
    const epoch = await acquireLease(pool, { name: leaseName, owner })
    if (epoch === null) {
      await pause(leaseRetryMs)
      return
    }
    const lost = new AbortController()
    const renewing = setInterval(() => {
      acquireLease(pool, { name: leaseName, owner }).then(
        (again) => {
          if (again !== epoch) lost.abort()
        },
        (error: unknown) => {
          outage.failed(error)
          lost.abort()
        },
      )
    }, leaseRenewMs)
    try {
      logger.info({ epoch: epoch.toString() }, 'projector: started')
      await work(epoch, AbortSignal.any([stopping.signal, lost.signal]))
    } finally {
      clearInterval(renewing)
      await releaseLease(pool, { name: leaseName, owner }).catch(() => undefined)
    }
  }

  const follow = async (epoch: bigint, signal: AbortSignal): Promise<void> => {
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
      await haltStray(client)
      await buildRaisedVersions(client, signal)
      const { standing, known } = await openStanding(client)
      if (standing.size === 0) return await pause(failurePauseMaxMs)
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
        for await (const item of eventLog.subscribe({
          after,
          known,
          prefixes: [],
          batchMax,
          signal: until,
        })) {
          const startedAt = performance.now()
          if (item.kind === 'events') await writer.write(item.events)
          failures = 0
          outage.works()
          if (standing.size === 0) return
          const took = performance.now() - startedAt
          if (item.kind === 'events' && item.events.length < batchMax && took < batchIntervalMs)
            await sleep(batchIntervalMs - took, undefined, { signal: until }).catch(() => undefined)
        }
      } finally {
        clearInterval(watching)
      }
    } finally {
      client.release(broken ?? true)
    }
  }

  /** Rows of another history are not gone on from: their projections stay halted until they are rebuilt. */
  const haltStray = async (client: pg.PoolClient): Promise<void> => {
    const live = (await readCheckpoints(client)).filter(({ state }) => state === 'live')
    const stray = await strayCheckpoints(eventLog, live)
    if (stray.length === 0) return
    const message = strayMessage(stray)
    await haltProjections(
      client,
      stray.map(({ name }) => name),
      message,
    )
    logger.fatal({ projections: stray.map(({ name }) => name) }, `projector: ${message}`)
  }

  /** The projections that can be gone on with, and the event the one furthest behind stands at. */
  const openStanding = async (
    client: pg.PoolClient,
  ): Promise<{ standing: Set<Standing>; known: LogPlace | undefined }> => {
    const standing = new Set<Standing>()
    let least: Checkpoint | undefined
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

  const buildRaisedVersions = async (client: pg.PoolClient, signal: AbortSignal): Promise<void> => {
    for (const checkpoint of await readCheckpoints(client)) {
      const projection = projections.find(({ name }) => name === checkpoint.name)
      if (projection === undefined || checkpoint.version >= projection.version) continue
      logger.info(
        { projection: projection.name, from: checkpoint.version, to: projection.version },
        'projector: building a new version',
      )
      try {
        await rebuildProjection({ url, eventLog, seal, projection, signal, noNewHalts: true })
      } catch (error) {
        if (signal.aborted) throw error
        logger.fatal(
          { err: error, projection: projection.name },
          'projector: a new version cannot be built; readers keep the old one',
        )
      }
    }
  }

  const pause = (ms: number): Promise<void> =>
    sleep(ms, undefined, { signal: stopping.signal }).catch(() => undefined)

  let failures = 0
  const run = async (): Promise<void> => {
    while (!stopping.signal.aborted) {
      try {
        await underLease(follow)
      } catch (error) {
        if (stopping.signal.aborted) return
        if (error instanceof Fenced) {
          logger.info(`projector: ${error.message}, reading anew`)
          await pause(fencedPauseMs)
          continue
        }
        failures++
        outage.failed(error)
        await pause(Math.min(failurePauseMs * 2 ** failures, failurePauseMaxMs))
      }
    }
  }

  return {
    run: () => (running ??= run()),
    stop: async () => {
      stopping.abort()
      await running
      await pool.end()
    },
  }
}

const countLive = async (pool: pg.Pool, projections: readonly Projection[]): Promise<number> => {
  const live = (await readCheckpoints(pool)).filter(({ state }) => state === 'live')
  return projections.filter((one) =>
    live.some(({ name, version }) => name === one.name && version === one.version),
  ).length
}
