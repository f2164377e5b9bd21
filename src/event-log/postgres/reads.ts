import { hash } from 'node:crypto'
import type pg from 'pg'
import { createGathering } from '../../concurrency/gathering.ts'
import {
  type EventLog,
  EventsUnreadable,
  isStreamName,
  LogRewritten,
  type LookedBack,
  type Position,
  type ReadOptions,
  type RecordedEvent,
  readBytesMax,
  StreamMissing,
  TooLarge,
  Unavailable,
} from '../port.ts'
import { openSegment, type SegmentRow } from './segment.ts'

/**
 * Queries on the log's tables. Each query returns one page, which is limited by segments, events and bytes, because an append can contain a
 * thousand events, or one event of a megabyte.
 */

const pageSegmentsMax = 512
/** The maximum bytes of the opened events in a page, which its last segment can exceed. */
const pageBytesMax = 4 * 1024 * 1024
/** The maximum number of positions that one query in busy families covers, so that a search for rare events does not take long. */
const scanWindow = 50_000n

/** The families (name prefixes) of streams with many events. They are not in the index `log_segments_quiet`. */
const busyFamilies = ['ledger', 'profile']
const quiet = `family not in (${busyFamilies.map((family) => `'${family}'`).join(', ')})`

const columns = `last_position, last_revision, count, bytes, ids, events,
  round(extract(epoch from recorded_at) * 1000) as recorded,
  (select name from log_streams where id = page.stream_id) as stream`

/** The maximum number of segments, of events and of bytes in a page. */
const pageLimits: readonly [string, string, string] = ['$1', '$2', '$3']

/** The query for one page. `where` selects the segments, with parameters from `$4` on. */
const page = (where: string, order: string, [segmentsMax, eventsMax, bytesMax] = pageLimits): string => `
  select ${columns} from (
    select *, sum(count) over found - count as events_before, sum(bytes) over found - bytes as bytes_before
      from (select * from log_segments where ${where} order by ${order} limit ${segmentsMax}) first
    window found as (order by ${order})) page
   where events_before < ${eventsMax} and bytes_before < ${bytesMax}`

/** Pages of several streams, each with its number in the arrays. A stream that does not exist has no row. */
const readForwards = `
  with asked as materialized (
    select n, revision, events_max, segments_max, (select id from log_streams s where s.name = asked.name) as id
      from unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[])
           with ordinality asked(name, revision, events_max, segments_max, n))
  select asked.n::integer, page.* from asked left join lateral (${page(
    'stream_id = asked.id and last_revision >= asked.revision',
    'last_revision',
    ['asked.segments_max', 'asked.events_max', '$5'],
  )}) page on true
   where asked.id is not null order by asked.n, last_revision`
/** Reads backwards from the segment that contains the revision, or from the last segment. */
const readBackwards = `
  select page.* from log_streams s left join lateral (${page(
    `stream_id = s.id and last_revision <= coalesce((select n.last_revision from log_segments n
       where n.stream_id = s.id and n.last_revision >= $5 order by n.last_revision limit 1), $5)`,
    'last_revision desc',
  )}) page on true
   where s.name = $4 order by last_revision desc`

/** The position of the last event, or 0. `log_head` has the same position, unless the last rows were deleted. */
const logEnd = `coalesce((select last_position from log_segments order by last_position desc limit 1), 0)`

/**
 * `known`: the id of the event at the position of the reader's last event. `scanned`: the position up to which the query searches. `seen` and
 * `end_hash`: the hashes of the segments that end at `$6` and at the end of the log.
 */
const afterPosition = (where: string, scanned: string): string => `
  select h.position as head, ${logEnd} as log_end, ${scanned} as scanned, page.*,
         (select encode(substring(ids from (16 * (count - 1 - (last_position - $5)) + 1)::integer for 16), 'hex')
            from log_segments where last_position >= $5 order by last_position limit 1) as known,
         (select sha256(events) from log_segments where last_position >= $6 order by last_position limit 1) as seen,
         (select sha256(events) from log_segments order by last_position desc limit 1) as end_hash
    from log_head h left join (${page(`last_position > $4 and ${where}`, 'last_position')}) page on true
   order by last_position`
const lookAtAll = afterPosition('true', 'h.position')
const lookAtQuiet = afterPosition(`${quiet} and family like any ($7)`, 'h.position')
/** A segment that extends beyond the window is returned by the next query. */
const lookAtBusy = afterPosition(
  'last_position <= $8 and family like any ($7)',
  `case when h.position <= $8 then h.position else
     (select last_position from log_segments where last_position <= $8 order by last_position desc limit 1) end`,
)

/** Reads all streams backwards, from the segment that contains the position. */
const from4 = `(select n.last_position from log_segments n where n.last_position >= $4 order by n.last_position limit 1)`
const readBack = `${page(`last_position <= coalesce(${from4}, $4)`, 'last_position desc')} order by last_position desc`

/** The segments that contain the positions, in order. */
const readAt = `select distinct on (last_position) ${columns} from unnest($1::bigint[]) asked(position) cross join lateral (
  select * from log_segments where last_position >= asked.position order by last_position limit 1) page order by last_position`

const statements = {
  read_forwards: readForwards,
  read_backwards: readBackwards,
  look_at_all: lookAtAll,
  look_at_quiet: lookAtQuiet,
  look_at_busy: lookAtBusy,
  look_back: readBack,
  at: readAt,
  head: `select position as head, ${logEnd} as log_end from log_head`,
  last_revision: 'select revision from log_streams where name = $1',
  streams: 'select name from log_streams where name like $1',
}
type Statement = keyof typeof statements

type Nothing = { readonly last_position: null }
type Ends = { readonly head: string; readonly log_end: string }
type Looked = (SegmentRow | Nothing) &
  Ends & {
    readonly scanned: string | null
    readonly known: string | null
    readonly seen: Buffer | null
    readonly end_hash: Buffer | null
  }

const isSegment = <Row extends SegmentRow | Nothing>(row: Row): row is Row & SegmentRow =>
  row.last_position !== null

const segmentsMaxOf = (max: number): number => Math.min(max, pageSegmentsMax)
const boundsOf = (max: number): number[] => [segmentsMaxOf(max), max, pageBytesMax]

/** Whether the query has returned all segments. False if the page is full, so that more segments can follow. */
const isComplete = (rows: readonly SegmentRow[], max: number, bytesMax = pageBytesMax): boolean => {
  let events = 0
  let bytes = 0
  for (const row of rows) {
    events += row.count
    bytes += row.bytes
  }
  return rows.length < segmentsMaxOf(max) && events < max && bytes < bytesMax
}

/**
 * Opens segments up to the first one that cannot be opened. The events before it are delivered, up to `end`, and the next query fails.
 */
const openAll = (segments: readonly SegmentRow[]): { events: RecordedEvent[]; end?: Position } => {
  const events: RecordedEvent[] = []
  for (const segment of segments)
    try {
      events.push(...openSegment(segment))
    } catch (error) {
      const last = events.at(-1)
      if (!(error instanceof EventsUnreadable) || last === undefined) throw error
      return { events, end: last.position }
    }
  return { events }
}

const likePrefix = (prefix: string): string => `${prefix.replace(/[\\%_]/g, '\\$&')}%`

/** The LIKE pattern for the families whose streams can start with a prefix. A family is the part of a name before the first hyphen. */
const familyPattern = (prefix: string): string => {
  const end = prefix.indexOf('-')
  return end === -1 ? likePrefix(prefix) : likePrefix(prefix.slice(0, end)).slice(0, -1)
}

/** Whether the name of a stream of this family can start with the prefix. */
const mayBegin = (family: string, prefix: string): boolean =>
  `${family}-`.startsWith(prefix) || prefix.startsWith(`${family}-`)

export type Look = {
  readonly events: readonly RecordedEvent[]
  /** The position up to which there are no other matching events. */
  readonly position: Position
  readonly head: Position
}

/** The last segment that a process has read. If the log still contains it, it also contains everything before it. */
export type Seen = {
  readonly position: Position
  /** The SHA-256 of its events. An id is not enough, because an event that is written again has the same id. */
  readonly hash: Buffer
}

/** Keeps the last segment that any query of this process has returned. */
export type LastSeen = {
  get(): Seen | undefined
  /** `hashOf` is called only for a later segment. */
  note(position: Position, hashOf: () => Buffer): void
}

export const createLastSeen = (): LastSeen => {
  let last: Seen | undefined
  return {
    get: () => last,
    note: (position, hashOf) => {
      if (last === undefined || position > last.position) last = { position, hash: hashOf() }
    },
  }
}

/** The error if the log has lost events that this process has read or written. */
export const lostFromLog = (what: string): LogRewritten =>
  new LogRewritten(
    `the event log no longer contains ${what}: it was restored from an older copy, or a standby took over without its last events; restart this process`,
  )

/**
 * Returns the position of the last event. Throws `LogRewritten` if the log ends before the position in `log_mark`, because then an append could get
 * the position of another event.
 */
const headOf = (ends: Ends | undefined): Position => {
  if (ends !== undefined && ends.head === ends.log_end) return BigInt(ends.head)
  const said =
    ends === undefined
      ? 'the table log_mark has no row'
      : `according to log_mark the event log was at position ${ends.head}, but the last row of log_segments ends at ${ends.log_end}`
  throw new LogRewritten(
    `${said}: someone changed or deleted rows, or restored only a part of the log; restore all tables whose names begin with log_ from one backup, then restart this process`,
  )
}

/** Notes the last of these segments, which are in the order of the log or in the opposite order. */
const noteSegments = (lastSeen: LastSeen, segments: readonly SegmentRow[]): void => {
  for (const segment of [segments[0], segments.at(-1)])
    if (segment !== undefined)
      lastSeen.note(BigInt(segment.last_position), () => hash('sha256', segment.events, 'buffer'))
}

export type Known = Pick<RecordedEvent, 'position' | 'id'>

export type Reads = Pick<EventLog, 'read' | 'head' | 'at' | 'lookBack' | 'lastRevision' | 'streams'> & {
  /** Like `head`, but throws `LogRewritten` if the log's tables disagree about its end. */
  checkedHead(): Promise<Position>
  /**
   * Returns the matching events after a position, at most one page. Throws `LogRewritten` if the log ends before the position, contains a
   * different event at the position of `last`, or has lost the last segment that this process has read.
   */
  lookAfter(
    from: { readonly after: Position; readonly last: Known | undefined },
    prefixes: readonly string[],
    max: number,
  ): Promise<Look>
}

/**
 * Runs a statement. Throws `Unavailable` if the database does not answer. Statements are prepared, because planning a query for the end of the log
 * takes several times as long as running it.
 */
type Ask = <Row extends pg.QueryResultRow>(name: Statement, values: unknown[]) => Promise<Row[]>

const askOf =
  (pool: pg.Pool): Ask =>
  async <Row extends pg.QueryResultRow>(name: Statement, values: unknown[]) => {
    try {
      return (await pool.query<Row>({ name: `log_${name}`, text: statements[name], values })).rows
    } catch (error) {
      const message = error instanceof Error ? error.message : String(error)
      throw new Unavailable(`the event log cannot be read: ${message}`, { cause: error })
    }
  }

type Asking = { readonly ask: Ask; readonly lastSeen: LastSeen }

type PageAsked = { readonly stream: string; readonly from: number; readonly max: number }
type Page = { readonly segments: readonly SegmentRow[]; readonly complete: boolean }
/** Returns null if the stream does not exist. */
type ReadPage = (asked: PageAsked) => Promise<Page | null>

const pagesMax = 64
const pagesWaitingMax = 10_000
/** Leaves a connection of the pool for other queries. */
const pageQueriesMax = 3

/**
 * Reads pages forwards. Pages that are requested in one turn of the event loop share a query, because many writers read their ledgers at the
 * same time while processes compete for them.
 */
const createForwardPages = ({ ask }: Pick<Asking, 'ask'>): ReadPage => {
  const { ask: readPage } = createGathering<PageAsked, Page | null>({
    run: async (take) => {
      const asked = take()
      const bytesMax = Math.ceil(pageBytesMax / asked.length)
      const rows = await ask<(SegmentRow | Nothing) & { n: number }>('read_forwards', [
        asked.map(({ stream }) => stream),
        asked.map(({ from }) => from),
        asked.map(({ max }) => max),
        asked.map(({ max }) => segmentsMaxOf(max)),
        bytesMax,
      ])
      const found = Map.groupBy(rows, ({ n }) => n)
      return asked.map(({ max }, i) => {
        const segments = found.get(i + 1)?.filter(isSegment)
        return segments === undefined ? null : { segments, complete: isComplete(segments, max, bytesMax) }
      })
    },
    batchMax: pagesMax,
    underWayMax: pageQueriesMax,
    waitingMax: pagesWaitingMax,
    refusal: () => new Unavailable('the event log is busy: too many streams are being read'),
  })
  return readPage
}

const createBackwardPages =
  ({ ask }: Pick<Asking, 'ask'>): ReadPage =>
  async ({ stream, from, max }) => {
    const rows = await ask<SegmentRow | Nothing>('read_backwards', [...boundsOf(max), stream, from])
    const segments = rows.filter(isSegment)
    return rows.length === 0 ? null : { segments, complete: isComplete(segments, max) }
  }

type Reading = {
  readonly pages: Readonly<Record<'forwards' | 'backwards', ReadPage>>
  readonly lastSeen: LastSeen
}

const read = async (
  { pages, lastSeen }: Reading,
  stream: string,
  { from, direction = 'forwards', max }: ReadOptions,
): Promise<RecordedEvent[]> => {
  // PostgreSQL would refuse some names, and with them the pages of other streams in the same query.
  if (!isStreamName(stream)) throw new StreamMissing(`"${stream.slice(0, 80)}" is not a stream name`)
  const forwards = direction === 'forwards'
  const events: RecordedEvent[] = []
  let bytes = 0
  let next = from ?? (forwards ? 0 : Number.MAX_SAFE_INTEGER)
  for (;;) {
    const wanted = max - events.length
    const page = await pages[direction]({ stream, from: next, max: wanted })
    if (page === null) throw new StreamMissing(`there is no stream ${stream}`)
    const { segments, complete } = page
    noteSegments(lastSeen, segments)
    for (const segment of segments) {
      const opened = openSegment(segment)
      bytes += segment.bytes
      if (bytes > readBytesMax)
        throw new TooLarge(
          `${max} events of ${stream} are more than ${readBytesMax} bytes; read fewer at a time`,
        )
      const due = forwards
        ? opened.filter(({ revision }) => revision >= next)
        : opened.filter(({ revision }) => revision <= next).reverse()
      events.push(...due.slice(0, max - events.length))
    }
    const last = events.at(-1)
    const found = events.length > max - wanted
    if (last === undefined || !found || events.length >= max || complete) return events
    next = last.revision + (forwards ? 1 : -1)
  }
}

const lookAfter = async (
  { ask, lastSeen }: Asking,
  { after, last }: { readonly after: Position; readonly last: Known | undefined },
  prefixes: readonly string[],
  max: number,
): Promise<Look> => {
  const all = prefixes.length === 0
  const busy = prefixes.some((prefix) => busyFamilies.some((family) => mayBegin(family, prefix)))
  const seen = lastSeen.get()
  const rows = await ask<Looked>(all ? 'look_at_all' : busy ? 'look_at_busy' : 'look_at_quiet', [
    ...boundsOf(max),
    after.toString(),
    (last?.position ?? 0n).toString(),
    (seen?.position ?? 0n).toString(),
    ...(all ? [] : [prefixes.map(familyPattern)]),
    ...(busy ? [(after + scanWindow).toString()] : []),
  ])
  const head = headOf(rows[0])
  if (head < after)
    throw new LogRewritten(`the event log ends at ${head}, but it was already read up to ${after}`)
  if (last !== undefined && rows[0]?.known !== last.id.replaceAll('-', ''))
    throw new LogRewritten(
      `the event log no longer contains the event ${last.id} that was read at ${last.position}`,
    )
  const [first] = rows
  if (seen !== undefined && first?.seen?.equals(seen.hash) !== true)
    throw lostFromLog(`the events that this process has read up to position ${seen.position}`)
  const endHash = first?.end_hash
  if (endHash) lastSeen.note(head, () => endHash)
  const segments = rows.filter(isSegment)
  const matches = ({ stream }: SegmentRow): boolean =>
    all || prefixes.some((prefix) => stream?.startsWith(prefix) !== false)
  const { events, end } = openAll(segments.filter(matches))
  const due = events.filter(({ position }) => position > after)
  const reached = isComplete(segments, max) ? rows[0]?.scanned : segments.at(-1)?.last_position
  const position = end ?? BigInt(reached ?? 0)
  // Positions have no gaps, so every window contains events.
  if (position <= after && after < head)
    throw new LogRewritten(
      `the event log ends at position ${head}, but rows of log_segments after position ${after} are missing; restore all tables whose names begin with log_ from one backup, then restart this process`,
    )
  return { events: due, position: position > after ? position : after, head }
}

const positionMax = 2n ** 63n - 1n
const lesser = (one: Position, other: Position): Position => (one < other ? one : other)

const lookBack = async (
  { ask, lastSeen }: Asking,
  { before, max }: { readonly before: Position | null; readonly max: number },
): Promise<LookedBack> => {
  const end = before === null ? positionMax : lesser(before - 1n, positionMax)
  const events: RecordedEvent[] = []
  const unreadable: EventsUnreadable[] = []
  let reached: Position | null = null
  const segments = await ask<SegmentRow>('look_back', [...boundsOf(max), end.toString()])
  noteSegments(lastSeen, segments)
  for (const segment of segments) {
    if (events.length >= max) break
    reached = lesser(BigInt(segment.last_position) - BigInt(segment.count - 1), end)
    try {
      const due = openSegment(segment).filter(({ position }) => position <= end)
      for (const event of due.reverse().slice(0, max - events.length)) {
        events.push(event)
        reached = event.position
      }
    } catch (error) {
      if (!(error instanceof EventsUnreadable)) throw error
      unreadable.push(error)
    }
  }
  return { events, unreadable, next: reached !== null && reached > 1n ? reached : null }
}

/** The maximum number of segments that one query returns; a segment has up to a thousand events. */
const positionsMax = 16
const positionsWaitingMax = 1_000

/** Finds the segments that contain the positions. Positions that are requested in one turn of the event loop share a query. */
const createFinder = ({
  ask,
  lastSeen,
}: Asking): ((position: Position) => Promise<SegmentRow | undefined>) => {
  const { ask: find } = createGathering<Position, SegmentRow | undefined>({
    run: async (take) => {
      const positions = take()
      const segments = await ask<SegmentRow>('at', [positions.map(String)])
      noteSegments(lastSeen, segments)
      return positions.map((position) =>
        segments.find(({ last_position }) => BigInt(last_position) >= position),
      )
    },
    batchMax: positionsMax,
    underWayMax: 2,
    waitingMax: positionsWaitingMax,
    refusal: () => new Unavailable('the event log is busy: too many events are being read'),
  })
  return find
}

export const createReads = (pool: pg.Pool, lastSeen: LastSeen): Reads => {
  const ask = askOf(pool)
  const asking = { ask, lastSeen }
  const find = createFinder(asking)
  const pages = { forwards: createForwardPages(asking), backwards: createBackwardPages(asking) }
  return {
    read: (stream, options) => read({ pages, lastSeen }, stream, options),
    lookAfter: (from, prefixes, max) => lookAfter(asking, from, prefixes, max),
    head: async () => {
      // Does not check the end, because "ledger verify" must be able to read a log that someone changed.
      const [ends] = await ask<Ends>('head', [])
      return BigInt(ends?.head ?? 0)
    },
    checkedHead: async () => {
      const [ends] = await ask<Ends>('head', [])
      return headOf(ends)
    },
    at: async (position) => {
      const segment = await find(position)
      const events = segment === undefined ? [] : openSegment(segment)
      return events.find((event) => event.position === position) ?? null
    },
    lookBack: (from) => lookBack(asking, from),
    lastRevision: async (stream) => {
      const [row] = await ask<{ revision: string }>('last_revision', [stream])
      return row === undefined ? null : Number(row.revision)
    },
    streams: async (prefix) => {
      return (await ask<{ name: string }>('streams', [likePrefix(prefix)])).map(({ name }) => name)
    },
  }
}
