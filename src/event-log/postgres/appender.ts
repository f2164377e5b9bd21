import { hash } from 'node:crypto'
import pg from 'pg'
import type { Logger } from 'pino'
import { DatabaseClient } from '../../concurrency/database-client.ts'
import {
  AppendConflict,
  type Appended,
  type ExpectedRevision,
  LogRewritten,
  type NewEvent,
  Unavailable,
  UnknownOutcome,
} from '../port.ts'
import { type LastSeen, lostFromLog, type Reads, type Seen } from './reads.ts'
import { packSegment, type Segment } from './segment.ts'

/** Collects appends, and writes one batch at a time over its own connection. */

const batchAppendsMax = 256
const batchEventsMax = 4_096
/** The maximum bytes of a batch in stored form. The whole statement must fit into the memory of this process and of the server. */
const batchBytesMax = 8 * 1024 * 1024
const queuedAppendsMax = 10_000
/** After this time, the outcome is unknown, because the server can still write the append until `serverTimeoutMs`. */
const clientTimeoutMs = 4_000
const serverTimeoutMs = 8_000
export const connectTimeoutMs = 5_000
/** The SQLSTATE of a standby server. */
const readOnly = '25006'
/** The SQLSTATE of `append_events` if rows were discarded. */
const rowsDiscarded = 'P0001'

type QueuedAppend = {
  readonly stream: string
  readonly expected: ExpectedRevision
  readonly count: number
  /** The events in stored form, packed while the previous batch is being written. */
  readonly segment: Segment
  readonly resolve: (result: Appended) => void
  readonly reject: (error: Error) => void
}

type Appender = {
  append(stream: string, expected: ExpectedRevision, events: readonly NewEvent[]): Promise<Appended>
  close(): Promise<void>
}

type AppenderOptions = {
  readonly url: string
  readonly logger: Logger
  /** The last segment that this process has read. If the log has lost it, appends are refused. */
  readonly lastSeen: Pick<LastSeen, 'get'>
  readonly checkedHead: Reads['checkedHead']
}

type Writing = {
  readonly connection: Connection
  readonly lastSeen: Pick<LastSeen, 'get'>
  readonly checkedHead: Reads['checkedHead']
  /**
   * The last segment that this process has written. A writer decides on what it has read and written, so the log must still contain both.
   * Otherwise, another process may have written other events at the same revisions.
   */
  written: Seen | undefined
}

/** A log that contains the later segment also contains the earlier one. */
const later = (one: Seen | undefined, other: Seen | undefined): Seen | undefined =>
  one !== undefined && other !== undefined ? (one.position > other.position ? one : other) : (one ?? other)

export const createAppender = ({ url, logger, lastSeen, checkedHead }: AppenderOptions): Appender => {
  const queue: QueuedAppend[] = []
  const connection = createConnection({ url, logger })
  const writing: Writing = { connection, lastSeen, checkedHead, written: undefined }
  let running: Promise<void> | undefined
  let closed = false

  const run = async (): Promise<void> => {
    // All appends that are requested in one turn of the event loop are sent together.
    await new Promise((resolve) => setImmediate(resolve))
    while (queue.length > 0) {
      await write(writing, takeBatch(queue))
      // Callers often append again when an append is done. After a tick, these appends are part of the next batch.
      await new Promise<void>((resolve) => process.nextTick(resolve))
    }
    running = undefined
  }

  return {
    append: (stream, expected, events) =>
      new Promise((resolve, reject) => {
        if (closed) return reject(new Unavailable('the event log is closed'))
        if (queue.length >= queuedAppendsMax)
          return reject(new Unavailable(`${queuedAppendsMax} appends are already waiting for the event log`))
        queue.push({ stream, expected, count: events.length, segment: packSegment(events), resolve, reject })
        running ??= run()
      }),
    close: async () => {
      closed = true
      await running
      await connection.end()
    },
  }
}

/** A connection that is opened when it is first needed, and again after it was lost. */
type Connection = {
  get(): Promise<pg.Client>
  drop(broken: pg.Client): void
  end(): Promise<void>
}

/**
 * A plan kept from when a table was small must not search all of it later. A role or database can turn synchronous_commit off, but then a crash
 * could lose appends that were confirmed. The other values are the operator's choice.
 */
const sessionSql = `
  select set_config('enable_seqscan', 'off', false),
         set_config('synchronous_commit', coalesce(nullif(current_setting('synchronous_commit'), 'off'), 'on'), false)`

const createConnection = ({ url, logger }: { url: string; logger: Logger }): Connection => {
  let client: pg.Client | undefined
  return {
    get: async () => {
      if (client !== undefined) return client
      const fresh = new DatabaseClient({
        connectionString: url,
        connectionTimeoutMillis: connectTimeoutMs,
        query_timeout: clientTimeoutMs,
        statement_timeout: serverTimeoutMs,
        application_name: 'event-log-append',
      })
      fresh.on('error', (error) => {
        logger.warn({ err: error }, 'event log: the connection for appends was lost')
        if (client === fresh) client = undefined
      })
      await fresh.connect()
      await fresh.query(sessionSql)
      client = fresh
      return fresh
    },
    drop: (broken) => {
      if (client === broken) client = undefined
      broken.end().catch(() => undefined)
    },
    end: async () => {
      await client?.end()
    },
  }
}

/** Takes the next appends in order, but only one for each stream, because each append expects an exact revision. */
const takeBatch = (queue: QueuedAppend[]): QueuedAppend[] => {
  const streams = new Set<string>()
  const batch: QueuedAppend[] = []
  let events = 0
  let bytes = 0
  for (const append of queue) {
    const { stream, count, segment } = append
    const more = events + count > batchEventsMax || bytes + segment.events.length > batchBytesMax
    if (batch.length === batchAppendsMax || (batch.length > 0 && more)) break
    if (streams.has(stream)) continue
    streams.add(stream)
    batch.push(append)
    events += count
    bytes += segment.events.length
  }
  const taken = new Set(batch)
  queue.splice(0, queue.length, ...queue.filter((append) => !taken.has(append)))
  return batch
}

const write = async (writing: Writing, batch: readonly QueuedAppend[]): Promise<void> => {
  const { connection } = writing
  const seen = later(writing.lastSeen.get(), writing.written)
  let client: pg.Client
  try {
    client = await connection.get()
  } catch (error) {
    for (const append of batch)
      append.reject(new Unavailable(`the event log cannot be reached: ${message(error)}`, { cause: error }))
    return
  }
  try {
    const { rows } = await client.query<{ results: string | null }>({
      name: 'append_events',
      text: appendSql,
      values: [...parameters(batch), seen?.position.toString(), seen?.hash],
    })
    const returned = rows[0]?.results ?? null
    if (returned === null) {
      const error = await whyRefused(writing, seen)
      for (const append of batch) append.reject(error)
      return
    }
    const results = returned.slice(1, -1).split(',')
    const end = BigInt(results.pop() ?? 0)
    const revisions = results.map(Number)
    writing.written = lastWritten(batch, revisions, end) ?? writing.written
    for (const [i, append] of batch.entries()) settle(append, revisions[i])
  } catch (error) {
    const sqlState = error instanceof pg.DatabaseError ? (error.code ?? '') : ''
    const unanswered = sqlState === '' || sqlState.startsWith('08') || sqlState.startsWith('57P')
    // The database has refused one of the appends. Each append is now written separately, so that only the invalid one fails.
    if (batch.length > 1 && /^2[23]/.test(sqlState)) {
      for (const append of batch) await write(writing, [append])
      return
    }
    // If the server is now read-only, the next connection leads to the server that took over. If a rule has discarded rows, PostgreSQL keeps its plan
    // for this connection even after the rule is removed.
    if (unanswered || sqlState === readOnly || sqlState === rowsDiscarded) connection.drop(client)
    for (const { stream, reject } of batch)
      reject(
        unanswered
          ? new UnknownOutcome(`no answer to an append to ${stream}: ${message(error)}`, { cause: error })
          : // The server has answered with an error, so its transaction was rolled back.
            new Unavailable(`the event log refused an append to ${stream}: ${message(error)}`, {
              cause: error,
            }),
      )
  }
}

/** `append_again` adds this number to the revision of an append that was already written. Real revisions are always lower. */
const repeatedFrom = 2 ** 52

const settle = (append: QueuedAppend, result: number | undefined): void => {
  if (result === undefined || Number.isNaN(result))
    append.reject(new UnknownOutcome(`the event log returned no result for an append to ${append.stream}`))
  else if (result >= repeatedFrom) append.resolve({ revision: result - repeatedFrom, repeated: true })
  else if (result >= 0) append.resolve({ revision: result, repeated: false })
  else append.reject(new AppendConflict(append.stream, append.expected, -2 - result))
}

/** The last append of a batch that was written now, if any. Repeated appends can be anywhere in the log. */
const lastWritten = (
  batch: readonly QueuedAppend[],
  results: readonly number[],
  position: bigint,
): Seen | undefined => {
  const append = batch[results.findLastIndex((result) => result >= 0 && result < repeatedFrom)]
  return append && { position, hash: hash('sha256', append.segment.events, 'buffer') }
}

const whyRefused = async ({ checkedHead }: Writing, seen: Seen | undefined): Promise<LogRewritten> => {
  const contradiction = await checkedHead().catch((error: unknown) => error)
  return contradiction instanceof LogRewritten
    ? contradiction
    : lostFromLog(`the event at position ${seen?.position} that this process has read or written`)
}

/**
 * Writes a batch. Returns null if the log has lost the segment that ends at `$8`, the last one that this process has read or written, or if it
 * ends before the position in `log_mark`.
 */
const appendSql = `
  select append_events($1::text[], $2::bigint[], $3::integer[], $4::integer[], $5::integer[], $6::bytea, $7::bytea, $8::bigint, $9::bytea)::text
    as results`

const parameters = (batch: readonly QueuedAppend[]): unknown[] => [
  batch.map(({ stream }) => stream),
  batch.map(({ expected }) => (expected === 'none' ? -1 : expected)),
  batch.map(({ count }) => count),
  batch.map(({ segment }) => segment.bytes),
  batch.map(({ segment }) => segment.events.length),
  Buffer.from(batch.map(({ segment }) => segment.ids).join(''), 'hex'),
  Buffer.concat(batch.map(({ segment }) => segment.events)),
]

const message = (error: unknown): string => (error instanceof Error ? error.message : String(error))
