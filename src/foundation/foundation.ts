import pg from 'pg'
import type { Logger } from 'pino'
import { createGate, type Gate, GateShut } from '../concurrency/gate.ts'
import type { Config } from '../config.ts'
import { type EventLog, Unavailable } from '../event-log/port.ts'
import { type Checkpoints, createCheckpoints } from '../event-log/tree/checkpoints.ts'
import { createSigningKeyFiles } from '../event-log/tree/signing-key.ts'
import { createTreeStore, type TreeStore } from '../event-log/tree/store.ts'
import { priceBookStream } from '../events/streams.ts'
import { createDiskWatch, type DiskWatch } from '../guard/disk-space.ts'
import { createEpochKeyFiles } from '../guard/secrets/epoch-key-files.ts'
import { type EpochKeys, openEpochKeys } from '../guard/secrets/epoch-keys.ts'
import { createErasureFile, type ErasureFile } from '../guard/secrets/erasures.ts'
import type { KeySlot, SecretKey } from '../guard/secrets/installation-key.ts'
import { createSecrets, type InstallationKey, type Secrets } from '../guard/secrets/secrets.ts'
import { lotPlacesIn } from '../ledger/explain/lots-drawn.ts'
import { type Competition, openCompetition } from '../ledger/write/conflict-notices.ts'
import { createKeyedEvents, type KeyedEvents } from '../ledger/write/keyed-events.ts'
import { createLedger, type Ledger } from '../ledger/write/ledger.ts'
import type { LedgerObserver } from '../ledger/write/options.ts'
import { snapshotFrom } from '../ledger/write/snapshot.ts'
import { type ClockWatch, createClockWatch } from './clocks.ts'
import { openingWith } from './closing.ts'
import { keyDirOf, makeDataDir } from './data-dir.ts'
import { type Database, openDatabase, prepareReadModels } from './database.ts'
import { writtenDirs } from './embedded/cluster.ts'
import { startTimeoutMs } from './embedded/server.ts'
import { openInstallationKey } from './installation-key.ts'
import { refuseMarked } from './installation-mark.ts'
import { openOwnEventLog, tellingRewritten } from './own-event-log.ts'
import { secretKeysOf } from './secret-key.ts'

/** The parts that every process needs, both the service and the command line. */
export type Foundation = Database & {
  readonly embedded: boolean
  readonly eventLog: EventLog
  /** Circuit breakers, which are shut while the event log or the database does not answer. */
  readonly gates: Gates
  readonly secrets: Secrets
  readonly installationKey: InstallationKey
  readonly secretKeys: readonly SecretKey[]
  readonly epochKeys: EpochKeys
  /** The list of erased people, for restores. */
  readonly erasures: ErasureFile
  readonly checkpoints: Checkpoints
  readonly treeStore: TreeStore
  readonly ledger: Ledger
  readonly competition: Competition
  /** Watches the disk of the embedded PostgreSQL. Watches nothing if the operator provides the database. */
  readonly diskSpace: DiskWatch
  /** Refuses calls while this host's clock and the database's differ. */
  readonly clockWatch: ClockWatch
  /** The revisions of the calls with Idempotency-Keys that this process has read or appended. */
  readonly keyedEvents: KeyedEvents
  /** The name of the event log, without secrets. */
  readonly eventLogName: string
  /** Closes everything. If this process owns the embedded PostgreSQL, it is closed last. */
  close(): Promise<void>
}

/** Opens the files in KEY_DIR, which is in no backup. */
const keyDirectory = (config: Config, secretKey: InstallationKey) => {
  const dir = keyDirOf(config)
  const directory = { dir, makeDir: () => makeDataDir(dir, 'KEY_DIR') }
  return {
    epochKeyFiles: createEpochKeyFiles({ ...directory, secretKey }),
    erasures: createErasureFile(directory),
    signingKeys: createSigningKeyFiles(directory),
  }
}

const watchDisk = (
  { DATABASE_URL, DATA_DIR }: Config,
  logger: Parameters<typeof createDiskWatch>[0]['logger'],
): DiskWatch => createDiskWatch({ dirs: DATABASE_URL === undefined ? writtenDirs(DATA_DIR) : [], logger })

/** Returns a foundation for code that answers requests. While a server does not answer, its queries are refused immediately. */
export const gated = (foundation: Foundation): Foundation => ({
  ...foundation,
  pool: gatedPool(foundation.pool, foundation.gates.database),
  eventLog: gatedLog(foundation.eventLog, foundation.gates.eventLog),
})

export type FoundationOptions = {
  readonly logger: Logger
  readonly observe?: LedgerObserver
  /** See `openOwnEventLog`. */
  readonly anyEventLog?: boolean
  readonly anyHistory?: boolean
  /** Opens even an installation that was closed or is partly restored. Needed by the commands that close or restore it. */
  readonly anyMark?: boolean
  /** The slots from the backup that is being restored. Their installation key is wrapped again with the configured SECRET_KEYs. */
  readonly restored?: readonly KeySlot[]
  /** How long to wait for a database that is recovering or being started by another process. The default is a minute. */
  readonly waitMs?: number
  /** Set only by the service. Called once if the embedded PostgreSQL stops unexpectedly. */
  readonly onLost?: (error: Error) => void
}

/** Opens or starts the database, migrates it, and opens the event log and the ledger. Throws `ConfigError`. */
export const openFoundation = (
  config: Config,
  {
    logger,
    observe,
    anyEventLog = false,
    anyHistory = false,
    anyMark = false,
    restored,
    waitMs = startTimeoutMs,
    onLost,
  }: FoundationOptions,
): Promise<Foundation> =>
  openingWith(async (closing) => {
    const secretKeys = await secretKeysOf(config)
    const database = await openDatabase(config, { logger, waitMs, onLost, closing })
    const { pool } = database
    // The mark is checked before anything is written, so that an interrupted restore can continue with an unchanged database.
    if (!anyMark) await refuseMarked(pool, config.DATABASE_URL === undefined ? 'DATA_DIR' : 'DATABASE_URL')
    await prepareReadModels(pool)
    const own = await openOwnEventLog(config, database, {
      logger,
      anyEventLog,
      anyHistory,
      closing,
      openKey: (log) => openInstallationKey(log, { secretKeys, restored }),
    })
    const secrets = createSecrets(own.key)
    const gates = openGates(config, { url: database.url, eventLog: own.eventLog, logger })
    closing.add(gates.close)
    const eventLog = watchedLog(own.eventLog, gates.eventLog)
    const keyedEvents = createKeyedEvents(eventLog)
    const competition = openCompetition({ pool: gatedPool(pool, gates.database), url: database.url, logger })
    closing.add(competition.close)
    const ledger = createLedger({
      competition,
      eventLog: keyedEvents.eventLog,
      snapshot: snapshotFrom(gatedPool(pool, gates.database), secrets.rowSeal),
      lotPlaces: lotPlacesIn(gatedPool(pool, gates.database)),
      gate: gates.eventLog,
      logger,
      clock: { now: Date.now, monotonic: () => performance.now() },
      ...(observe ? { observe } : {}),
    })
    const { epochKeyFiles: files, erasures, signingKeys: keys } = keyDirectory(config, own.key)
    const epochKeys = openEpochKeys({ pool, files, clock: Date, logger })
    closing.add(epochKeys.close)
    const diskSpace = watchDisk(config, logger)
    closing.add(diskSpace.close)
    const clockWatch = createClockWatch({ pool, logger })
    closing.add(clockWatch.close)
    const treeStore = createTreeStore(pool)
    return {
      ...database,
      embedded: config.DATABASE_URL === undefined,
      eventLog: tellingRewritten(eventLog, ledger.giveUp),
      gates,
      eventLogName: own.name,
      secrets,
      installationKey: own.key,
      secretKeys,
      epochKeys,
      erasures,
      diskSpace,
      clockWatch,
      treeStore,
      checkpoints: createCheckpoints({ eventLog: own.eventLog, store: treeStore, keys }),
      ledger,
      competition,
      keyedEvents,
      close: closing.close,
    }
  })

/** A gate (a circuit breaker) for each server that calls depend on. If the event log is in the database, both are the same gate. */
type Gates = { readonly database: Gate; readonly eventLog: Gate }

/** The time limit for connecting, and again for the query. It is longer than the gate waits, because a late answer still counts. */
const askedMs = 3_000

type GatesOptions = {
  readonly url: string
  readonly eventLog: Pick<EventLog, 'read'>
  readonly logger: Logger
}

const openGates = (
  { EVENT_LOG_URL: eventLogUrl }: Pick<Config, 'EVENT_LOG_URL'>,
  { url, eventLog, logger }: GatesOptions,
): Gates & { close(): void } => {
  const database = createGate({ what: 'the database', ask: () => askDatabase(url), logger })
  if (eventLogUrl === undefined) return { database, eventLog: database, close: database.close }
  const ask = eventLogUrl.startsWith('postgres')
    ? () => askDatabase(eventLogUrl)
    : () => eventLog.read(priceBookStream, { max: 1 })
  const log = createGate({ what: 'the event log', ask, logger })
  const close = (): void => {
    database.close()
    log.close()
  }
  return { database, eventLog: log, close }
}

/** Uses a new connection, because a connection from before an outage may never answer again. */
const askDatabase = async (url: string): Promise<void> => {
  const client = new pg.Client({
    connectionString: url,
    connectionTimeoutMillis: askedMs,
    query_timeout: askedMs,
    application_name: 'gate',
  })
  client.on('error', () => undefined)
  try {
    await client.connect()
    await client.query('select 1')
  } catch (error) {
    // An error from the server, such as "too many connections", is also an answer, unless the server is starting or stopping.
    if (!(error instanceof pg.DatabaseError) || error.code?.startsWith('57P') === true) throw error
  } finally {
    client.end().catch(() => undefined)
  }
}

/** Returns a pool that refuses queries while the database does not answer. It shares its connections with the given pool. */
const gatedPool = (pool: pg.Pool, gate: Gate): pg.Pool => {
  const gated =
    <Given extends unknown[], Value>(ask: (...given: Given) => Promise<Value>) =>
    (...given: Given): Promise<Value> =>
      gate.refuses() === null ? ask(...given) : Promise.reject(new GateShut('the database does not answer'))
  return Object.create(pool, {
    query: { value: gated((...given: [pg.QueryConfig]) => gate.watch(pool.query(...given))) },
    // Not watched, because getting an idle connection sends nothing to the server.
    connect: { value: gated(() => pool.connect()) },
  })
}

/** Reports the log's answers to the gate. Appends are sent even while the gate is shut (see `ledger/write/ledger.ts`). */
const watchedLog = (eventLog: EventLog, gate: Gate): EventLog => ({
  ...eventLog,
  append: (...given) => gate.watch(eventLog.append(...given)),
  read: (...given) => gate.watch(eventLog.read(...given)),
  head: () => gate.watch(eventLog.head()),
  at: (...given) => gate.watch(eventLog.at(...given)),
})

/** Returns a log for code that answers requests, which refuses reads while the event log does not answer. */
const gatedLog = (eventLog: EventLog, gate: Gate): EventLog => {
  const gated =
    <Given extends unknown[], Value>(ask: (...given: Given) => Promise<Value>) =>
    (...given: Given): Promise<Value> =>
      gate.refuses() === null
        ? ask(...given)
        : Promise.reject(new Unavailable('the event log does not answer'))
  return {
    ...eventLog,
    read: gated(eventLog.read),
    head: gated(eventLog.head),
    at: gated(eventLog.at),
    lookBack: gated(eventLog.lookBack),
    lastRevision: gated(eventLog.lastRevision),
    streams: gated(eventLog.streams),
  }
}
