import type { ReadResp } from '@eventstore/db-client/generated/streams_pb.js'
import {
  EventsUnreadable,
  logStart,
  type Position,
  type RecordedEvent,
  readBytesMax,
  StreamMissing,
  TooLarge,
  Unavailable,
} from '../port.ts'
import type { Connection } from './client.ts'
import { type ReadRequest, readRequest, recordedEvent } from './messages.ts'

/** Every read in this file fails if the server sends nothing for `silenceMs`. */

/** Passes responses to `take` until it has enough or all are passed. */
export const readUntil = (
  connection: Connection,
  request: ReadRequest,
  { silenceMs, take }: { silenceMs: number; take: (response: ReadResp) => 'more' | 'enough' },
): Promise<void> =>
  new Promise((resolve, reject) => {
    const call = connection.read(readRequest(request))
    const settle = (error?: Error): void => {
      clearTimeout(timer)
      call.cancel()
      if (error === undefined) resolve()
      else reject(error)
    }
    const silent = (): void => settle(new Unavailable(`the event store sent nothing for ${silenceMs} ms`))
    const timer = setTimeout(silent, silenceMs)
    call.on('data', (response: ReadResp) => {
      timer.refresh()
      try {
        if (take(response) === 'enough') settle()
      } catch (error) {
        settle(error instanceof Error ? error : new Error(String(error)))
      }
    })
    call.on('error', (error) => settle(readError(request, error)))
    call.on('end', () => settle())
  })

/** A stream that was deleted permanently does not return, so reading it again or over a new connection does not help. */
const readError = ({ stream }: ReadRequest, error: Error): Error =>
  stream !== undefined && isTombstoned(error)
    ? new EventsUnreadable(
        {
          stream,
          firstRevision: 0,
          lastRevision: 0,
          why: 'the stream was deleted permanently in the event store, so restore the event store from a backup',
        },
        { cause: error },
      )
    : new Unavailable(`the event store cannot be read: ${error.message}`, { cause: error })

const isTombstoned = (error: Error): boolean =>
  'metadata' in error &&
  error.metadata instanceof Object &&
  'get' in error.metadata &&
  typeof error.metadata.get === 'function' &&
  String(error.metadata.get('exception')) === 'stream-deleted'

/** Returns all events of one read, including the server's own. Throws `StreamMissing`, `EventsUnreadable`, `Unavailable` and `TooLarge`. */
export const readEvents = async (
  connection: Connection,
  request: ReadRequest,
  silenceMs: number,
): Promise<RecordedEvent[]> => {
  const events: RecordedEvent[] = []
  let bytes = 0
  await readUntil(connection, request, {
    silenceMs,
    take: (response) => {
      if (response.hasStreamNotFound()) throw new StreamMissing(`there is no stream ${request.stream}`)
      const event = recordedEvent(response)
      if (event !== undefined) {
        events.push(event)
        bytes += event.data.length + event.metadata.length
      }
      if (bytes > readBytesMax)
        throw new TooLarge(
          `${request.max} events of ${request.stream ?? 'the event log'} are more than ${readBytesMax} bytes; read fewer at a time`,
        )
      return events.length < request.max ? 'more' : 'enough'
    },
  })
  return events
}

export type EventHeader = Pick<RecordedEvent, 'position' | 'stream' | 'type'>

/**
 * Returns the headers of all events of one read of the whole log. A search through the events of other software does not need their content,
 * and must not fail because of their size. Throws `Unavailable`.
 */
export const readHeaders = async (
  connection: Connection,
  request: ReadRequest & { readonly stream?: undefined },
  silenceMs: number,
): Promise<EventHeader[]> => {
  const headers: EventHeader[] = []
  await readUntil(connection, request, {
    silenceMs,
    take: (response) => {
      const event = recordedEvent(response)
      if (event !== undefined)
        headers.push({ position: event.position, stream: event.stream, type: event.type })
      return headers.length < request.max ? 'more' : 'enough'
    },
  })
  return headers
}

/** Whether an event is one of the server's own, such as a statistics event. Readers never receive these events. */
export const isSystemEvent = ({ stream, type }: EventHeader): boolean =>
  stream.startsWith('$') || type.startsWith('$')

/** Returns the position of the last event that is not the server's own. A reader that has received this event has caught up. */
export const readHead = async (connection: Connection, silenceMs: number): Promise<Position> => {
  let head = logStart
  await readUntil(
    connection,
    { direction: 'backwards', from: undefined, max: Number.MAX_SAFE_INTEGER },
    {
      silenceMs,
      take: (response) => {
        const event = recordedEvent(response)
        if (event === undefined || isSystemEvent(event)) return 'more'
        head = event.position
        return 'enough'
      },
    },
  )
  return head
}

/**
 * The maximum number of this service's new events that are read one after another. If there are more, the search starts at the end of the log
 * instead.
 */
const ownEventsMax = 1_000
/** The server sends nothing while it searches through events of other software, of which there can be very many. */
export const searchSilenceMs = 60_000

/**
 * Finds the position of the last event whose stream has the prefix, on a server that other software also uses. The progress of the search is
 * kept, because health checks need the position every second, and millions of events of other software can follow this service's last event.
 */
export const createOwnHead = (
  prefix: string,
): ((connection: Connection, silenceMs: number) => Promise<Position>) => {
  let known = { head: logStart, end: logStart }
  return async (connection, silenceMs) => {
    const [last] = await readHeaders(
      connection,
      { direction: 'backwards', from: undefined, max: 1 },
      silenceMs,
    )
    const end = last?.position ?? logStart
    if (end === known.end) return known.head
    const from = known
    // After a failure, for example because the log was restored, the next search starts over.
    known = { head: logStart, end: logStart }
    const search = (request: Pick<ReadRequest, 'direction' | 'max'> & { from: Position | undefined }) =>
      readHeaders(connection, { ...request, prefix }, searchSilenceMs)
    let head = from.head
    let newer: readonly EventHeader[] | undefined
    if (from.end !== logStart && from.end < end) {
      newer = await search({ direction: 'forwards', from: from.end, max: ownEventsMax })
      head = newer.at(-1)?.position ?? from.head
    }
    if (newer === undefined || newer.length === ownEventsMax)
      head = (await search({ direction: 'backwards', from: undefined, max: 1 }))[0]?.position ?? logStart
    known = { head, end }
    return head
  }
}

/**
 * Returns the event at exactly this position, or null. For a position without an event, the server sends the same error as if it could not read
 * the log at all. Null is therefore returned only if the end of the log can be read and the position is then refused again.
 */
export const readAt = async (
  connection: Connection,
  position: Position,
  silenceMs: number,
): Promise<RecordedEvent | null> => {
  const look = async (): Promise<RecordedEvent | 'refused' | null> => {
    try {
      const [first] = await readEvents(
        connection,
        { direction: 'forwards', from: position, max: 1 },
        silenceMs,
      )
      return first?.position === position ? first : null
    } catch (error) {
      if (isPositionRefused(error)) return 'refused'
      throw error
    }
  }
  const first = await look()
  if (first !== 'refused') return first
  await readHeaders(connection, { direction: 'backwards', from: undefined, max: 1 }, silenceMs)
  const second = await look()
  return second === 'refused' ? null : second
}

const unknownStatus = 2

/**
 * Whether the server refused to read the whole log from a position. For most positions without an event, version 24.2 and later report
 * "InvalidPosition". Older versions only report that reading the log failed, which can have other causes (see `readAt`).
 */
export const isPositionRefused = (error: unknown): boolean => {
  const said = error instanceof Unavailable ? error.cause : error
  if (!(said instanceof Error)) return false
  return (
    /invalid ?position/i.test(said.message) ||
    (Reflect.get(said, 'code') === unknownStatus && /ReadAllResult: Error\b/.test(said.message))
  )
}
