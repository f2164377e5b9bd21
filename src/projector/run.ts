import pg from 'pg'
import type { Logger } from 'pino'
import type { Projection, RowSeal } from '../../projections/projection.ts'
import { DatabaseClient } from '../concurrency/database-client.ts'
import type { EventLog } from '../event-log/port.ts'
import { Fenced } from './checkpoints.ts'
import { follow } from './follow.ts'
import { createHeldWork, failurePauseMaxMs, type HeldWork } from './held-work.ts'

/**
 * Turns events into rows. The process with the lease follows the event log, folds each batch in memory, and writes rows and
 * checkpoints in one transaction. Therefore, no event is missing or counted twice after a crash.
 */

const projectorWaits = {
  leaseRetryMs: 1_000,
  failurePauseMs: 500,
  /**
   * The minimum time between small batches, so that events are collected. A small batch costs as much as a large one.
   */
  batchIntervalMs: 100,
  /** How often to check whether a halted projection is live again, after a rebuild in another process. */
  revivalCheckMs: 5_000,
}

export type ProjectorWaits = Readonly<typeof projectorWaits>

/** The pause after `Fenced`, which is short, because the projector only has to start again. */
const fencedPauseMs = 50

export type ProjectorOptions = {
  readonly url: string
  readonly eventLog: EventLog
  readonly projections: readonly Projection[]
  /** Adds a keyed hash to each row, so that readers can verify that the projector wrote it. */
  readonly seal: RowSeal
  readonly logger: Logger
  /** An id that is unique among all processes that use the database. */
  readonly owner: string
  readonly waits?: Partial<ProjectorWaits>
}

export const createProjector = (options: ProjectorOptions): HeldWork => {
  const { url, logger, owner } = options
  const waits: ProjectorWaits = { ...projectorWaits, ...options.waits }
  const pool = new pg.Pool({
    Client: DatabaseClient,
    connectionString: url,
    max: 3,
    application_name: 'projector',
    connectionTimeoutMillis: 5_000,
  })
  pool.on('error', (error) => {
    // While the pool is being closed, lost connections are normal.
    if (!pool.ending) logger.warn({ err: error }, 'projector: lost an idle database connection')
  })
  const held = createHeldWork(
    pool,
    { ...waits, lease: { name: 'projector', owner }, logger, what: 'projector: folding' },
    async ({ epoch, signal, works, pause }) => {
      logger.info({ epoch: epoch.toString() }, 'projector: started')
      try {
        const ended = await follow({ ...options, waits, pool, epoch, signal, works })
        if (ended === 'all halted') await pause(failurePauseMaxMs)
      } catch (error) {
        if (!(error instanceof Fenced)) throw error
        logger.info(`projector: ${error.message}; continuing from the new place`)
        await pause(fencedPauseMs)
      }
    },
  )
  return {
    run: held.run,
    stop: async () => {
      await held.stop()
      await pool.end()
    },
  }
}
