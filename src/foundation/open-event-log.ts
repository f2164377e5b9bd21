import type { Logger } from 'pino'
import { ConfigError } from '../config.ts'
import { type EventLog, Unavailable, UnknownOutcome } from '../event-log/port.ts'
import { openPostgresEventLog } from '../event-log/postgres/index.ts'
import { withSessionSettings } from './session-settings.ts'

/** An event log in a setting. `variable` is the name of that setting, for error messages. */
export type NamedEventLog = {
  readonly variable: string
  readonly url: string
  readonly prefix?: string | undefined
}

const isPostgres = (url: string): boolean => url.startsWith('postgres')

/** Opens the log at a URL (`esdb://…` or `postgres://…`), without sending a request yet. Throws `ConfigError` for an invalid URL. */
export const openNamed = async (
  { variable, url, prefix }: NamedEventLog,
  logger: Logger,
): Promise<EventLog> => {
  try {
    if (isPostgres(url)) return openPostgresEventLog({ url: withSessionSettings(url), logger })
    // The client is loaded only if needed, because loading it takes memory and a quarter of a second.
    const { openEventStoreDb } = await import('../event-log/eventstoredb/index.ts')
    return await openEventStoreDb({ url: url.replace(/^kurrentdb/, 'esdb'), prefix, logger })
  } catch (error) {
    throw new ConfigError(`${variable}: ${error instanceof Error ? error.message : String(error)}`, {
      cause: error,
    })
  }
}

/** Runs work on the log. If the log cannot be used, throws a `ConfigError` with a message of one line. */
export const telling = async <Value>(
  { variable, url }: NamedEventLog,
  work: () => Promise<Value>,
): Promise<Value> => {
  try {
    return await work()
  } catch (error) {
    if (isPostgres(url) || error instanceof ConfigError) throw error
    if (!(error instanceof Unavailable || error instanceof UnknownOutcome)) throw error
    const { eventStoreDbFault } = await import('../event-log/eventstoredb/client.ts')
    throw new ConfigError(`${variable}: ${eventStoreDbFault(url, error)}`, { cause: error })
  }
}
