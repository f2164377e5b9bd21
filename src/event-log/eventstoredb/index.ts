import type { Logger } from 'pino'
import { createOutage } from '../outage.ts'
import {
  AppendConflict,
  checkAppend,
  type EventLog,
  logStart,
  type RecordedEvent,
  type SubscriptionItem,
} from '../port.ts'
import { createAppender } from './append.ts'
import {
  type Connection,
  type ConnectOptions,
  checkUrl,
  connect,
  dropsCredentials,
  redactedUrl,
} from './client.ts'
import { createLastSeen, type LastSeen } from './last-seen.ts'
import { createOwnHead, readHead } from './read.ts'
import { createSharedReads } from './shared-reads.ts'
import { followAll } from './subscription.ts'

export { redactedUrl }

/**
 * The event log in EventStoreDB 23.10 or later, or in KurrentDB. Positions are commit positions. The server guarantees that an append at an
 * exact revision can be repeated with the same ids at any later time, and then succeeds without writing again.
 *
 * Appends, reads and each subscription have their own connection. A subscriber that does not read blocks other calls on its connection, and
 * closing a connection fails all calls on it. All calls go to the leader, so that appended events can be read immediately. The user in the
 * connection string must be allowed to read `$all` and to write streams.
 */

const eventStoreDbLimits = {
  connectTimeoutMs: 5_000,
  /** By default, the server abandons a write after two seconds, so this leaves it enough time to report the failure. */
  appendDeadlineMs: 4_000,
  readSilenceMs: 10_000,
  /** A subscription is checked after this time without an event. */
  heartbeatMs: 5_000,
}

export type EventStoreDbLimits = Readonly<typeof eventStoreDbLimits>

type EventStoreDbOptions = {
  /** A connection string (`esdb://…`, `esdb+discover://…`) with the hosts, TLS files and credentials. */
  readonly url: string
  /** The prefix of stream names, for a server that other software also uses. The log contains only streams with this prefix. */
  readonly prefix?: string | undefined
  readonly logger: Logger
  readonly limits?: Partial<EventStoreDbLimits>
}

/** Opens the log and connects on first use. Throws if the connection string is invalid. */
export const openEventStoreDb = ({ prefix = '', ...options }: EventStoreDbOptions): EventLog => {
  const { url, logger } = options
  checkUrl(url)
  if (dropsCredentials(url))
    logger.warn(
      { url: redactedUrl(url) },
      'event log: the connection does not use TLS, so the user and password are not sent to the event store',
    )
  const log =
    prefix === ''
      ? openServerLog(options, { headOf: readHead, prefix: undefined })
      : withPrefix(openServerLog(options, { headOf: createOwnHead(prefix), prefix }), prefix)
  return {
    ...log,
    append: (stream, expected, events) => {
      // The name is checked without the prefix, because the prefix can contain characters that are not allowed in stream names.
      checkAppend(stream, expected, events)
      return log.append(stream, expected, events)
    },
  }
}

/** The log with the server's stream names. */
const openServerLog = (
  { url, logger, limits: own }: Omit<EventStoreDbOptions, 'prefix'>,
  ofOwn: { readonly headOf: typeof readHead; readonly prefix: string | undefined },
): EventLog => {
  const limits = { ...eventStoreDbLimits, ...own }
  const closing = new AbortController()
  const connectAs = (role: ConnectOptions['role'], signal = closing.signal): Promise<Connection> =>
    connect({ url, role, timeoutMs: limits.connectTimeoutMs, signal })

  const reads = createSharedReads({
    connect: () => connectAs('read'),
    ...ofOwn,
    silenceMs: limits.readSilenceMs,
  })
  const lastSeen = createLastSeen()
  const appender = createAppender({
    checkLog: (connection) => lastSeen.check(connection, limits.appendDeadlineMs),
    connect: () => connectAs('append'),
    lastRevision: async (stream) => (await reads.lastRevision(stream)) ?? -1,
    deadlineMs: limits.appendDeadlineMs,
    logger,
  })

  /** Shared by all subscriptions, because they are usually lost at the same time. */
  const lost = createOutage({ logger, what: 'event log: a subscription' })
  const subscribe: EventLog['subscribe'] = (options) => {
    const signal = AbortSignal.any([options.signal, closing.signal])
    const items = followAll(
      {
        connect: () => connectAs('subscribe', signal),
        heartbeatMs: limits.heartbeatMs,
        silenceMs: limits.readSilenceMs,
        logger,
        lost,
      },
      { ...options, signal },
    )
    return noted(items, lastSeen)
  }

  return {
    append: async (stream, expected, events) => {
      const appended = await appender.append(stream, expected, events)
      lastSeen.noteWritten({ stream, revision: appended.revision, events })
      return appended
    },
    read: async (stream, options) => {
      const events = await reads.read(stream, options)
      lastSeen.noteRead(events)
      return events
    },
    subscribe,
    head: reads.head,
    at: reads.at,
    lookBack: reads.lookBack,
    lastRevision: reads.lastRevision,
    streams: (prefix) => streamsOf(subscribe, prefix, closing.signal),
    close: async () => {
      closing.abort()
      reads.close()
      await appender.close()
    },
  }
}

async function* noted(
  items: AsyncIterable<SubscriptionItem>,
  lastSeen: LastSeen,
): AsyncGenerator<SubscriptionItem> {
  for await (const item of items) {
    if (item.kind === 'events') lastSeen.noteRead(item.events)
    yield item
  }
}

/** Collects the names from the whole log, because the server can list streams only with its own projections. */
const streamsOf = async (
  subscribe: EventLog['subscribe'],
  prefix: string,
  signal: AbortSignal,
): Promise<string[]> => {
  const names = new Set<string>()
  for await (const item of subscribe({ after: logStart, prefixes: [prefix], signal })) {
    if (item.kind === 'events') for (const { stream } of item.events) names.add(stream)
    if (item.kind === 'caught-up') break
  }
  return [...names]
}

/**
 * The part of a server's log with stream names that start with a prefix. In this log, the names have no prefix, because digests cover
 * stream names.
 */
const withPrefix = (whole: EventLog, prefix: string): EventLog => {
  const withoutPrefix = (event: RecordedEvent): RecordedEvent => ({
    ...event,
    stream: event.stream.slice(prefix.length),
  })

  async function* itemsOf(items: AsyncIterable<SubscriptionItem>): AsyncGenerator<SubscriptionItem> {
    for await (const item of items)
      yield item.kind === 'events' ? { ...item, events: item.events.map(withoutPrefix) } : item
  }

  return {
    append: (stream, expected, events) =>
      whole.append(`${prefix}${stream}`, expected, events).catch((error: unknown) => {
        throw error instanceof AppendConflict ? new AppendConflict(stream, expected, error.actual) : error
      }),
    read: async (stream, options) => (await whole.read(`${prefix}${stream}`, options)).map(withoutPrefix),
    subscribe: (options) => {
      const prefixes = options.prefixes.length === 0 ? [''] : options.prefixes
      return itemsOf(whole.subscribe({ ...options, prefixes: prefixes.map((own) => `${prefix}${own}`) }))
    },
    head: () => whole.head(),
    at: async (position) => {
      const event = await whole.at(position)
      return event?.stream.startsWith(prefix) === true ? withoutPrefix(event) : null
    },
    lookBack: async (from) => {
      const { events, ...rest } = await whole.lookBack(from)
      return { ...rest, events: events.map(withoutPrefix) }
    },
    lastRevision: (stream) => whole.lastRevision(`${prefix}${stream}`),
    streams: async (start) =>
      (await whole.streams(`${prefix}${start}`)).map((stream) => stream.slice(prefix.length)),
    close: () => whole.close(),
  }
}
