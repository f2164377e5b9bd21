import {
  type EventLog,
  EventsUnreadable,
  type LookedBack,
  type Position,
  type ReadOptions,
  type RecordedEvent,
  StreamMissing,
  Unavailable,
} from '../port.ts'
import type { Connection } from './client.ts'
import { type ReadRequest, recordedEvent } from './messages.ts'
import { isPositionRefused, isSystemEvent, readAt, readEvents, readUntil, searchSilenceMs } from './read.ts'

/** The reads of the log, which share one connection. It is replaced after a failed read. */

type SharedReads = Pick<EventLog, 'read' | 'lastRevision' | 'head' | 'at' | 'lookBack'> & {
  /** Ends the current reads, and refuses new ones. */
  close(): void
}

type SharedReadsOptions = {
  readonly connect: () => Promise<Connection>
  readonly headOf: (connection: Connection, silenceMs: number) => Promise<Position>
  /** The prefix of this service's stream names on a shared server. */
  readonly prefix: string | undefined
  readonly silenceMs: number
}

export const createSharedReads = ({
  connect,
  headOf,
  prefix,
  silenceMs,
}: SharedReadsOptions): SharedReads => {
  let reading: Promise<Connection> | undefined
  let closed = false

  const drop = (): void => {
    const dropped = reading
    reading = undefined
    dropped?.then(
      (connection) => connection.close(),
      () => undefined,
    )
  }

  const withConnection = async <Value>(work: (connection: Connection) => Promise<Value>): Promise<Value> => {
    if (closed) throw new Unavailable('the event log is closed')
    reading ??= connect()
    const used = reading
    try {
      return await work(await used)
    } catch (error) {
      if (error instanceof Unavailable && reading === used) drop()
      throw error
    }
  }

  const readPage: ReadPage = (request) =>
    withConnection((connection) => readEvents(connection, request, silenceMs))

  return {
    read: (stream, options) => readStream(readPage, stream, options),
    lastRevision: (stream) => lastRevision(readPage, stream),
    head: () => withConnection((connection) => headOf(connection, silenceMs)),
    at: (position) => withConnection((connection) => readAt(connection, position, silenceMs)),
    lookBack: (from) => withConnection((connection) => readBack(connection, { ...from, prefix }, silenceMs)),
    close: () => {
      closed = true
      drop()
    },
  }
}

type ReadPage = (request: ReadRequest & { stream: string }) => Promise<RecordedEvent[]>

/**
 * Reads a page of a stream. The server hides events because of the stream's metadata without an error, so a page that does not begin or end where it
 * should is refused. Otherwise a part of a stream could be taken for the whole, and spent credits or old prices would return.
 */
const readStream = async (
  readPage: ReadPage,
  stream: string,
  { from, direction = 'forwards', max }: ReadOptions,
): Promise<RecordedEvent[]> => {
  const page = await readUndeleted(readPage, { stream, from, direction, max })
  const newest = { stream, from: undefined, direction: 'backwards', max: 1 } as const
  if (direction === 'forwards') {
    const [first] = page
    const due = from ?? 0
    if (first === undefined && (await readPage(newest)).length === 0) throw hidden(stream, 0, 0)
    if (first !== undefined && first.revision > due) throw hidden(stream, due, first.revision - 1)
    return page
  }
  const oldest = page.at(-1)
  if (oldest !== undefined) {
    if (page.length < max && oldest.revision > 0) throw hidden(stream, 0, oldest.revision - 1)
    return page
  }
  const [last] = from === undefined ? [] : await readPage(newest)
  if (last === undefined || from === undefined) throw hidden(stream, 0, 0)
  if (last.revision >= from) throw hidden(stream, 0, from)
  // If the revision is beyond the end, a backwards read returns nothing, but the port requires the last events.
  return readStream(readPage, stream, { direction, max })
}

const hidden = (stream: string, firstRevision: number, lastRevision: number): EventsUnreadable =>
  new EventsUnreadable({
    stream,
    firstRevision,
    lastRevision,
    why: 'the event store no longer returns them, so remove $tb, $maxCount and $maxAge from the metadata of the stream',
  })

/**
 * Reads a page. The server reports a deleted stream as missing. If it were read as a new one, default prices or a new account could take its
 * place.
 */
const readUndeleted = async (
  readPage: ReadPage,
  request: Parameters<ReadPage>[0],
): Promise<RecordedEvent[]> => {
  const { stream } = request
  try {
    return await readPage(request)
  } catch (error) {
    if (!(error instanceof StreamMissing) || !(await isDeleted(readPage, stream))) throw error
    throw new EventsUnreadable(
      {
        stream,
        firstRevision: 0,
        lastRevision: 0,
        why: 'the stream was deleted in the event store; until it is scavenged, the events return if $tb is removed from its metadata',
      },
      { cause: error },
    )
  }
}

/** Whether the metadata of a stream without events hides earlier events. */
const isDeleted = async (readPage: ReadPage, stream: string): Promise<boolean> => {
  try {
    const last = { from: undefined, direction: 'backwards', max: 1 } as const
    const [metadata] = await readPage({ stream: `$$${stream}`, ...last })
    return metadata?.data.includes('"$tb"') === true
  } catch (error) {
    if (error instanceof StreamMissing) return false
    throw error
  }
}

const lastRevision = async (readPage: ReadPage, stream: string): Promise<number | null> => {
  try {
    const [last] = await readPage({ stream, from: undefined, direction: 'backwards', max: 1 })
    return last?.revision ?? null
  } catch (error) {
    if (error instanceof StreamMissing) return null
    throw error
  }
}

/** The maximum bytes of a page, which its last event can exceed. */
const pageBytesMax = 4 * 1024 * 1024
/**
 * The maximum number of events that are read for one page, including the server's own events. These are skipped, and there can be many in a
 * row.
 */
const lookedAtMax = 10_000

type From = {
  readonly before: Position | null
  readonly max: number
  readonly prefix: string | undefined
}

/**
 * Returns the newest events before a position, without the server's own. When reading backwards, the server also excludes the position itself.
 */
const readBack = async (
  connection: Connection,
  { before, max, prefix }: From,
  silenceMs: number,
): Promise<LookedBack> => {
  const events: RecordedEvent[] = []
  let [bytes, lookedAt] = [0, 0]
  let reached: Position | null = null
  let next: Position | null = null
  const request = {
    ...({ direction: 'backwards', from: before ?? undefined, max: Number.MAX_SAFE_INTEGER } as const),
    ...(prefix === undefined ? {} : { prefix }),
  }
  try {
    await readUntil(connection, request, {
      silenceMs: prefix === undefined ? silenceMs : searchSilenceMs,
      take: (response) => {
        const event = recordedEvent(response)
        if (event === undefined) return 'more'
        if (events.length >= max || bytes >= pageBytesMax || lookedAt >= lookedAtMax) {
          next = reached
          return 'enough'
        }
        lookedAt++
        reached = event.position
        if (isSystemEvent(event)) return 'more'
        bytes += event.data.length + event.metadata.length
        events.push(event)
        return 'more'
      },
    })
  } catch (error) {
    if (before === null || !isPositionRefused(error)) throw error
    // If the position has an event, the read failed for another reason, and an empty page would hide earlier events.
    if ((await readAt(connection, before, silenceMs)) !== null) throw error
    return { events: [], unreadable: [], next: null }
  }
  return { events, unreadable: [], next }
}
