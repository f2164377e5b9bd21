import type { ReadResp } from '@eventstore/db-client/generated/streams_pb.js'
import {
  LogRewritten,
  logStart,
  type Position,
  type RecordedEvent,
  type SubscribeOptions,
  type SubscriptionItem,
} from '../port.ts'
import type { Connection, ReadCall } from './client.ts'
import { recordedEvent, subscribeRequest } from './messages.ts'
import { createNotice, type Notice } from './notice.ts'
import { type EventHeader, isSystemEvent, readAt, readHead, readHeaders } from './read.ts'

/**
 * One subscription on the server, from connecting until the connection is lost.
 *
 * The server's checkpoints only show that it is working. Some servers have sent checkpoints beyond events that were not yet delivered, or the
 * same checkpoint repeatedly. Therefore, positions are taken only from events that were delivered or read.
 */

const batchBytesMax = 4 * 1024 * 1024
/** How long a batch waits for the next event, because large batches are more efficient for consumers. */
const lingerMs = 10
/** The maximum time for which a live batch is filled, even if more events arrive. */
const liveBatchMs = 100

/** A delivered event. If it is still in the log, a new session reads the same log. */
export type Delivered = Pick<RecordedEvent, 'position' | 'id'>

export type Session = {
  readonly connection: Connection
  readonly call: ReadCall
  readonly notice: Notice
  readonly matches: (event: EventHeader) => boolean
  /** Whether the server filters the events, so that there can be other events between two delivered ones. */
  readonly filtered: boolean
  readonly headAtStart: Position
  /** The last position that was passed to the consumer. */
  said: Position
  /** The position up to which all matching events were received from the server. */
  seen: Position
  /** The position of an event at or before `seen`. */
  place: Position
  serverCaughtUp: boolean
  caughtUp: boolean
  heardAtMs: number
  beatAtMs: number
  headAtBeat: Position
  failure: Error | undefined
}

type Opening = Pick<SubscribeOptions, 'after' | 'prefixes' | 'signal'> & {
  readonly connect: () => Promise<Connection>
  readonly silenceMs: number
  /** The position after which the server's subscription begins, which is always the position of an event. */
  readonly from: Position
  /** The last event that was delivered earlier, at or before `after`. */
  readonly last: Delivered | undefined
}

/**
 * Subscribes on a new connection, which the caller closes. Throws `LogRewritten` if the log no longer contains events that were
 * read earlier.
 */
export const openSession = async ({
  connect,
  silenceMs,
  from,
  after,
  last,
  prefixes,
  signal,
}: Opening): Promise<Session> => {
  const connection = await connect()
  try {
    // The head is read before subscribing and from the same server, so that everything up to the head is delivered before the server reports
    // "caught up".
    const headAtStart = await readHead(connection, silenceMs)
    if (headAtStart < after) await refuseShortened(connection, after, silenceMs)
    if (last !== undefined && (await readAt(connection, last.position, silenceMs))?.id !== last.id)
      throw new LogRewritten(
        `the event log no longer contains the event ${last.id} that was read at ${last.position}`,
      )
    const now = performance.now()
    const session: Session = {
      connection,
      call: connection.read(subscribeRequest(from, prefixes)),
      notice: createNotice(signal),
      matches: (event) =>
        !isSystemEvent(event) &&
        (prefixes.length === 0 || prefixes.some((prefix) => event.stream.startsWith(prefix))),
      filtered: prefixes.length > 0,
      headAtStart,
      said: after,
      seen: after,
      place: from,
      serverCaughtUp: false,
      caughtUp: false,
      heardAtMs: now,
      beatAtMs: now,
      headAtBeat: headAtStart,
      failure: undefined,
    }
    const fail = (error: Error): void => {
      session.failure ??= error
      session.notice.give()
    }
    session.call.on('readable', session.notice.give)
    session.call.on('error', fail)
    session.call.on('end', () => fail(new Error('the server ended the subscription')))
    return session
  } catch (error) {
    connection.close()
    throw error
  }
}

/** Throws if the log ends before `after`. The head is not sufficient for this check, because the server's own events can come after it. */
const refuseShortened = async (connection: Connection, after: Position, silenceMs: number): Promise<void> => {
  const [last] = await readHeaders(connection, { direction: 'backwards', from: undefined, max: 1 }, silenceMs)
  const end = last?.position ?? logStart
  if (end < after)
    throw new LogRewritten(`the event log ends at ${end}, but it was already read up to ${after}`)
}

/**
 * Whether everything that was in the log when the subscription began was delivered, as reported by the server or shown by the position.
 */
export const isCaughtUp = ({ serverCaughtUp, seen, headAtStart }: Session): boolean =>
  serverCaughtUp || seen >= headAtStart

/** Marks the session as caught up, and returns the item for the consumer. */
export const catchUp = (session: Session): SubscriptionItem => {
  const { headAtStart, said, seen } = session
  session.caughtUp = true
  if (headAtStart > said) session.said = headAtStart
  if (headAtStart > seen) {
    session.seen = headAtStart
    session.place = headAtStart
  }
  return { kind: 'caught-up', position: session.said }
}

/**
 * Takes waiting events from the server, up to a batch. The call buffers only a few events and fetches more while it is read, so an empty buffer
 * does not mean that no events are waiting. A single live event is returned immediately. After two events, the batch waits for more, because a
 * slow consumer could not catch up with batches of a few events.
 */
export const gather = async (session: Session, batchMax: number): Promise<RecordedEvent[]> => {
  const batch: RecordedEvent[] = []
  const startedAt = performance.now()
  let bytes = 0
  let responses = 0
  while (batch.length < batchMax && bytes < batchBytesMax) {
    const response: ReadResp | null = session.failure === undefined ? session.call.read() : null
    if (response === null) {
      if (batch.length === 0) break
      const live = session.caughtUp || isCaughtUp(session)
      if (live && (responses < 2 || performance.now() - startedAt >= liveBatchMs)) break
      if (!(await session.notice.wait(lingerMs))) break
      continue
    }
    responses++
    const event = take(session, response)
    if (event === undefined) continue
    batch.push(event)
    bytes += event.data.length + event.metadata.length
  }
  return batch
}

const take = (session: Session, response: ReadResp): RecordedEvent | undefined => {
  session.heardAtMs = performance.now()
  if (response.hasCaughtUp()) session.serverCaughtUp = true
  const event = recordedEvent(response)
  if (event === undefined || event.position <= session.seen) return undefined
  session.seen = event.position
  session.place = event.position
  return session.matches(event) ? event : undefined
}
