import { access } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import pg from 'pg'
import type { Logger } from 'pino'
import { type Config, ConfigError } from '../../config.ts'
import type { Closing } from '../../foundation/closing.ts'
import { openDatabase } from '../../foundation/database.ts'
import { placeIn } from '../../foundation/embedded/cluster.ts'
import { startEmbeddedPostgres } from '../../foundation/embedded/embedded-postgres.ts'
import { migrate } from '../../foundation/migrate.ts'
import { nameOfEventLog } from '../../foundation/own-event-log.ts'
import { InputFault } from '../input.ts'

/** The two databases of a move. */

/** The move cannot begin, or go on, as things are. Nothing was changed by what threw it. */
export class MoveRefused extends Error {
  override name = 'MoveRefused'
}

export type MovePlace = {
  readonly url: string
  /** By the role that owns the schema. */
  readonly pool: pg.Pool
  /** For people, without secrets. */
  readonly name: string
}

const poolMax = 2
const connectTimeoutMs = 10_000

const ownPool = (connectionString: string, logger: Logger, closing: Closing): pg.Pool => {
  const pool = new pg.Pool({
    connectionString,
    max: poolMax,
    connectionTimeoutMillis: connectTimeoutMs,
    application_name: 'installation-move',
  })
  pool.on('error', (error) => logger.warn({ err: error }, 'idle database connection lost'))
  closing.add(() => pool.end())
  return pool
}

/**
 * The embedded PostgreSQL of a data directory, started for the move and at this release's schema. Refuses one that somebody
 * else has started: its service runs.
 */
export const openSource = async (
  dataDir: string,
  { logger, closing }: { readonly logger: Logger; readonly closing: Closing },
): Promise<MovePlace> => {
  const place = placeIn(dataDir)
  await access(join(place.cluster, 'PG_VERSION')).catch(() => {
    throw new InputFault('data-dir', `${place.dataDir} holds no embedded PostgreSQL of this service`)
  })
  const postgres = await startEmbeddedPostgres({ dataDir, logger, waitMs: 0 })
  closing.add(postgres.stop)
  if (postgres.role === 'guest')
    throw new MoveRefused(`the service in ${place.dataDir} runs. Stop it, all its processes, and move then`)
  await migrate({ url: postgres.url, serviceUrl: postgres.serviceUrl, logger })
  return { url: postgres.url, pool: ownPool(postgres.url, logger, closing), name: place.dataDir }
}

/** The database of the environment, migrated. Throws `ConfigError` where it cannot be used. */
export const openTarget = async (
  config: Config,
  {
    logger,
    waitMs,
    closing,
  }: { readonly logger: Logger; readonly waitMs: number; readonly closing: Closing },
): Promise<MovePlace> => {
  if (config.DATABASE_URL === undefined)
    throw new ConfigError(
      'DATABASE_URL: set it, and EVENT_LOG_URL for EventStoreDB, to where the installation is to go',
    )
  const { url, migrationUrl } = await openDatabase(config, { logger, waitMs, guest: false, closing })
  const { host, port, database } = new pg.Client({ connectionString: url })
  return {
    url,
    pool: ownPool(migrationUrl, logger, closing),
    name: `postgres://${host}:${port}/${database}, event log ${nameOfEventLog(config)}`,
  }
}

/** A process that ended has its connections for a moment longer. */
const leavingMs = 3_000
const leavingPollMs = 50

/** Refuses while anything but the move's own pool is connected to the database. */
export const refuseOthers = async ({ pool, name }: MovePlace): Promise<void> => {
  for (const until = performance.now() + leavingMs; ; await sleep(leavingPollMs)) {
    const { rows } = await pool.query<{ others: number }>(
      `select count(*)::int as others from pg_stat_activity
        where datname = current_database() and usesysid is not null and application_name <> 'installation-move'`,
    )
    const others = rows[0]?.others ?? 0
    if (others === 0) return
    if (performance.now() > until)
      throw new MoveRefused(
        `${others} other connections to the database of ${name} are open. Stop every process of the installation, and psql, and move then`,
      )
  }
}
