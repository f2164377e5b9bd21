import pg from 'pg'
import type { Logger } from 'pino'
import { createOutage } from '../outage.ts'
import {
  AppendConflict,
  checkAppend,
  type EventLog,
  type ExpectedRevision,
  LogRewritten,
  type NewEvent,
  type Position,
  type ReadOptions,
  type RecordedEvent,
  StreamMissing,
  type SubscribeOptions,
  type SubscriptionItem,
  Unavailable,
  UnknownOutcome,
} from '../port.ts'
import { int4Array, int8Array, textArray } from './arrays.ts'
import { createWakeUp } from './wake-up.ts'

/**
 * The event log in PostgreSQL: the embedded default, and a production choice of its own.
 *
 * Appends of all streams of this process are gathered into one transaction at a time (group commit): while one is
 * under way the next gathers. Order and durability are the database's, see migrations/0001_event_log.sql. Nothing
 * here ever joins a caller's transaction.
 */

const batchAppendsMax = 256
const batchEventsMax = 4_096
const queuedAppendsMax = 10_000
/** The server gives up waiting for the head row, or on the statement, before we give up on the server. */
const serverTimeoutMs = 8_000
const clientTimeoutMs = 10_000
const connectTimeoutMs = 5_000
/** A filtered subscription looks at this many positions at a time, so that a rare match never means a long scan. */
const scanWindow = 50_000n
const batchMaxDefault = 1_000
const streamNamesMax = 100_000
const reconnectPauseMs = 250
/** SQLSTATE of a server that stands by for another. */
const readOnly = '25006'
/** After a failover a connection kept for ever would go on asking the server that was. */
const connectionLifetimeSeconds = 60
/** Separates packed values. JSON cannot hold this character unescaped, so it splits any JSON text safely. */
const separator = '\x1e'

type QueuedAppend = {
  readonly stream: string
  readonly expected: ExpectedRevision
  readonly events: readonly NewEvent[]
  readonly resolve: (result: { revision: number }) => void
  readonly reject: (error: Error) => void
}

export type PostgresEventLogOptions = { readonly url: string; readonly logger: Logger }

/** Opens the log; connects on first use. The schema must have been migrated. */
export const openPostgresEventLog = ({ url, logger }: PostgresEventLogOptions): EventLog => {
  const pool = new pg.Pool({
    connectionString: url,
    max: 4,
    connectionTimeoutMillis: connectTimeoutMs,
    query_timeout: 60_000,
    maxLifetimeSeconds: connectionLifetimeSeconds,
    application_name: 'event-log-read',
  })
  pool.on('error', (error) => logger.warn({ err: error }, 'event log: idle connection lost'))
  const wakeUp = createWakeUp({ url, channel: 'log_appended', logger })
  const appender = createAppender({ url, logger })
  const reading = createOutage({ logger, what: 'event log: a subscription' })
  const streamNames = new Map<number, string>()
  const subscriptions = new Set<AbortController>()
  const reads = new Set<Promise<unknown>>()
  let closed = false
  const asked = <T>(read: () => Promise<T>): Promise<T> => {
    if (closed) return Promise.reject(new Unavailable('the event log is closed'))
    const reading = read()
    reads.add(reading)
    reading.catch(() => undefined).finally(() => reads.delete(reading))
    return reading
  }

  const nameStreams = async (ids: readonly number[]): Promise<void> => {
    const unknown = [...new Set(ids)].filter((id) => !streamNames.has(id))
    if (unknown.length === 0) return
    if (streamNames.size + unknown.length > streamNamesMax) streamNames.clear()
    const { rows } = await query<{ id: number; name: string }>(
      pool,
      'select id, name from log_streams where id = any ($1)',
      [[...new Set(ids)]],
    )
    for (const { id, name } of rows) streamNames.set(id, name)
  }

  const unpack = async (row: PackedRow | undefined): Promise<RecordedEvent[]> => {
    if (row === undefined || row.positions === null) return []
    const positions = row.positions.split(',')
    const streamIds = row.stream_ids.split(',').map(Number)
    const revisions = row.revisions.split(',')
    const ids = row.event_ids.split(',')
    const types = row.types.split(',')
    const recorded = row.recorded.split(',')
    const data = row.data.split(separator)
    const metadata = row.metadata.split(separator)
    await nameStreams(streamIds)
    const at = (list: readonly string[], i: number): string => list[i] ?? ''
    return positions.map((position, i) => ({
      position: BigInt(position),
      stream: streamNames.get(streamIds[i] ?? 0) ?? '',
      revision: Number(revisions[i]),
      id: at(ids, i),
      type: at(types, i),
      data: at(data, i),
      metadata: at(metadata, i),
      recordedAtMs: Number(recorded[i]),
    }))
  }

  const readStream = async (
    stream: string,
    { from, direction = 'forwards', max }: ReadOptions,
  ): Promise<RecordedEvent[]> => {
    const found = await query<{ id: number }>(pool, 'select id from log_streams where name = $1', [stream])
    const id = found.rows[0]?.id
    if (id === undefined) throw new StreamMissing(`there is no stream ${stream}`)
    const forwards = direction === 'forwards'
    const { rows } = await query<PackedRow>(pool, forwards ? readForwards : readBackwards, [
      id,
      from ?? (forwards ? 0 : Number.MAX_SAFE_INTEGER),
      max,
    ])
    const events = await unpack(rows[0])
    return forwards ? events : events.reverse()
  }

  const head = async (): Promise<Position> => {
    const { rows } = await query<{ position: string }>(pool, 'select position from log_head', [])
    return BigInt(rows[0]?.position ?? 0)
  }

  const at = async (position: Position): Promise<RecordedEvent | null> => {
    const { rows } = await query<PackedRow>(pool, readAt, [position.toString()])
    return (await unpack(rows[0]))[0] ?? null
  }

  const lastRevision = async (stream: string): Promise<number | null> => {
    const { rows } = await query<{ revision: string }>(
      pool,
      'select revision from log_streams where name = $1',
      [stream],
    )
    return rows[0] === undefined ? null : Number(rows[0].revision)
  }

  const streams = async (prefix: string): Promise<string[]> => {
    const { rows } = await query<{ name: string }>(pool, 'select name from log_streams where name like $1', [
      likePrefix(prefix),
    ])
    return rows.map(({ name }) => name)
  }

  /**
   * One look at the log after a position: the matching events, and how far nothing else can match. Throws
   * `LogRewritten` where the log ends before the position, or holds something else where `last` was read.
   */
  const lookAfter = async (
    { after, last }: { after: Position; last: Pick<RecordedEvent, 'position' | 'id'> | undefined },
    prefixes: readonly string[],
    batchMax: number,
  ): Promise<{ events: RecordedEvent[]; position: Position; head: Position }> => {
    const all = prefixes.length === 0
    const { rows } = await query<Looked>(pool, all ? readAll : readFiltered, [
      after.toString(),
      batchMax,
      (last?.position ?? 0n).toString(),
      ...(all ? [] : [prefixes.map(likePrefix), (after + scanWindow).toString()]),
    ])
    const headNow = BigInt(rows[0]?.head ?? 0)
    if (headNow < after)
      throw new LogRewritten(`the event log ends at ${headNow}; it was read up to ${after}`)
    if (last !== undefined && rows[0]?.known !== last.id)
      throw new LogRewritten(`the event log no longer holds the event ${last.id} read at ${last.position}`)
    const events = await unpack(rows[0])
    const newest = events.at(-1)
    if (newest !== undefined && (all || events.length === batchMax))
      return { events, position: newest.position, head: headNow }
    const scanned = all || after + scanWindow > headNow ? headNow : after + scanWindow
    return { events, position: scanned > after ? scanned : after, head: headNow }
  }

  async function* subscribe(options: SubscribeOptions): AsyncGenerator<SubscriptionItem> {
    if (closed) return
    const own = new AbortController()
    subscriptions.add(own)
    const signal = AbortSignal.any([options.signal, own.signal])
    const batchMax = options.batchMax ?? batchMaxDefault
    let position = options.after
    let last: Pick<RecordedEvent, 'position' | 'id'> | undefined = options.known && {
      position: options.known.position,
      id: options.known.eventId,
    }
    let caughtUp = false
    let take = batchMax
    try {
      while (!signal.aborted) {
        const rings = wakeUp.rings()
        let look: Awaited<ReturnType<typeof lookAfter>>
        try {
          look = await lookAfter({ after: position, last }, options.prefixes, take)
          take = Math.min(batchMax, take * 2)
          reading.works()
        } catch (error) {
          if (signal.aborted) return
          if (error instanceof LogRewritten) throw error
          // Perhaps a page of very large events is more than one text can hold: the next try asks for fewer.
          take = Math.max(1, take >> 1)
          reading.failed(error)
          await wakeUp.pause(reconnectPauseMs, signal)
          continue
        }
        const moved = look.position > position
        position = look.position
        last = look.events.at(-1) ?? last
        if (look.events.length > 0) yield { kind: 'events', events: look.events, position }
        else if (moved) yield { kind: 'idle', position }
        if (position < look.head) continue
        if (!caughtUp) {
          caughtUp = true
          yield { kind: 'caught-up', position }
        }
        await wakeUp.after(rings, signal)
      }
    } finally {
      subscriptions.delete(own)
      own.abort()
    }
  }

  return {
    append: (stream, expected, events) => {
      checkAppend(stream, expected, events)
      refuseSeparator(stream, events)
      return appender.append(stream, expected, events)
    },
    read: (stream, options) => asked(() => readStream(stream, options)),
    subscribe,
    head: () => asked(head),
    at: (position) => asked(() => at(position)),
    lastRevision: (stream) => asked(() => lastRevision(stream)),
    streams: (prefix) => asked(() => streams(prefix)),
    close: async () => {
      closed = true
      for (const subscription of subscriptions) subscription.abort()
      await Promise.allSettled(reads)
      await appender.close()
      await wakeUp.close()
      await pool.end()
    },
  }
}

type PackedRow = {
  positions: string | null
  stream_ids: string
  revisions: string
  event_ids: string
  types: string
  recorded: string
  data: string
  metadata: string
}

/** `known`: the id of the event that stands where the reader's last one stood. */
type Looked = PackedRow & { head: string; known: string | null }

const likePrefix = (prefix: string): string => `${prefix.replace(/[\\%_]/g, '\\$&')}%`

// One row per read: eight long texts cost a fraction of what thousands of rows of eight columns cost to parse.
const packed = (from: string, more = ''): string => `
  select string_agg(position::text, ',' order by position) as positions,
         string_agg(stream_id::text, ',' order by position) as stream_ids,
         string_agg(revision::text, ',' order by position) as revisions,
         string_agg(event_id::text, ',' order by position) as event_ids,
         string_agg(type, ',' order by position) as types,
         string_agg((extract(epoch from recorded_at) * 1000)::bigint::text, ',' order by position) as recorded,
         string_agg(data, chr(30) order by position) as data,
         string_agg(metadata, chr(30) order by position) as metadata${more}
    from (${from}) e`

const headNow = `,
         (select position from log_head) as head,
         (select event_id from log_events where position = $3) as known`
const readAt = packed('select * from log_events where position = $1')
const readForwards = packed(
  'select * from log_events where stream_id = $1 and revision >= $2 order by revision limit $3',
)
const readBackwards = packed(
  'select * from log_events where stream_id = $1 and revision <= $2 order by revision desc limit $3',
)
const readAll = packed('select * from log_events where position > $1 order by position limit $2', headNow)
const readFiltered = packed(
  `select e.* from log_events e where e.position > $1 and e.position <= $5
      and exists (select from log_streams s where s.id = e.stream_id and s.name like any ($4))
    order by e.position limit $2`,
  headNow,
)

const query = async <Row extends pg.QueryResultRow>(
  pool: pg.Pool,
  text: string,
  values: unknown[],
): Promise<pg.QueryResult<Row>> => {
  try {
    return await pool.query<Row>(text, values)
  } catch (error) {
    throw new Unavailable(`the event log cannot be read: ${message(error)}`, { cause: error })
  }
}

const message = (error: unknown): string => (error instanceof Error ? error.message : String(error))

const appendSql =
  'select append_batch($1::text[], $2::bigint[], $3::integer[], $4::integer[], $5::integer[], $6, $7, $8, $9)::text as results'

/** Gathers appends and writes one batch at a time over one connection of its own. */
const createAppender = ({ url, logger }: PostgresEventLogOptions) => {
  const queue: QueuedAppend[] = []
  let client: pg.Client | undefined
  let running: Promise<void> | undefined
  let closed = false

  const connected = async (): Promise<pg.Client> => {
    if (client !== undefined) return client
    const fresh = new pg.Client({
      connectionString: url,
      connectionTimeoutMillis: connectTimeoutMs,
      query_timeout: clientTimeoutMs,
      statement_timeout: serverTimeoutMs,
      application_name: 'event-log-append',
    })
    fresh.on('error', (error) => {
      logger.warn({ err: error }, 'event log: append connection lost')
      if (client === fresh) client = undefined
    })
    await fresh.connect()
    client = fresh
    return fresh
  }

  const drop = (broken: pg.Client): void => {
    if (client === broken) client = undefined
    broken.end().catch(() => undefined)
  }

  /** The next appends, in order; of one stream at most one, because each names its exact revision. */
  const takeBatch = (): QueuedAppend[] => {
    const streams = new Set<string>()
    const batch: QueuedAppend[] = []
    let events = 0
    for (const append of queue) {
      if (batch.length === batchAppendsMax || (events > 0 && events + append.events.length > batchEventsMax))
        break
      if (streams.has(append.stream)) continue
      streams.add(append.stream)
      batch.push(append)
      events += append.events.length
    }
    const taken = new Set(batch)
    queue.splice(0, queue.length, ...queue.filter((append) => !taken.has(append)))
    return batch
  }

  const write = async (batch: readonly QueuedAppend[]): Promise<void> => {
    let connection: pg.Client
    try {
      connection = await connected()
    } catch (error) {
      for (const append of batch)
        append.reject(new Unavailable(`the event log cannot be reached: ${message(error)}`, { cause: error }))
      return
    }
    try {
      const { rows } = await connection.query<{ results: string }>({
        name: 'append_batch',
        text: appendSql,
        values: parameters(batch),
      })
      const results = (rows[0]?.results ?? '').slice(1, -1).split(',').map(Number)
      for (const [i, append] of batch.entries()) settle(append, results[i])
    } catch (error) {
      const sqlState = error instanceof pg.DatabaseError ? (error.code ?? '') : ''
      if (sqlState === '' || sqlState.startsWith('08') || sqlState.startsWith('57P')) {
        drop(connection)
        for (const append of batch)
          append.reject(
            new UnknownOutcome(`no answer to an append to ${append.stream}: ${message(error)}`, {
              cause: error,
            }),
          )
      } else if (batch.length > 1 && /^2[23]/.test(sqlState)) {
        // One append holds something the database refuses: find it, and let the others pass.
        for (const append of batch) await write([append])
      } else {
        // The server answered with an error: its transaction was rolled back, nothing was written. One that may only be
        // read is not the one we want any more: the next connection finds the one that took over.
        if (sqlState === readOnly) drop(connection)
        for (const append of batch)
          append.reject(
            new Unavailable(`the event log refused an append to ${append.stream}: ${message(error)}`, {
              cause: error,
            }),
          )
      }
    }
  }

  const run = async (): Promise<void> => {
    // Appends of one turn of the event loop go together.
    await new Promise((resolve) => setImmediate(resolve))
    while (queue.length > 0) {
      await write(takeBatch())
      // Whoever was answered may append again at once: a tick comes after all of that, and before any other I/O.
      await new Promise<void>((resolve) => process.nextTick(resolve))
    }
    running = undefined
  }

  return {
    append: (stream: string, expected: ExpectedRevision, events: readonly NewEvent[]) =>
      new Promise<{ revision: number }>((resolve, reject) => {
        if (closed) return reject(new Unavailable('the event log is closed'))
        if (queue.length >= queuedAppendsMax)
          return reject(new Unavailable(`${queuedAppendsMax} appends are waiting for the event log`))
        queue.push({ stream, expected, events, resolve, reject })
        running ??= run()
      }),
    close: async (): Promise<void> => {
      closed = true
      await running
      await client?.end()
    },
  }
}

const settle = (append: QueuedAppend, result: number | undefined): void => {
  if (result === undefined || Number.isNaN(result))
    append.reject(new UnknownOutcome(`the event log answered nothing about ${append.stream}`))
  else if (result >= 0) append.resolve({ revision: result })
  else append.reject(new AppendConflict(append.stream, append.expected, -2 - result))
}

const parameters = (batch: readonly QueuedAppend[]): (Buffer | string)[] => {
  const counts = batch.map(({ events }) => events.length)
  const starts: number[] = []
  const appends: number[] = []
  counts.forEach((count, i) => {
    starts.push(appends.length)
    for (let n = 0; n < count; n++) appends.push(i + 1)
  })
  const events = batch.length === 1 ? (batch[0]?.events ?? []) : batch.flatMap((append) => append.events)
  const together = (texts: readonly string[]): string => texts.join(separator)
  return [
    textArray(batch.map(({ stream }) => stream)),
    int8Array(batch.map(({ expected }) => (expected === 'none' ? -1 : expected))),
    int4Array(counts),
    int4Array(starts),
    int4Array(appends),
    together(events.map(({ id }) => id)),
    together(events.map(({ type }) => type)),
    together(events.map(({ data }) => data)),
    together(events.map(({ metadata }) => metadata)),
  ]
}

/** The separator would tear an event apart. No JSON text holds it, so whoever sends it has not serialised. */
const refuseSeparator = (stream: string, events: readonly NewEvent[]): void => {
  for (const { type, data, metadata } of events)
    if (data.includes(separator) || metadata.includes(separator))
      throw new TypeError(
        `${type} for ${stream} holds U+001E unescaped: its data or metadata is no JSON text`,
      )
}
