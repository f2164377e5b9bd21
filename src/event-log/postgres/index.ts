import pg from 'pg'
import type { Logger } from 'pino'
import { DatabaseClient } from '../../concurrency/database-client.ts'
import { createOutage, type Outage } from '../../concurrency/outage.ts'
import {
  checkAppend,
  type EventLog,
  EventsUnreadable,
  LogRewritten,
  type RecordedEvent,
  type SubscribeOptions,
  type SubscriptionItem,
  Unavailable,
} from '../port.ts'
import { connectTimeoutMs, createAppender } from './appender.ts'
import { createLastSeen, createReads, type Known, type Look, type Reads } from './reads.ts'
import { refuseSeparator } from './segment.ts'
import { createWakeUp, type WakeUp } from './wake-up.ts'

/**
 * The event log in PostgreSQL. It is the default with the embedded PostgreSQL, but is also suitable for production. Each append is one row.
 *
 * Appends to all streams are collected and written in one transaction at a time (group commit). The database guarantees their order and
 * durability (see migrations/0001_event_log.sql). An append is never part of a caller's transaction.
 */

const readersMax = 4
const readTimeoutMs = 60_000
/** Connections are replaced after this time, because they can still lead to the old server after a failover. */
const connectionLifetimeSeconds = 60

type PostgresEventLogOptions = { readonly url: string; readonly logger: Logger }

/** Opens the log, and connects on first use. The schema must be up to date. */
export const openPostgresEventLog = ({ url, logger }: PostgresEventLogOptions): EventLog => {
  const pool = new pg.Pool({
    Client: DatabaseClient,
    connectionString: url,
    max: readersMax,
    connectionTimeoutMillis: connectTimeoutMs,
    query_timeout: readTimeoutMs,
    maxLifetimeSeconds: connectionLifetimeSeconds,
    application_name: 'event-log-read',
  })
  pool.on('error', (error) => {
    // While the pool is being closed, lost connections are normal.
    if (!pool.ending) logger.warn({ err: error }, 'event log: lost an idle database connection')
  })
  // The pool removes its listener from a connection that it is closing. If the server closes the connection at that moment, the error still needs
  // a listener.
  pool.on('connect', (client) => client.on('error', () => undefined))
  const lastSeen = createLastSeen()
  const reads = createReads(pool, lastSeen)
  const appender = createAppender({ url, logger, lastSeen, checkedHead: reads.checkedHead })
  const following = {
    lookAfter: reads.lookAfter,
    wakeUp: createWakeUp({ url, channel: 'log_appended', logger }),
    looking: createOutage({ logger, what: 'event log: a subscription' }),
  }
  const subscriptions = new Set<AbortController>()
  const underWay = new Set<Promise<unknown>>()
  let closed = false

  const asked = <T>(read: () => Promise<T>): Promise<T> => {
    if (closed) return Promise.reject(new Unavailable('the event log is closed'))
    const reading = read()
    underWay.add(reading)
    reading.catch(() => undefined).finally(() => underWay.delete(reading))
    return reading
  }

  async function* subscribe(options: SubscribeOptions): AsyncGenerator<SubscriptionItem> {
    if (closed) return
    const own = new AbortController()
    subscriptions.add(own)
    try {
      yield* followLog(following, { ...options, signal: AbortSignal.any([options.signal, own.signal]) })
    } finally {
      subscriptions.delete(own)
      own.abort()
    }
  }

  return {
    gapless: true,
    append: (stream, expected, events) => {
      checkAppend(stream, expected, events)
      refuseSeparator(stream, events)
      return appender.append(stream, expected, events)
    },
    read: (stream, options) => asked(() => reads.read(stream, options)),
    subscribe,
    head: () => asked(reads.head),
    at: (position) => asked(() => reads.at(position)),
    lookBack: (from) => asked(() => reads.lookBack(from)),
    lastRevision: (stream) => asked(() => reads.lastRevision(stream)),
    streams: (prefix) => asked(() => reads.streams(prefix)),
    close: async () => {
      closed = true
      for (const subscription of subscriptions) subscription.abort()
      await Promise.allSettled(underWay)
      await appender.close()
      await following.wakeUp.close()
      await pool.end()
    },
  }
}

const batchMaxDefault = 1_000
const reconnectPauseMs = 250

/**
 * Catches up and then follows the log, with one query after another, until the signal aborts. While the database cannot be reached, the query is
 * repeated. Throws if this is another log, or if an event cannot be opened.
 */
async function* followLog(
  {
    lookAfter,
    wakeUp,
    looking,
  }: { readonly lookAfter: Reads['lookAfter']; readonly wakeUp: WakeUp; readonly looking: Outage },
  { after, known, prefixes, batchMax = batchMaxDefault, looked, signal }: SubscribeOptions,
): AsyncGenerator<SubscriptionItem> {
  let position = after
  let last: Known | undefined = known && { position: known.position, id: known.eventId }
  let caughtUp = false
  while (!signal.aborted) {
    const rings = wakeUp.rings()
    let look: Look
    try {
      look = await lookAfter({ after: position, last }, prefixes, batchMax)
      looking.works()
    } catch (error) {
      if (signal.aborted) return
      if (error instanceof LogRewritten || error instanceof EventsUnreadable) throw error
      looking.failed(error)
      await wakeUp.pause(reconnectPauseMs, signal)
      continue
    }
    yield* itemsOf(look, { after: position, batchMax, signal })
    if (signal.aborted) return
    position = look.position
    last = look.events.at(-1) ?? last
    if (position < look.head) continue
    if (!caughtUp) {
      caughtUp = true
      yield { kind: 'caught-up', position }
    }
    looked?.()
    await wakeUp.after(rings, signal)
  }
}

/** Splits the events of one query into batches of the requested size, because a single segment can contain more events. */
function* itemsOf(
  { events, position }: Look,
  { after, batchMax, signal }: Pick<SubscribeOptions, 'after' | 'signal'> & { readonly batchMax: number },
): Generator<SubscriptionItem> {
  if (events.length === 0 && position > after) yield { kind: 'idle', position }
  for (let from = 0; from < events.length && !signal.aborted; from += batchMax) {
    const batch: readonly RecordedEvent[] = events.slice(from, from + batchMax)
    const end = from + batchMax < events.length ? batch.at(-1)?.position : position
    yield { kind: 'events', events: batch, position: end ?? position }
  }
}
