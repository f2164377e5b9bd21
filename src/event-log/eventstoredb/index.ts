import type { Logger } from 'pino'
import { createOutage } from '../outage.ts'
import {
  AppendConflict,
  checkAppend,
  type EventLog,
  logStart,
  type Position,
  type ReadOptions,
  type RecordedEvent,
  StreamMissing,
  type SubscribeOptions,
  type SubscriptionItem,
  Unavailable,
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
import type { ReadRequest } from './messages.ts'
import { createOwnHead, readAt, readEvents, readHead } from './read.ts'
import { followAll } from './subscription.ts'

export { redactedUrl }

/**
 * The event log in EventStoreDB 23.10 or later, or KurrentDB. One stream is one stream; positions are commit
 * positions; ids at an exact revision make a resent append succeed for ever, which is the server's own promise.
 *
 * Appends, reads and every subscription have a connection of their own: a subscriber that does not read fills the
 * window its connection shares, and a connection that is given up takes with it whatever else is under way on it.
 * All of them ask the leader, so that what was appended is read: a cluster is named by several hosts or discovery, and
 * the user of the connection string may read `$all` and write streams.
 */

export type EventStoreDbLimits = {
  readonly connectTimeoutMs: number
  /** The server gives up a write after two seconds by default; this leaves it time to say so. */
  readonly appendDeadlineMs: number
  /** How long a read may hear nothing. */
  readonly readSilenceMs: number
  /** How long a subscription may see no event before it is checked. */
  readonly heartbeatMs: number
}

export const eventStoreDbLimits: EventStoreDbLimits = {
  connectTimeoutMs: 5_000,
  appendDeadlineMs: 5_000,
  readSilenceMs: 10_000,
  heartbeatMs: 5_000,
}

export type EventStoreDbOptions = {
  /** A connection string (`esdb://…`, `esdb+discover://…`): the one place for hosts, TLS files and credentials. */
  readonly url: string
  /** Goes before every stream name, where others use the server too: only what has it is there for this log. */
  readonly prefix?: string | undefined
  readonly logger: Logger
  readonly limits?: Partial<EventStoreDbLimits>
}

/** Opens the log; connects on first use. Throws where the connection string cannot be understood. */
export const openEventStoreDb = ({
  url,
  prefix = '',
  logger,
  limits: own,
}: EventStoreDbOptions): EventLog => {
  checkUrl(url)
  if (dropsCredentials(url))
    logger.warn(
      { url: redactedUrl(url) },
      'event log: without TLS no credentials are sent to the event store',
    )
  const limits = { ...eventStoreDbLimits, ...own }
  const closing = new AbortController()
  const connectAs = (role: ConnectOptions['role'], signal = closing.signal): Promise<Connection> =>
    connect({ url, role, timeoutMs: limits.connectTimeoutMs, signal })

  /** A stream's name here, from its name on the server. Digests are over the name here. */
  const inside = (event: RecordedEvent): RecordedEvent =>
    prefix === '' ? event : { ...event, stream: event.stream.slice(prefix.length) }
  const ownHead = prefix === '' ? readHead : createOwnHead(prefix)

  let reading: Promise<Connection> | undefined
  const dropReading = (): void => {
    const dropped = reading
    reading = undefined
    dropped?.then(
      (connection) => connection.close(),
      () => undefined,
    )
  }

  /** Reads over the shared connection, which does not survive a read that fails. */
  const withConnection = async <Value>(work: (connection: Connection) => Promise<Value>): Promise<Value> => {
    if (closing.signal.aborted) throw new Unavailable('the event log is closed')
    reading ??= connectAs('read')
    const used = reading
    try {
      return await work(await used)
    } catch (error) {
      if (error instanceof Unavailable && reading === used) dropReading()
      throw error
    }
  }

  const readPage = async (request: ReadRequest & { stream: string }): Promise<RecordedEvent[]> => {
    const asked = { ...request, stream: `${prefix}${request.stream}` }
    const page = await withConnection((connection) => readEvents(connection, asked, limits.readSilenceMs))
    return page.map(inside)
  }

  const read = async (
    stream: string,
    { from, direction = 'forwards', max }: ReadOptions,
  ): Promise<RecordedEvent[]> => {
    const page = await readPage({ stream, from, direction, max })
    if (direction === 'forwards' || from === undefined || page.length > 0) return page
    // Nothing backwards from beyond the end: what is meant is from the end.
    const [last] = await readPage({ stream, from: undefined, direction, max: 1 })
    return last !== undefined && last.revision < from
      ? readPage({ stream, from: undefined, direction, max })
      : page
  }

  const lastRevision = async (stream: string): Promise<number | null> => {
    try {
      const [last] = await read(stream, { direction: 'backwards', max: 1 })
      return last?.revision ?? null
    } catch (error) {
      if (error instanceof StreamMissing) return null
      throw error
    }
  }

  /** The server lists no streams but by projections of its own: their first events are looked for in the whole log. */
  const streams = async (prefix: string): Promise<string[]> => {
    const names = new Set<string>()
    for await (const item of subscribe({ after: logStart, prefixes: [prefix], signal: closing.signal })) {
      if (item.kind === 'events') for (const { stream } of item.events) names.add(stream)
      if (item.kind === 'caught-up') break
    }
    return [...names]
  }

  /** Told once for all subscriptions: they are lost together. */
  const lost = createOutage({ logger, what: 'event log: a subscription' })
  const subscribe = (options: SubscribeOptions): AsyncIterable<SubscriptionItem> => {
    const signal = AbortSignal.any([options.signal, closing.signal])
    const prefixes = options.prefixes.length === 0 ? [''] : options.prefixes
    const items = followAll(
      {
        connect: () => connectAs('subscribe', signal),
        heartbeatMs: limits.heartbeatMs,
        silenceMs: limits.readSilenceMs,
        logger,
        lost,
      },
      {
        ...options,
        prefixes: prefix === '' ? options.prefixes : prefixes.map((own) => `${prefix}${own}`),
        signal,
      },
    )
    return prefix === '' ? items : insideAll(items)
  }

  async function* insideAll(items: AsyncIterable<SubscriptionItem>): AsyncGenerator<SubscriptionItem> {
    for await (const item of items)
      yield item.kind === 'events' ? { ...item, events: item.events.map(inside) } : item
  }

  const at = async (position: Position): Promise<RecordedEvent | null> => {
    const event = await withConnection((connection) => readAt(connection, position, limits.readSilenceMs))
    return event?.stream.startsWith(prefix) === true ? inside(event) : null
  }

  const appender = createAppender({
    connect: () => connectAs('append'),
    lastRevision: async (stream) => (await lastRevision(stream.slice(prefix.length))) ?? -1,
    deadlineMs: limits.appendDeadlineMs,
    logger,
  })

  return {
    append: (stream, expected, events) => {
      checkAppend(stream, expected, events)
      const appended = appender.append(`${prefix}${stream}`, expected, events)
      if (prefix === '') return appended
      return appended.catch((error: unknown) => {
        throw error instanceof AppendConflict ? new AppendConflict(stream, expected, error.actual) : error
      })
    },
    read,
    subscribe,
    head: () => withConnection((connection) => ownHead(connection, limits.readSilenceMs)),
    at,
    lastRevision,
    streams,
    close: async () => {
      closing.abort()
      dropReading()
      await appender.close()
    },
  }
}
