import { setTimeout as sleep } from 'node:timers/promises'
import pg from 'pg'
import type { Logger } from 'pino'
import { type Config, ConfigError } from '../../config.ts'
import { type Closing, createClosing } from '../../foundation/closing.ts'
import { startEmbeddedPostgres } from '../../foundation/embedded/server.ts'
import { isBegun } from '../../foundation/installation-key.ts'
import { type NamedEventLog, openNamed, telling } from '../../foundation/open-event-log.ts'
import { holdsData } from '../../foundation/secret-key.ts'
import { CommandRefused } from '../../ledger/command.ts'
import { InputFault } from '../input.ts'
import { type Copied, type CopyProgress, copyEventLog } from './copy-event-log.ts'

/** The names of the database connections that processes of the service open. Some commands also open connections with these names. */
const serviceConnections = ['event-log-listen', 'job-queue', 'jobs', 'projector', 'read-models']
const connectTimeoutMs = 10_000
/** The connections of a process that has ended remain for a moment. */
const leavingMs = 3_000
const leavingPollMs = 100

/**
 * Copies one event log into another. If `from` is null, copies the log in this installation's PostgreSQL, and starts an embedded PostgreSQL
 * for the copy. Throws `ConfigError` if a log cannot be used, and `CommandRefused` while the service is running on the source.
 */
export const copyBetween = async (
  config: Config,
  { from, to }: { from: NamedEventLog | null; to: NamedEventLog },
  { logger, onProgress }: { logger: Logger; onProgress: (progress: CopyProgress) => void },
): Promise<Copied> => {
  const closing = createClosing()
  try {
    const named = from ?? (await ownPostgres(config, logger, closing))
    if (named.url.startsWith('postgres')) await refuseRunning(named, 'copy')
    const source = await openNamed(named, logger)
    closing.add(() => source.close())
    const target = await openNamed(to, logger)
    closing.add(() => target.close())
    await telling(named, () => isBegun(source, named.variable))
    await telling(to, () => target.head())
    return await copyEventLog({ from: source, to: target, onProgress })
  } finally {
    await closing.close()
  }
}

const ownPostgres = async (config: Config, logger: Logger, closing: Closing): Promise<NamedEventLog> => {
  if (config.DATABASE_URL !== undefined) return { variable: 'DATABASE_URL', url: config.DATABASE_URL }
  if (!(await holdsData(config.DATA_DIR)))
    throw new ConfigError(
      `DATA_DIR: ${config.DATA_DIR} contains no embedded PostgreSQL. Set DATA_DIR to the directory of the installation, or give the source with --from`,
    )
  const { serviceUrl, stop } = await startEmbeddedPostgres({ dataDir: config.DATA_DIR, logger })
  closing.add(stop)
  return { variable: 'DATA_DIR', url: serviceUrl }
}

/** Throws `CommandRefused` while processes of the service are connected to this database, because they could write to it. */
export const refuseRunning = async (
  { variable, url }: Pick<NamedEventLog, 'variable' | 'url'>,
  next: string,
): Promise<void> => {
  const client = new pg.Client({
    connectionString: url,
    application_name: 'event-log-copy',
    connectionTimeoutMillis: connectTimeoutMs,
  })
  client.on('error', () => undefined)
  try {
    await client.connect()
  } catch (error) {
    throw new ConfigError(`${variable}: ${sentenceOf(error)}`, { cause: error })
  }
  try {
    for (const until = performance.now() + leavingMs; ; await sleep(leavingPollMs)) {
      const { rows } = await client.query<{ open: number }>(
        `select count(*)::int as open from pg_stat_activity
          where datname = current_database() and application_name = any ($1::text[])`,
        [serviceConnections],
      )
      const open = rows[0]?.open ?? 0
      if (open === 0) return
      if (performance.now() > until)
        throw new CommandRefused(
          `the service is running on this event log: its processes have ${open} open connections to the database. Stop every process, then ${next}`,
        )
    }
  } finally {
    await client.end()
  }
}

const sentenceOf = (error: unknown): string => {
  const code = error instanceof Error ? Reflect.get(error, 'code') : undefined
  if (code !== 'ECONNREFUSED') return error instanceof Error ? error.message : String(error)
  return (
    'no PostgreSQL answers at this address (ECONNREFUSED). Start PostgreSQL, or correct the host and port. An embedded PostgreSQL runs only while the ' +
    'service or a command is running: to copy from an embedded PostgreSQL, omit the source, and this command starts it.'
  )
}

/** A name for the service's EventStoreDB user. Throws `InputFault` if the text cannot be a user name. */
export const eventStoreUserOf = (text: string): string => {
  if (!/^[A-Za-z0-9._-]{1,64}$/.test(text))
    throw new InputFault('user', `"${text}" is not a valid name: use letters, digits, . _ and -`)
  return text
}

/**
 * Creates the service's EventStoreDB user with the rights it needs, or sets a new password. `shared` means that other software uses
 * the same event store. Throws `ConfigError` if the administrator's URL cannot be used.
 */
export const prepareEventStore = async (
  admin: NamedEventLog,
  { user, password, shared, logger }: { user: string; password: string; shared: boolean; logger: Logger },
) => {
  // Loaded only when used, because the client takes memory and a quarter of a second to load.
  const { prepareEventStoreDb } = await import('../../event-log/eventstoredb/prepare.ts')
  const adminUrl = admin.url.replace(/^kurrentdb/, 'esdb')
  return telling(admin, () => prepareEventStoreDb({ adminUrl, user, password, shared, logger }))
}
