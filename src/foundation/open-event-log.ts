import type pg from 'pg'
import type { Logger } from 'pino'
import { ConfigError } from '../config.ts'
import { appendSurely } from '../event-log/append-next.ts'
import { type EventLog, LogRewritten, StreamMissing, Unavailable, UnknownOutcome } from '../event-log/port.ts'
import { openPostgresEventLog } from '../event-log/postgres/index.ts'
import { priceBookStream } from '../events/streams.ts'
import { readCheckpoints, strayCheckpoints, strayMessage } from '../projector/checkpoints.ts'

/** Which event log a process works on: opened, asked whether it can be used, and compared with the read models'. */

const isPostgres = (url: string): boolean => url.startsWith('postgres')

/** Opens the event log a URL names: `esdb://…` is EventStoreDB, `postgres://…` the log in that database. */
export const openEventLog = async (url: string, logger: Logger, prefix?: string): Promise<EventLog> => {
  if (isPostgres(url)) return openPostgresEventLog({ url, logger })
  // Loaded only where it is used: the client and its protocol take memory and a quarter of a second.
  const { openEventStoreDb } = await import('../event-log/eventstoredb/index.ts')
  return openEventStoreDb({ url: url.replace(/^kurrentdb/, 'esdb'), prefix, logger })
}

/** An event log an operator named; `variable` is what to call the name where it is wrong. */
export type NamedEventLog = {
  readonly variable: string
  readonly url: string
  readonly prefix?: string | undefined
}

/** Does what needs an event log the operator named. Where that cannot be used, throws a ConfigError of one line. */
export const telling = async <Value>(
  { variable, url }: NamedEventLog,
  work: () => Promise<Value>,
): Promise<Value> => {
  try {
    return await work()
  } catch (error) {
    if (isPostgres(url) || error instanceof ConfigError) throw error
    if (!(error instanceof Unavailable || error instanceof UnknownOutcome)) throw error
    const { eventStoreDbFault } = await import('../event-log/eventstoredb/fault.ts')
    throw new ConfigError(`${variable}: ${await eventStoreDbFault(url, error)}`, { cause: error })
  }
}

/** Opens the log of the configuration, or of the database where it names none. */
export const openNamed = async (
  { variable, url, prefix }: NamedEventLog,
  logger: Logger,
): Promise<EventLog> => {
  try {
    return await openEventLog(url, logger, prefix)
  } catch (error) {
    // Nothing was asked yet: it is the connection string that cannot be understood.
    throw new ConfigError(`${variable}: ${error instanceof Error ? error.message : String(error)}`, {
      cause: error,
    })
  }
}

/** Sends the first price book again: that changes nothing, and is refused where the user may not write. */
export const mayAppend = async (eventLog: EventLog): Promise<void> => {
  const [first] = await eventLog.read(priceBookStream, { max: 1 }).catch((error: unknown) => {
    if (error instanceof StreamMissing) return []
    throw error
  })
  if (first !== undefined) await appendSurely(eventLog, priceBookStream, 'none', [first])
}

/** Scheme, hosts and path of a connection string, and the prefix: what identifies the log, and nothing secret. */
export const nameOf = (url: string, prefix = ''): string =>
  `${url.replace(/^([^:]+:\/\/)(.*@)?/, '$1').split('?', 1)[0]}${prefix === '' ? '' : `#${prefix}`}`

/** Read models of another event log would be gone on from at positions that mean nothing in this one. */
export const sameEventLog = async (pool: pg.Pool, eventLogName: string): Promise<void> => {
  await pool.query('insert into installation (event_log) values ($1) on conflict do nothing', [eventLogName])
  const { rows } = await pool.query<{ event_log: string }>('select event_log from installation')
  const known = rows[0]?.event_log
  if (known === eventLogName) return
  if (known !== undefined && shareHost(known, eventLogName)) {
    await pool.query('update installation set event_log = $1', [eventLogName])
    return
  }
  throw new ConfigError(
    `EVENT_LOG_URL: the read models of this database were folded from ${known}, and the event log is now ${eventLogName}. ` +
      'Copy the events with "event-log copy" if that has not happened, then run "projection rebuild --all".',
  )
}

/** A cluster may be named by more, fewer or other seed hosts than before; one in common makes it the same. */
const shareHost = (known: string, now: string): boolean => {
  if (known.split('#', 2)[1] !== now.split('#', 2)[1]) return false
  const [before, after] = [known, now].map(
    (name) =>
      new Set(
        name
          .replace(/^[^:]+:\/\//, '')
          .split(/[/#]/, 1)[0]
          ?.split(','),
      ),
  )
  return known.includes('://') && now.includes('://') && [...(before ?? [])].some((host) => after?.has(host))
}

/** What was revoked, erased or charged after the copy was made stands in the rows alone: nothing may begin on such a log. */
export const sameHistory = async (pool: pg.Pool, eventLog: EventLog): Promise<void> => {
  const stray = await strayCheckpoints(eventLog, await readCheckpoints(pool))
  if (stray.length > 0) throw new ConfigError(`EVENT_LOG_URL: ${strayMessage(stray)}`)
}

/** The log, telling as well of a subscription that found it to be another one. */
export const tellingRewritten = (eventLog: EventLog, tell: (error: Error) => void): EventLog => ({
  ...eventLog,
  async *subscribe(options) {
    try {
      yield* eventLog.subscribe(options)
    } catch (error) {
      if (error instanceof LogRewritten) tell(error)
      throw error
    }
  },
})
