import type { Logger } from 'pino'
import type { Config } from '../config.ts'
import type { EventLog } from '../event-log/port.ts'
import { type Checkpoints, createCheckpoints } from '../event-log/tree/checkpoints.ts'
import { createSigningKeyFiles } from '../event-log/tree/signing-key.ts'
import { createTreeStore, type TreeStore } from '../event-log/tree/store.ts'
import { createDiskWatch, type DiskWatch } from '../guard/disk-space.ts'
import { createEpochKeyFiles } from '../guard/secrets/epoch-key-files.ts'
import { type EpochKeys, openEpochKeys } from '../guard/secrets/epoch-keys.ts'
import { createErasureFile, type ErasureFile } from '../guard/secrets/erasures.ts'
import type { KeySlot, SecretKey } from '../guard/secrets/installation-key.ts'
import { createSecrets, type InstallationKey, type Secrets } from '../guard/secrets/secrets.ts'
import { createLedger, type Ledger, type LedgerObserver } from '../ledger/write/commit.ts'
import { type Competition, openCompetition } from '../ledger/write/competition.ts'
import { createKeyedEvents, type KeyedEvents } from '../ledger/write/keyed-events.ts'
import { snapshotFrom } from '../ledger/write/snapshot.ts'
import { openingWith } from './closing.ts'
import { keyDirOf, makeDataDir } from './data-dir.ts'
import { type Database, openDatabase, prepareReadModels } from './database.ts'
import { writtenDirs } from './embedded/cluster.ts'
import { startTimeoutMs } from './embedded/server.ts'
import { type Gates, gatedLog, gatedPool, openGates, watchedLog } from './gates.ts'
import { openInstallationKey } from './installation-key.ts'
import { refuseMarked } from './installation-mark.ts'
import { openOwnEventLog, tellingRewritten } from './own-event-log.ts'
import { secretKeysOf } from './secret-key.ts'

/** The parts every process needs, server and command line alike: database, event log, secrets, ledger. */
export type Foundation = Database & {
  readonly embedded: boolean
  readonly eventLog: EventLog
  /** Shut while the event log, or the database, does not answer. */
  readonly gates: Gates
  readonly secrets: Secrets
  readonly installationKey: InstallationKey
  /** The SECRET_KEYs this process was started with. */
  readonly secretKeys: readonly SecretKey[]
  readonly epochKeys: EpochKeys
  /** The list of erased people, which a restore reads. */
  readonly erasures: ErasureFile
  /** Signed checkpoints of the whole event log, and proofs up to them. */
  readonly checkpoints: Checkpoints
  /** The tiles they are made from. */
  readonly treeStore: TreeStore
  readonly ledger: Ledger
  /** With the other processes that write the same ledgers. */
  readonly competition: Competition
  /** Of the disk of the embedded PostgreSQL. It watches nothing if the database is the operator's own. */
  readonly diskSpace: DiskWatch
  /** What the ledger's own reads and appends show about calls with Idempotency-Keys. */
  readonly keyedEvents: KeyedEvents
  /** The name of the event log, without secrets. */
  readonly eventLogName: string
  /** Closes everything, the embedded PostgreSQL last if this process owns it. */
  close(): Promise<void>
}

/** The files of KEY_DIR, which are in no backup. */
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

/** The same for code that answers requests: while a server does not answer, requests to it are refused immediately. */
export const gated = (foundation: Foundation): Foundation => ({
  ...foundation,
  pool: gatedPool(foundation.pool, foundation.gates.database),
  eventLog: gatedLog(foundation.eventLog, foundation.gates.eventLog),
})

type FoundationOptions = {
  readonly logger: Logger
  readonly observe?: LedgerObserver
  /** As for `openOwnEventLog`. */
  readonly anyEventLog?: boolean
  readonly anyHistory?: boolean
  /** Opens even if the installation was closed, or is not completely restored: for the commands that do that. */
  readonly anyMark?: boolean
  /** Slots of the backup that is being restored: the installation key is wrapped again under the given SECRET_KEYs. */
  readonly restored?: readonly KeySlot[]
  /** How long to wait for a database that another process starts, or that is recovering. Default: a minute. */
  readonly waitMs?: number
  /** Set only by the service: called once if the embedded PostgreSQL ends by itself. */
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
    // Before anything is written: a restore that continues finds the database unchanged.
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
      treeStore,
      checkpoints: createCheckpoints({ eventLog: own.eventLog, store: treeStore, keys }),
      ledger,
      competition,
      keyedEvents,
      close: closing.close,
    }
  })
