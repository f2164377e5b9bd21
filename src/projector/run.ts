import { setTimeout as sleep } from 'node:timers/promises'
import pg from 'pg'
import type { Logger } from 'pino'
import type { Projection } from '../../projections/projection.ts'
import { createOutage } from '../event-log/outage.ts'
import type { EventLog, Position, RecordedEvent } from '../event-log/port.ts'
import { type Checkpoint, moveCheckpoints, readCheckpoints } from './checkpoints.ts'
import { eventByEvent, isDataError, type Poison, park } from './isolate.ts'
import { acquireLease, leaseRenewMs, releaseLease } from './lease.ts'
import { type Decoded, decodeBatch, foldBatch, within } from './project.ts'
import { rebuildProjection } from './rebuild.ts'
import { liveTable, prepareProjections, runStatements } from './tables.ts'

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
const failurePauseMaxMs = 10_000
/** How often a halted projection is looked at: a rebuild elsewhere may have brought it back to life. */
const revivalCheckMs = 5_000

export type ProjectorOptions = {
  readonly url: string
  readonly eventLog: EventLog
  readonly projections: readonly Projection[]
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
      await refuseFuture(await readCheckpoints(client), await eventLog.head())
      await buildRaisedVersions(client, signal)
      const standing = new Map<Projection, Position>()
      for (const checkpoint of await readCheckpoints(client)) {
        const projection = projections.find(({ name }) => name === checkpoint.name)
        if (projection === undefined || checkpoint.version !== projection.version) continue
        if (checkpoint.state === 'live') standing.set(projection, checkpoint.position)
        else
          logger.error(
            { projection: checkpoint.name, error: checkpoint.error },
            'projector: projection is halted; see projection list',
          )
      }
      if (standing.size === 0) return await pause(failurePauseMaxMs)
      const restart = new AbortController()
      const watching = setInterval(() => {
        countLive(pool, projections).then(
          (live) => live > standing.size && restart.abort(),
          () => undefined,
        )
      }, revivalCheckMs)
      const after = [...standing.values()].reduce((least, position) => (position < least ? position : least))
      const until = AbortSignal.any([signal, restart.signal])
      try {
        for await (const item of eventLog.subscribe({ after, prefixes: [], batchMax, signal: until })) {
          const startedAt = performance.now()
          if (item.kind === 'events')
            await projectAll(client, standing, item.events, { to: item.position, epoch })
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

  /** All projections in one transaction; when one of them cannot take the batch, each in its own. */
  const projectAll = async (
    client: pg.PoolClient,
    standing: Map<Projection, Position>,
    recorded: readonly RecordedEvent[],
    { to, epoch }: { to: Position; epoch: bigint },
  ): Promise<void> => {
    const decoded = decodeBatch(recorded)
    const first = recorded[0]?.position ?? to
    const level = [...standing].filter(([, position]) => position < to)
    const together = level.every(([, position]) => position < first)
    if (together && decoded.unreadable.length === 0) {
      try {
        await transaction(client, async () => {
          // First, so that a projector that was fenced touches no rows, and so that nobody who holds a checkpoint waits
          // for rows of somebody who waits for the checkpoint.
          await moveCheckpoints(
            client,
            level.map(([{ name, version }, from]) => ({ name, version, from })),
            { to, epoch },
          )
          for (const [projection] of level) {
            const { statements, poison } = foldBatch(projection, decoded, liveTable(projection))
            if (poison[0] !== undefined) throw new Error(poison[0].error)
            await runStatements(client, statements)
          }
        })
        for (const [projection] of level) standing.set(projection, to)
        return
      } catch (error) {
        if (!isDataError(error)) throw error
      }
    }
    for (const [projection, from] of level)
      await projectOne(client, standing, {
        projection,
        from,
        to,
        epoch,
        decoded: within(decoded, { after: from, to }),
      })
  }

  const projectOne = async (
    client: pg.PoolClient,
    standing: Map<Projection, Position>,
    {
      projection,
      from,
      to,
      epoch,
      decoded,
    }: { projection: Projection; from: Position; to: Position; epoch: bigint; decoded: Decoded },
  ): Promise<void> => {
    const { name } = projection
    const { statements, poison } = foldBatch(projection, decoded, liveTable(projection))
    const first = poison[0]
    try {
      await transaction(client, async () => {
        const halted = projection.money && first !== undefined
        await moveCheckpoints(client, [{ name, version: projection.version, from }], {
          to: halted ? lastBefore(decoded, first.position, from) : to,
          epoch,
        })
        await runStatements(client, statements)
        if (halted) await halt(client, name, `event ${first.position} of ${first.stream}: ${first.error}`)
        else for (const one of poison) await setAside(client, projection, one)
      })
    } catch (error) {
      if (!isDataError(error)) throw error
      await isolate(client, standing, { projection, from, to, epoch, decoded })
      return
    }
    if (projection.money && first !== undefined) giveUp(standing, projection, first.error)
    else standing.set(projection, to)
  }

  /** The database refuses what the fold made of a batch: event by event, to find which. */
  const isolate = async (
    client: pg.PoolClient,
    standing: Map<Projection, Position>,
    batch: {
      projection: Projection
      from: Position
      to: Position
      epoch: bigint
      decoded: Decoded
    },
  ): Promise<void> => {
    const { projection, to, epoch, decoded } = batch
    const { name } = projection
    let from = batch.from
    const move = async (position: Position): Promise<void> => {
      await moveCheckpoints(client, [{ ...projection, from }], { to: position, epoch })
    }
    const { ended } = await eventByEvent(projection, decoded, {
      table: liveTable(projection),
      write: async (position, statements) => {
        await transaction(client, async () => {
          await move(position)
          await runStatements(client, statements)
        })
        from = position
      },
      refused: async (poison) => {
        if (projection.money) {
          const reason = `event ${poison.position} of ${poison.stream}: ${poison.error}`
          await halt(client, name, reason)
          giveUp(standing, projection, reason)
          return
        }
        await transaction(client, async () => {
          await setAside(client, projection, poison)
          await move(poison.position)
        })
        from = poison.position
      },
    })
    if (ended) return
    if (from < to) await transaction(client, () => move(to))
    standing.set(projection, to)
  }

  const setAside = async (client: pg.PoolClient, projection: Projection, poison: Poison): Promise<void> => {
    await park(client, projection.name, poison)
    const { stream, error } = poison
    const fields = { projection: projection.name, stream, position: poison.position.toString(), error }
    if (projection.guards)
      logger.fatal(fields, 'projector: an event of a projection that guards is set aside')
    else logger.error(fields, 'projector: an event is set aside')
  }

  const giveUp = (standing: Map<Projection, Position>, projection: Projection, reason: string): void => {
    standing.delete(projection)
    logger.fatal(
      { projection: projection.name, reason },
      'projector: a money projection stopped; its figures are of before this event',
    )
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
        await rebuildProjection({ url, eventLog, projection, signal })
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

  const run = async (): Promise<void> => {
    let failures = 0
    while (!stopping.signal.aborted) {
      try {
        await underLease(follow)
        failures = 0
      } catch (error) {
        if (stopping.signal.aborted) return
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

/** A checkpoint ahead of the log: the log was replaced or restored from a backup. Going on would skip events. */
const refuseFuture = (checkpoints: readonly Checkpoint[], head: Position): void => {
  const ahead = checkpoints.filter(({ position }) => position > head)
  if (ahead.length > 0)
    throw new Error(
      `${ahead.map(({ name, position }) => `${name} at ${position}`).join(', ')}: ahead of the event log's head ${head}. ` +
        'The log was replaced or restored; run "projection rebuild --all" to fold it anew.',
    )
}

const countLive = async (pool: pg.Pool, projections: readonly Projection[]): Promise<number> => {
  const live = (await readCheckpoints(pool)).filter(({ state }) => state === 'live')
  return projections.filter((one) =>
    live.some(({ name, version }) => name === one.name && version === one.version),
  ).length
}

/** The place of the event before a position: positions are opaque, so there is no counting back. */
const lastBefore = ({ events }: Decoded, position: Position, otherwise: Position): Position =>
  events.findLast((event) => event.position < position)?.position ?? otherwise

const transaction = async (client: pg.PoolClient, work: () => Promise<void>): Promise<void> => {
  await client.query('begin')
  try {
    await work()
    await client.query('commit')
  } catch (error) {
    await client.query('rollback').catch(() => undefined)
    throw error
  }
}

const halt = (client: pg.PoolClient, name: string, error: string) =>
  client.query(
    `update projection_checkpoints set state = 'halted', error = $2, updated_at = now() where name = $1`,
    [name, error],
  )
