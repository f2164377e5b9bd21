import { hkdfSync, randomBytes } from 'node:crypto'
import { access, chmod, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import pg from 'pg'
import type { Logger } from 'pino'
import { projections } from '../../projections/index.ts'
import { defaultPriceBook, priceBookAt, priceBookOf } from '../billing/price-book.ts'
import { knownRules } from '../billing/tariff.ts'
import { type Config, ConfigError } from '../config.ts'
import { appendSurely } from '../event-log/append-next.ts'
import { eventIdOf } from '../event-log/event-id.ts'
import { AppendConflict, type EventLog, StreamMissing } from '../event-log/port.ts'
import { decodeEvent, encodeEvent } from '../event-log/stored-event.ts'
import type { PriceBookPublished } from '../events/prices.ts'
import { priceBookStream } from '../events/streams.ts'
import { createEpochKeyFiles } from '../guard/epoch-key-files.ts'
import { type EpochKeys, openEpochKeys } from '../guard/epoch-keys.ts'
import { createSecrets, type Secrets, sameHmac } from '../guard/secrets.ts'
import { createLedger, type Ledger, type LedgerObserver } from '../ledger/commit.ts'
import { createKeyedEvents, type KeyedEvents } from '../ledger/keyed-events.ts'
import { snapshotFrom } from '../ledger/snapshot.ts'
import { keyDirOf, makeDataDir } from '../ops/data-dir.ts'
import { readRunningPostgres, startEmbeddedPostgres } from '../ops/embedded-postgres.ts'
import { placeIn } from '../ops/postgres-cluster.ts'
import { startTimeoutMs } from '../ops/postgres-server.ts'
import { prepareProjections } from '../projector/tables.ts'
import { DatabaseUnfit, DatabaseUnreachable } from './database-connection.ts'
import { RoleUnfit } from './database-roles.ts'
import { type MigrateOptions, migrate } from './migrate.ts'
import {
  mayAppend,
  nameOf,
  openNamed,
  sameEventLog,
  sameHistory,
  telling,
  tellingRewritten,
} from './open-event-log.ts'

/** What every process stands on, server and command line alike: database, event log, secrets, ledger. */
export type Foundation = {
  readonly url: string
  /**
   * The same database by the role that owns its schema: for migrations and for `vacuum`. The service's own role may not
   * vacuum what it does not own; PostgreSQL then only warns and skips.
   */
  readonly migrationUrl: string
  readonly embedded: boolean
  readonly pool: pg.Pool
  readonly eventLog: EventLog
  readonly secrets: Secrets
  readonly epochKeys: EpochKeys
  readonly ledger: Ledger
  /** What the ledger's own reading and appending tells of calls under Idempotency-Keys. */
  readonly keyedEvents: KeyedEvents
  /** Which event log this is, without secrets. */
  readonly eventLogName: string
  /** Closes everything, the embedded PostgreSQL last if this process owns it. */
  close(): Promise<void>
}

const secretKeyFile = 'secret_key'
const poolMax = 8
const priceBooksMax = 100_000

/** Opens or starts the database, migrates it, and makes sure that a price book is in force. */
export const openFoundation = async (
  config: Config,
  { logger, observe, anyEventLog = false, anyHistory = false, waitMs = startTimeoutMs }: FoundationOptions,
): Promise<Foundation> => {
  const secretKey = await secretKeyOf(config)
  const database = await openDatabase(config, logger, waitMs)
  const pool = new pg.Pool({
    connectionString: database.url,
    max: poolMax,
    connectionTimeoutMillis: 5_000,
    query_timeout: 30_000,
    // After a failover a connection kept for ever would go on asking the server that was.
    maxLifetimeSeconds: 60,
    application_name: 'read-models',
  })
  pool.on('error', (error) => logger.warn({ err: error }, 'idle database connection lost'))
  let eventLog: EventLog | undefined
  try {
    await migrating(config, { url: database.migrationUrl, serviceUrl: database.url, logger, waitMs })
    await sameSecretKey(pool, config, secretKey)
    await preparing(pool)
    const eventLogName =
      config.EVENT_LOG_URL === undefined
        ? 'PostgreSQL'
        : nameOf(config.EVENT_LOG_URL, config.EVENT_LOG_PREFIX)
    const named = {
      variable: 'EVENT_LOG_URL',
      url: config.EVENT_LOG_URL ?? database.url,
      prefix: config.EVENT_LOG_PREFIX,
    }
    const opened = await openNamed(named, logger)
    eventLog = opened
    await telling(named, async () => {
      // Before anything is remembered of it: a log that never answered is no log rows were folded from.
      await opened.head()
      if (!anyEventLog) await sameEventLog(pool, eventLogName)
      if (!anyEventLog && !anyHistory) await sameHistory(pool, opened)
      await keepPriceBookComplete(opened, logger)
      if (config.EVENT_LOG_URL !== undefined) await mayAppend(opened)
    })
    const secrets = createSecrets(secretKey)
    const keyedEvents = createKeyedEvents(opened)
    const ledger = createLedger({
      eventLog: keyedEvents.eventLog,
      snapshot: snapshotFrom(pool, secrets.rowSeal),
      logger,
      clock: { now: Date.now, monotonic: () => performance.now() },
      ...(observe ? { observe } : {}),
    })
    const keyDir = keyDirOf(config)
    const epochKeys = openEpochKeys({
      pool,
      files: createEpochKeyFiles({
        dir: keyDir,
        makeDir: () => makeDataDir(keyDir, 'KEY_DIR'),
        secretKey,
      }),
      clock: Date,
      logger,
    })
    return {
      url: database.url,
      migrationUrl: database.migrationUrl,
      embedded: config.DATABASE_URL === undefined,
      pool,
      eventLog: tellingRewritten(opened, ledger.giveUp),
      secrets,
      epochKeys,
      ledger,
      keyedEvents,
      eventLogName,
      close: async () => {
        epochKeys.close()
        await opened.close()
        await pool.end()
        await database.stop()
      },
    }
  } catch (error) {
    await eventLog?.close()
    await pool.end()
    await database.stop()
    throw error
  }
}

export type FoundationOptions = {
  readonly logger: Logger
  readonly observe?: LedgerObserver
  /** Opens although the read models were folded from another event log: for the commands that put that right. */
  readonly anyEventLog?: boolean
  /** Opens although the event log was restored from an older copy: for the commands that look into that or put it right. */
  readonly anyHistory?: boolean
  /** How long to wait for a database that another process starts, or that is recovering. Default: a minute. */
  readonly waitMs?: number
}

/** A database of the operator's that cannot be reached is a bad value of DATABASE_URL; one of ours is our own fault. */
const migrating = async (config: Config, options: MigrateOptions): Promise<void> => {
  try {
    await migrate(options)
  } catch (error) {
    if (error instanceof RoleUnfit) throw new ConfigError(`DATABASE_URL: ${error.message}`, { cause: error })
    const refused = error instanceof DatabaseUnreachable || error instanceof DatabaseUnfit
    if (config.DATABASE_URL === undefined || !refused) throw error
    const variable = config.DATABASE_MIGRATION_URL === undefined ? 'DATABASE_URL' : 'DATABASE_MIGRATION_URL'
    throw new ConfigError(`${variable}: ${error.message}`, { cause: error })
  }
}

/**
 * Under another SECRET_KEY every issued key would be refused, profiles could not be opened, and who was erased would not be
 * recognized. What the key gives under a purpose of its own is remembered from the first start on; nothing leads back to the key.
 */
const sameSecretKey = async (pool: pg.Pool, config: Config, secretKey: string): Promise<void> => {
  const hash = Buffer.from(hkdfSync('sha256', secretKey, 'enrichment-ledger', 'check', 32)).toString(
    'base64url',
  )
  await pool.query('insert into secret_key_check (hash) values ($1) on conflict do nothing', [hash])
  const { rows } = await pool.query<{ hash: string }>('select hash from secret_key_check')
  if (rows[0] === undefined || sameHmac(rows[0].hash, hash)) return
  throw new ConfigError(
    `SECRET_KEY: this database was set up with another one than ${config.SECRET_KEY === undefined ? `that in ${join(config.DATA_DIR, secretKeyFile)}` : 'this'}, ` +
      'and with this one every issued key would be refused. Start with the old key; nothing was changed.',
  )
}

const openDatabase = async (
  config: Config,
  logger: Logger,
  waitMs: number,
): Promise<{ url: string; migrationUrl: string; stop(): Promise<void> }> => {
  if (config.DATABASE_URL !== undefined)
    return {
      url: config.DATABASE_URL,
      migrationUrl: config.DATABASE_MIGRATION_URL ?? config.DATABASE_URL,
      stop: async () => undefined,
    }
  const running = await readRunningPostgres(config.DATA_DIR)
  // A running one may be an orphan of a killed process; starting finds out and adopts it.
  if (running === null) logger.info({ dataDir: config.DATA_DIR }, 'starting the embedded PostgreSQL')
  const { url, serviceUrl, stop } = await startEmbeddedPostgres({ dataDir: config.DATA_DIR, logger, waitMs })
  return { url: serviceUrl, migrationUrl: url, stop }
}

const preparing = async (pool: pg.Pool): Promise<void> => {
  const client = await pool.connect()
  try {
    await prepareProjections(client, projections)
  } finally {
    client.release()
  }
}

/** SECRET_KEY, or the one in DATA_DIR; the embedded default makes one on its first start, and never beside data made with another. */
const secretKeyOf = async (config: Config): Promise<string> => {
  if (config.DATABASE_URL === undefined) await makeDataDir(config.DATA_DIR)
  if (config.SECRET_KEY !== undefined) return config.SECRET_KEY
  const path = join(config.DATA_DIR, secretKeyFile)
  const known = await readFile(path, 'utf8').catch((error: unknown) => {
    if (error instanceof Error && 'code' in error && (error.code === 'ENOENT' || error.code === 'ENOTDIR'))
      return null
    throw new ConfigError(`DATA_DIR: ${path} cannot be read: run as the user that runs the service`, {
      cause: error,
    })
  })
  if (known !== null) return known.trim()
  if (config.DATABASE_URL !== undefined)
    throw new ConfigError(
      'SECRET_KEY: required with DATABASE_URL, at least 32 characters. Every process and the CLI need the same one: without it issued keys do not work',
    )
  if (await holdsData(config.DATA_DIR))
    throw new ConfigError(
      `SECRET_KEY: it is not set and ${path} is missing, but ${config.DATA_DIR} holds data made with a key. Restore that file or set SECRET_KEY to the old key; nothing was changed.`,
    )
  const fresh = randomBytes(32).toString('base64url')
  try {
    await writeFile(path, `${fresh}\n`, { mode: 0o600, flag: 'wx' })
    await chmod(path, 0o600)
    return fresh
  } catch {
    // Another process was first.
    return (await readFile(path, 'utf8')).trim()
  }
}

/** The key is written before the database is made, so whoever finds a database without one has lost it. */
const holdsData = async (dataDir: string): Promise<boolean> =>
  access(join(placeIn(dataDir).cluster, 'PG_VERSION')).then(
    () => true,
    () => false,
  )

/**
 * An installation starts with the default price book. One that still has it gets the prices of capabilities this release
 * added, as its next book; prices an operator published are never added to.
 */
const keepPriceBookComplete = async (eventLog: EventLog, logger: Logger): Promise<void> => {
  const published = await eventLog.read(priceBookStream, { max: priceBooksMax }).catch((error: unknown) => {
    if (error instanceof StreamMissing) return []
    throw error
  })
  const books = published
    .map(decodeEvent)
    .flatMap(({ type, data }) => (type === 'PriceBookPublished' ? [data] : []))
  const lackedBy = (book: PriceBookPublished | undefined): string[] =>
    [...knownRules().keys()].filter((id) => book?.rules.every(({ rule }) => rule !== id) ?? true)
  for (const book of books) {
    if (book.approver === defaultPriceBook.approver || lackedBy(book).length === 0) continue
    if (book === books.at(-1))
      logger.warn(
        { priceBook: book.version, from: book.effective_from, rules: lackedBy(book) },
        'a price book does not price these rules: calls they are about are refused until "price publish" adds them',
      )
  }
  const inForce = priceBookAt(books.map(priceBookOf), Date.now())
  const current = books.find(({ version }) => version === inForce?.version)
  if (lackedBy(current).length === 0) return
  if (current !== undefined && current.approver !== defaultPriceBook.approver) return
  const version = (books.at(-1)?.version ?? 0) + 1
  // Whatever an earlier default book priced keeps its price; what it did not price could not be called.
  const effective_from = current?.effective_from ?? defaultPriceBook.effective_from
  try {
    await appendSurely(eventLog, priceBookStream, books.length === 0 ? 'none' : books.length - 1, [
      encodeEvent(
        { type: 'PriceBookPublished', data: { ...defaultPriceBook, version, effective_from } },
        {
          id: eventIdOf(priceBookStream, version === 1 ? 'default' : `default/${version}`, 0),
          actor: 'system',
          effectiveAt: effective_from,
        },
      ),
    ])
  } catch (error) {
    // Another process was first.
    if (!(error instanceof AppendConflict)) throw error
  }
}
