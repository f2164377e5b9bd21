import pg from 'pg'
import type { Logger } from 'pino'
import type { Projection, RowSeal } from '../../projections/projection.ts'
import type { EventLog } from '../event-log/port.ts'
import { Fenced } from './checkpoints.ts'
import { follow } from './follow.ts'
import { createHeldWork, failurePauseMaxMs, type HeldWork } from './held-work.ts'

/**
 * Moves facts to rows. One process at a time holds the lease; it follows the event log, folds each batch in memory
 * and writes rows and checkpoints in one transaction, so that a row is there exactly once whatever happens.
 */

/** How long a projector waits before it looks or tries again. */
export type ProjectorWaits = {
  readonly leaseRetryMs: number
  readonly failurePauseMs: number
  /** Small batches cost as much as large ones; under load a batch gathers at least this long. */
  readonly batchIntervalMs: number
  /** How often a halted projection is looked at: a rebuild elsewhere may have brought it back to life. */
  readonly revivalCheckMs: number
}

const projectorWaits: ProjectorWaits = {
  leaseRetryMs: 1_000,
  failurePauseMs: 500,
  batchIntervalMs: 100,
  revivalCheckMs: 5_000,
}
/** Its rows were replaced by a rebuild, or another projector has the lease: it only has to begin again. */
const fencedPauseMs = 50

export type ProjectorOptions = {
  readonly url: string
  readonly eventLog: EventLog
  readonly projections: readonly Projection[]
  /** A keyed hash: rows carry it so that their readers know them for the projector's. */
  readonly seal: RowSeal
  readonly logger: Logger
  /** Unique among the processes that share the database. */
  readonly owner: string
  /** Others than its own. */
  readonly waits?: Partial<ProjectorWaits>
}

export const createProjector = (options: ProjectorOptions): HeldWork => {
  const { url, logger, owner } = options
  const waits: ProjectorWaits = { ...projectorWaits, ...options.waits }
  const pool = new pg.Pool({
    connectionString: url,
    max: 3,
    application_name: 'projector',
    connectionTimeoutMillis: 5_000,
  })
  pool.on('error', (error) => {
    // The server may end connections that are being closed.
    if (!pool.ending) logger.warn({ err: error }, 'projector: idle connection lost')
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
        logger.info(`projector: ${error.message}, reading anew`)
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
