import type { Logger } from 'pino'
import { createOutage } from '../../concurrency/outage.ts'
import {
  AppendConflict,
  checkAppend,
  type EventLog,
  LogRewritten,
  logStart,
  type NewEvent,
  placeOf,
  type RecordedEvent,
  StreamMissing,
  type SubscriptionItem,
} from '../port.ts'
import { readIfAny } from '../read-stream.ts'
import { createAppender } from './append.ts'
import {
  type Connection,
  type ConnectOptions,
  checkUrl,
  connect,
  dropsCredentials,
  redactedUrl,
} from './client.ts'
import { createOwnHead, readAt, readEvents, readHead } from './read.ts'
import { createSharedReads } from './shared-reads.ts'
import { followAll } from './subscription.ts'

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
    gapless: false,
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
    lastRevision: async (stream) => {
      // Throws if events are hidden, because the server's next scavenge would delete them.
      const [last] = await Promise.all([reads.lastRevision(stream), readIfAny(reads, stream, { max: 1 })])
      return last
    },
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
    gapless: false,
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

/**
 * The last append that this process has written. Only its ids are compared, because the server accepts an append whose ids another process has
 * already written with other bytes. Writers read such events afterwards.
 */
type Written = { readonly stream: string; readonly revision: number; readonly events: readonly NewEvent[] }

/**
 * The last events that this process has read and written. A server can be restored from an older copy only while it is stopped, so it is
 * enough to look for them on each new connection. Otherwise, another process may have written other events at the same revisions.
 */
type LastSeen = {
  noteRead(events: readonly RecordedEvent[]): void
  noteWritten(written: Written): void
  /** Throws `LogRewritten` if the log no longer contains these events, and the errors of reads. */
  check(connection: Connection, silenceMs: number): Promise<void>
}

const createLastSeen = (): LastSeen => {
  let read: RecordedEvent | undefined
  let written: Written | undefined
  return {
    noteRead: (events) => {
      for (const event of [events[0], events.at(-1)])
        if (event !== undefined && (read === undefined || event.position > read.position)) read = event
    },
    noteWritten: (last) => {
      written = last
    },
    check: async (connection, silenceMs) => {
      if (read !== undefined) {
        const there = await readAt(connection, read.position, silenceMs)
        if (there === null || placeOf(there).digest !== placeOf(read).digest)
          throw lost(`the event at position ${read.position} that this process has read`)
      }
      if (written !== undefined && !(await isThere(written, connection, silenceMs)))
        throw lost(
          `the event at revision ${written.revision} of ${written.stream} that this process has written`,
        )
    },
  }
}

const lost = (what: string): LogRewritten =>
  new LogRewritten(
    `the event log no longer contains ${what}: it was restored from an older copy; restart this process`,
  )

const isThere = async (
  { stream, revision, events }: Written,
  connection: Connection,
  silenceMs: number,
): Promise<boolean> => {
  const from = revision - events.length + 1
  const request = { stream, direction: 'forwards', from, max: events.length } as const
  const there = await readEvents(connection, request, silenceMs).catch((error: unknown) => {
    if (error instanceof StreamMissing) return []
    throw error
  })
  return events.every(({ id }, n) => there[n]?.id === id)
}
