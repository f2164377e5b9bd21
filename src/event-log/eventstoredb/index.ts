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
import { createOwnHead, readHead } from './read.ts'
import { createSharedReads } from './shared-reads.ts'
import { followAll } from './subscription.ts'

export { redactedUrl }

/**
 * The event log in EventStoreDB 23.10 or later, or KurrentDB. One stream is one stream; positions are commit
 * positions; ids at an exact revision make a resent append succeed forever, which is the server's own promise.
 *
 * Appends, reads and every subscription have connections of their own: a subscriber that does not read fills the
 * window its connection shares, and when a connection is given up, all other calls on it fail too.
 * All of them ask the leader, so that appended events are read: a cluster is named by several hosts or discovery, and
 * the user of the connection string may read `$all` and write streams.
 */

export type EventStoreDbLimits = {
  readonly connectTimeoutMs: number
  /** The server gives up a write after two seconds by default; this leaves it time to report that. */
  readonly appendDeadlineMs: number
  /** How long a read may wait for the next response. */
  readonly readSilenceMs: number
  /** How long a subscription may receive no event before it is checked. */
  readonly heartbeatMs: number
}

const eventStoreDbLimits: EventStoreDbLimits = {
  connectTimeoutMs: 5_000,
  appendDeadlineMs: 4_000,
  readSilenceMs: 10_000,
  heartbeatMs: 5_000,
}

type EventStoreDbOptions = {
  /** A connection string (`esdb://…`, `esdb+discover://…`): the one place for hosts, TLS files and credentials. */
  readonly url: string
  /** Put before every stream name where other software uses the server too: this log sees only streams with the prefix. */
  readonly prefix?: string | undefined
  readonly logger: Logger
  readonly limits?: Partial<EventStoreDbLimits>
}

/** Opens the log; connects on first use. Throws if the connection string cannot be understood. */
export const openEventStoreDb = ({ prefix = '', ...options }: EventStoreDbOptions): EventLog => {
  const { url, logger } = options
  checkUrl(url)
  if (dropsCredentials(url))
    logger.warn(
      { url: redactedUrl(url) },
      'event log: without TLS no credentials are sent to the event store',
    )
  const log =
    prefix === ''
      ? openServerLog(options, { headOf: readHead, prefix: undefined })
      : withPrefix(openServerLog(options, { headOf: createOwnHead(prefix), prefix }), prefix)
  return {
    ...log,
    append: (stream, expected, events) => {
      // Checked without the prefix, which may hold characters that stream names may not.
      checkAppend(stream, expected, events)
      return log.append(stream, expected, events)
    },
  }
}

/** The log under the names its streams have on the server. */
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
  const appender = createAppender({
    connect: () => connectAs('append'),
    lastRevision: async (stream) => (await reads.lastRevision(stream)) ?? -1,
    deadlineMs: limits.appendDeadlineMs,
    logger,
  })

  /** Logged once for all subscriptions, because they are lost together. */
  const lost = createOutage({ logger, what: 'event log: a subscription' })
  const subscribe: EventLog['subscribe'] = (options) => {
    const signal = AbortSignal.any([options.signal, closing.signal])
    return followAll(
      {
        connect: () => connectAs('subscribe', signal),
        heartbeatMs: limits.heartbeatMs,
        silenceMs: limits.readSilenceMs,
        logger,
        lost,
      },
      { ...options, signal },
    )
  }

  return {
    append: appender.append,
    read: reads.read,
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

/** The server lists streams only through its own projections, so this searches the whole log for their first events. */
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
 * The part of a server's log whose stream names start with a prefix, as a log of its own. Its streams have their names
 * without the prefix, because digests cover those names.
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
