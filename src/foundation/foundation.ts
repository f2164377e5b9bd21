import type { Logger } from 'pino'
import type { Config } from '../config.ts'
import type { EventLog } from '../event-log/port.ts'
import { createEpochKeyFiles } from '../guard/epoch-key-files.ts'
import { type EpochKeys, openEpochKeys } from '../guard/epoch-keys.ts'
import { createSecrets, type Secrets } from '../guard/secrets.ts'
import { createLedger, type Ledger, type LedgerObserver } from '../ledger/commit.ts'
import { createKeyedEvents, type KeyedEvents } from '../ledger/keyed-events.ts'
import { snapshotFrom } from '../ledger/snapshot.ts'
import { openingWith } from './closing.ts'
import { keyDirOf, makeDataDir } from './data-dir.ts'
import { type Database, openDatabase, prepareReadModels } from './database.ts'
import { startTimeoutMs } from './embedded/server.ts'
import { openOwnEventLog, tellingRewritten } from './own-event-log.ts'
import { sameSecretKey, secretKeyOf } from './secret-key.ts'

/** What every process needs, server and command line alike: database, event log, secrets, ledger. */
export type Foundation = Database & {
  readonly embedded: boolean
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

type FoundationOptions = {
  readonly logger: Logger
  readonly observe?: LedgerObserver
  /** As for `openOwnEventLog`. */
  readonly anyEventLog?: boolean
  readonly anyHistory?: boolean
  /** How long to wait for a database that another process starts, or that is recovering. Default: a minute. */
  readonly waitMs?: number
}

/** Opens or starts the database, migrates it, and opens the event log and the ledger. Throws `ConfigError`. */
export const openFoundation = (
  config: Config,
  { logger, observe, anyEventLog = false, anyHistory = false, waitMs = startTimeoutMs }: FoundationOptions,
): Promise<Foundation> =>
  openingWith(async (closing) => {
    const secretKey = await secretKeyOf(config)
    const database = await openDatabase(config, { logger, waitMs, closing })
    const { pool } = database
    await sameSecretKey(pool, config, secretKey)
    await prepareReadModels(pool)
    const own = await openOwnEventLog(config, database, { logger, anyEventLog, anyHistory, closing })
    const secrets = createSecrets(secretKey)
    const keyedEvents = createKeyedEvents(own.eventLog)
    const ledger = createLedger({
      eventLog: keyedEvents.eventLog,
      snapshot: snapshotFrom(pool, secrets.rowSeal),
      logger,
      clock: { now: Date.now, monotonic: () => performance.now() },
      ...(observe ? { observe } : {}),
    })
    const keyDir = keyDirOf(config)
    const makeDir = (): Promise<void> => makeDataDir(keyDir, 'KEY_DIR')
    const files = createEpochKeyFiles({ dir: keyDir, makeDir, secretKey })
    const epochKeys = openEpochKeys({ pool, files, clock: Date, logger })
    closing.add(epochKeys.close)
    return {
      ...database,
      embedded: config.DATABASE_URL === undefined,
      eventLog: tellingRewritten(own.eventLog, ledger.giveUp),
      eventLogName: own.name,
      secrets,
      epochKeys,
      ledger,
      keyedEvents,
      close: closing.close,
    }
  })
