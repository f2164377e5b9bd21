import pg from 'pg'
import type { Logger } from 'pino'
import { projections } from '../../projections/index.ts'
import { DatabaseClient } from '../concurrency/database-client.ts'
import { type Config, ConfigError } from '../config.ts'
import { prepareProjections } from '../projector/tables.ts'
import type { Closing } from './closing.ts'
import { connectedWithin, DatabaseUnfit, refuseUnsuited } from './database-connection.ts'
import { RoleUnfit } from './database-roles.ts'
import { runningPostgres, startEmbeddedPostgres } from './embedded/server.ts'
import { type MigrateOptions, migrate, pendingMigrations } from './migrate.ts'
import { withSessionSettings } from './session-settings.ts'

export type Database = {
  readonly url: string
  /** The URL of the role that owns the schema. It is needed for migrations, and for `vacuum`, which skips tables of other roles. */
  readonly migrationUrl: string
  readonly pool: pg.Pool
}

type OnLost = ((error: Error) => void) | undefined

const poolMax = 8
const connectTimeoutMs = 5_000
const queryTimeoutMs = 30_000
/** Connections are replaced after this time, because they can still lead to the old server after a failover. */
const connectionLifetimeSeconds = 60

/** Opens the operator's database or starts the embedded one, and migrates it. Throws `ConfigError`. */
export const openDatabase = async (
  config: Config,
  {
    logger,
    waitMs,
    onLost,
    closing,
    upTo,
  }: {
    readonly logger: Logger
    readonly waitMs: number
    /** See `startEmbeddedPostgres`. */
    readonly onLost?: OnLost
    readonly closing: Closing
    /** See `migrate`. */
    readonly upTo?: number
  },
): Promise<Database> => {
  const { url, migrationUrl, stop } = await locateDatabase(config, { logger, waitMs, onLost })
  closing.add(stop)
  const variable = migrationVariable(config)
  const isOwn = config.DATABASE_URL === undefined
  if (!isOwn) await naming(variable, () => refuseUnsuited(migrationUrl, waitMs, logger))
  const pool = new pg.Pool({
    Client: DatabaseClient,
    connectionString: url,
    max: poolMax,
    connectionTimeoutMillis: connectTimeoutMs,
    query_timeout: queryTimeoutMs,
    maxLifetimeSeconds: connectionLifetimeSeconds,
    application_name: 'read-models',
  })
  pool.on('error', (error) => {
    // While the pool is being closed, lost connections are normal.
    if (!pool.ending) logger.warn({ err: error }, 'lost an idle database connection')
  })
  closing.add(() => pool.end())
  await migrateNamed(variable, { url: migrationUrl, serviceUrl: url, logger, waitMs, ...(upTo && { upTo }) })
  // Only after the migrations, which create the role in DATABASE_URL.
  if (!isOwn && url !== migrationUrl) await naming('DATABASE_URL', () => refuseUnsuited(url, waitMs, logger))
  return { url, migrationUrl, pool }
}

/**
 * Reads the database as the role that owns its schema, without migrations. Does not create an embedded PostgreSQL: if there is no database
 * yet, `look` gets null. Throws the same errors as `openDatabase`.
 */
export const beforeMigrations = async <Found>(
  config: Config,
  { logger, waitMs }: { readonly logger: Logger; readonly waitMs: number },
  look: (client: pg.Client | null) => Promise<Found>,
): Promise<Found> => {
  if (config.DATABASE_URL === undefined && (await runningPostgres(config.DATA_DIR)).state === 'none')
    return look(null)
  const { migrationUrl, stop } = await locateDatabase(config, { logger, waitMs })
  try {
    const client = await connectedWithin(migrationUrl, waitMs, logger)
    return await look(client).finally(() => client.end())
  } finally {
    await stop()
  }
}

/** Returns the names of the migrations that `openDatabase` would apply, without applying them. Throws the same errors as `openDatabase`. */
export const migrationsToApply = (
  config: Config,
  options: { readonly logger: Logger; readonly waitMs: number },
): Promise<string[]> => beforeMigrations(config, options, pendingMigrations)

const locateDatabase = async (
  config: Config,
  options: { logger: Logger; waitMs: number; onLost?: OnLost },
): Promise<{ url: string; migrationUrl: string; stop(): Promise<void> }> => {
  if (config.DATABASE_URL !== undefined)
    return {
      url: withSessionSettings(config.DATABASE_URL),
      migrationUrl: withSessionSettings(config.DATABASE_MIGRATION_URL ?? config.DATABASE_URL),
      stop: async () => undefined,
    }
  const { url, serviceUrl, stop } = await startEmbeddedPostgres({ dataDir: config.DATA_DIR, ...options })
  return { url: withSessionSettings(serviceUrl), migrationUrl: withSessionSettings(url), stop }
}

/** The variable with the URL that migrations use. */
const migrationVariable = ({ DATABASE_URL, DATABASE_MIGRATION_URL }: Config): string => {
  if (DATABASE_URL === undefined) return 'DATA_DIR'
  return DATABASE_MIGRATION_URL === undefined ? 'DATABASE_URL' : 'DATABASE_MIGRATION_URL'
}

const migrateNamed = async (variable: string, options: MigrateOptions): Promise<void> => {
  try {
    await naming(variable, () => migrate(options))
  } catch (error) {
    if (error instanceof RoleUnfit) throw new ConfigError(`DATABASE_URL: ${error.message}`, { cause: error })
    throw error
  }
}

/** If the database is unsuitable, throws a `ConfigError` that names the variable with its URL. */
const naming = async <Value>(variable: string, work: () => Promise<Value>): Promise<Value> => {
  try {
    return await work()
  } catch (error) {
    if (error instanceof DatabaseUnfit)
      throw new ConfigError(`${variable}: ${error.message}`, { cause: error })
    throw error
  }
}

/** Creates the tables of projections that are new in this release. */
export const prepareReadModels = async (pool: pg.Pool): Promise<void> => {
  const client = await pool.connect()
  try {
    await prepareProjections(client, projections)
  } finally {
    client.release()
  }
}
