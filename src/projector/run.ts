import { setTimeout as sleep } from 'node:timers/promises'
import pg from 'pg'
import type { Logger } from 'pino'
import type { Projection, RowSeal } from '../../projections/projection.ts'
import { createOutage } from '../event-log/outage.ts'
import type { EventLog } from '../event-log/port.ts'
import { Fenced } from './checkpoints.ts'
import { follow } from './follow.ts'
import { whileRenewed } from './held-lease.ts'
import { acquireLease } from './lease.ts'

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
const failurePauseMaxMs = 10_000
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

export type Projector = {
  /** Runs until stopped; never throws. */
  run(): Promise<void>
  stop(): Promise<void>
}

export const createProjector = (options: ProjectorOptions): Projector => {
  const { url, logger, owner } = options
  const waits: ProjectorWaits = { ...projectorWaits, ...options.waits }
  const lease = { name: 'projector', owner }
  const stopping = new AbortController()
  const pool = new pg.Pool({
    connectionString: url,
    max: 3,
    application_name: 'projector',
    connectionTimeoutMillis: 5_000,
  })
  pool.on('error', (error) => logger.warn({ err: error }, 'projector: idle connection lost'))
  const outage = createOutage({ logger, what: 'projector: folding', level: 'error' })
  let failures = 0
  let running: Promise<void> | undefined

  const pause = (ms: number): Promise<void> =>
    sleep(ms, undefined, { signal: stopping.signal }).catch(() => undefined)

  const works = (): void => {
    failures = 0
    outage.works()
  }

  const work = async (): Promise<void> => {
    const epoch = await acquireLease(pool, lease)
    if (epoch === null) return pause(waits.leaseRetryMs)
    await whileRenewed(pool, { lease, epoch, failed: outage.failed }, async (lost) => {
      logger.info({ epoch: epoch.toString() }, 'projector: started')
      const signal = AbortSignal.any([stopping.signal, lost])
      const ended = await follow({ ...options, waits, pool, epoch, signal, works })
      if (ended === 'all halted') await pause(failurePauseMaxMs)
    })
  }

  const run = async (): Promise<void> => {
    while (!stopping.signal.aborted) {
      try {
        await work()
      } catch (error) {
        if (stopping.signal.aborted) return
        if (error instanceof Fenced) {
          logger.info(`projector: ${error.message}, reading anew`)
          await pause(fencedPauseMs)
          continue
        }
        failures++
        outage.failed(error)
        await pause(Math.min(waits.failurePauseMs * 2 ** failures, failurePauseMaxMs))
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
