import type { ReadResp } from '@eventstore/db-client/generated/streams_pb.js'
import type { Logger } from 'pino'
import type { Outage } from '../outage.ts'
import {
  LogRewritten,
  logStart,
  type Position,
  type RecordedEvent,
  type SubscribeOptions,
  type SubscriptionItem,
} from '../port.ts'
import type { Connection, ReadCall } from './client.ts'
import { recordedEvent, searchWindow, subscribeRequest } from './messages.ts'
import { isInvalidPosition, isSystemEvent, readAt, readEvents, readHead } from './read.ts'

/**
 * Follows the whole log in order, for ever, over as many of the server's subscriptions as it takes: those end with
 * every restart, slow reader and lost connection, sometimes in silence.
 *
 * The server's checkpoints are taken as a sign of life and nothing else. Servers have sent such that pass events not
 * yet delivered, or that never move. Positions come from events that were seen: delivered, or read without filter.
 */

const batchMaxDefault = 1_000
/** A batch is handed over before it holds more than this, whatever its number of events. */
const batchBytesMax = 4 * 1024 * 1024
/** A batch waits this long for one more event: events arrive in handfuls, and consumers like many. */
const lingerMs = 10
/** A live batch is handed over after this long although more events keep coming: they would fill it for seconds. */
const liveBatchMs = 100
/** How long an event the log holds may be on its way before the subscription counts as stalled. */
const graceMs = 1_000
/** How many events of others are looked through at a time to prove that nothing was missed among them. */
const proofMax = 4 * searchWindow
const retryPauseMs = 100
const retryPauseMaxMs = 5_000

type FollowOptions = {
  readonly connect: () => Promise<Connection>
  /** After this long without an event the subscription is checked, and `idle` said where it can be proved. */
  readonly heartbeatMs: number
  readonly silenceMs: number
  readonly logger: Logger
  readonly lost: Outage
}

/** Ends when the signal aborts; fails where the log no longer holds what it delivered, and at nothing else. */
export async function* followAll(
  follow: FollowOptions,
  options: SubscribeOptions,
): AsyncGenerator<SubscriptionItem> {
  const { signal } = options
  const { logger } = follow
  let position = options.after
  let last: Pick<RecordedEvent, 'position' | 'id'> | undefined = options.known && {
    position: options.known.position,
    id: options.known.eventId,
  }
  let caughtUp = false
  let failures = 0
  /** Where the server's subscription begins. Not every position is a place in the log: only those of events are. */
  let from = options.after
  while (!signal.aborted) {
    let session: Session | undefined
    try {
      session = await openSession(follow, { ...options, from, after: position, last })
      for (;;) {
        const item = await nextItem(session, follow, options)
        if (item === undefined) return
        failures = 0
        follow.lost.works()
        const moved = item.position > position
        position = item.position
        if (moved) from = position
        if (item.kind === 'events') last = item.events.at(-1)
        if (item.kind !== 'caught-up') yield item
        else if (!caughtUp) {
          caughtUp = true
          yield item
        } else if (moved) yield { kind: 'idle', position }
      }
    } catch (error) {
      if (signal.aborted) return
      if (error instanceof LogRewritten) throw error
      if (isInvalidPosition(error) && from !== logStart) {
        logger.error(
          { err: error, position: position.toString() },
          'event log: no event stands at this position, reading from the start',
        )
        from = logStart
      } else follow.lost.failed(error)
    } finally {
      session?.connection.close()
    }
    await createBell(signal).wait(Math.min(retryPauseMaxMs, retryPauseMs * 2 ** Math.min(failures++, 10)))
  }
}

/** One of the server's subscriptions, and how far it has come. */
type Session = {
  readonly connection: Connection
  readonly call: ReadCall
  readonly bell: Bell
  readonly matches: (event: RecordedEvent) => boolean
  /** The server filters: it does not show what lies between two events. */
  readonly filtered: boolean
  /** Where the log stood before the subscription was made. */
  readonly headAtStart: Position
  /** The last position said to the consumer. */
  said: Position
  /** Everything that matches up to here was taken from the call. */
  seen: Position
  /** A place in the log at or before `seen`. */
  place: Position
  serverCaughtUp: boolean
  caughtUp: boolean
  heardAtMs: number
  beatAtMs: number
  headAtBeat: Position
  failure: Error | undefined
}

const openSession = async (
  { connect, silenceMs }: FollowOptions,
  {
    from,
    after,
    last,
    prefixes,
    signal,
  }: SubscribeOptions & {
    readonly from: Position
    readonly last: Pick<RecordedEvent, 'position' | 'id'> | undefined
  },
): Promise<Session> => {
  const connection = await connect()
  try {
    // Before subscribing, and from the same server: so everything up to here is delivered before "caught up".
    const headAtStart = await readHead(connection, silenceMs)
    if (headAtStart < after) await refuseShortened(connection, after, silenceMs)
    if (last !== undefined && (await readAt(connection, last.position, silenceMs))?.id !== last.id)
      throw new LogRewritten(`the event log no longer holds the event ${last.id} read at ${last.position}`)
    const now = performance.now()
    const session: Session = {
      connection,
      call: connection.read(subscribeRequest(from, prefixes)),
      bell: createBell(signal),
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
      session.bell.ring()
    }
    session.call.on('readable', session.bell.ring)
    session.call.on('error', fail)
    session.call.on('end', () => fail(new Error('the server ended the subscription')))
    return session
  } catch (error) {
    connection.close()
    throw error
  }
}

/** The next item, or `undefined` once aborted. Throws when this subscription is lost. */
const nextItem = async (
  session: Session,
  follow: FollowOptions,
  { signal, batchMax = batchMaxDefault }: SubscribeOptions,
): Promise<SubscriptionItem | undefined> => {
  while (!signal.aborted) {
    if (!session.caughtUp && isCaughtUp(session)) return catchUp(session)
    const events = await gather(session, batchMax)
    const last = events.at(-1)
    if (last !== undefined) {
      session.beatAtMs = performance.now()
      session.said = last.position
      return { kind: 'events', events, position: session.said }
    }
    if (!session.caughtUp && isCaughtUp(session)) continue
    if (session.failure !== undefined) throw session.failure
    // Checkpoints ring too: only the time since the last beat counts.
    const leftMs = session.beatAtMs + follow.heartbeatMs - performance.now()
    if (leftMs > 0) {
      await session.bell.wait(leftMs)
      continue
    }
    await beat(session, follow, signal)
    if (session.seen > session.said) {
      session.said = session.seen
      return { kind: 'idle', position: session.said }
    }
  }
  return undefined
}

const isCaughtUp = ({ serverCaughtUp, seen, headAtStart }: Session): boolean =>
  serverCaughtUp || seen >= headAtStart

const catchUp = (session: Session): SubscriptionItem => {
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
 * What waits on the server, up to a batch. The call holds a handful of it and fetches more only while it is read, so an
 * empty call says nothing about the server. A lone live event is handed over at once; where there are two, there may be
 * thousands, and a consumer that takes its time over every batch would never see the end of them by the handful.
 */
const gather = async (session: Session, batchMax: number): Promise<RecordedEvent[]> => {
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
      if (!(await session.bell.wait(lingerMs))) break
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

/** Nothing came for a while: finds out whether nothing was to come. Throws where something was. */
const beat = async (session: Session, follow: FollowOptions, signal: AbortSignal): Promise<void> => {
  const heard = performance.now() - session.heardAtMs < follow.heartbeatMs
  session.beatAtMs = performance.now()
  if (session.filtered) {
    if (session.caughtUp || !heard) await prove(session, follow, { heard, signal })
  } else if (!heard) {
    const head = await readHead(session.connection, follow.silenceMs)
    if (await isStalled(session, head, signal)) throw new Error(`events up to ${head} do not arrive`)
  }
}

/** Looks through others' events without the server's filter, a page at a time, for what should have been delivered. */
const prove = async (
  session: Session,
  { silenceMs, heartbeatMs }: FollowOptions,
  { heard, signal }: { heard: boolean; signal: AbortSignal },
): Promise<void> => {
  const { connection, place, matches } = session
  const from = place === logStart ? undefined : place
  const page = await readEvents(connection, { direction: 'forwards', from, max: proofMax }, silenceMs)
  const missed = page.find((event) => event.position > session.seen && matches(event))
  if (missed !== undefined) {
    if (await isStalled(session, missed.position, signal))
      throw new Error(`the event at ${missed.position} does not arrive`)
    return
  }
  const last = page.at(-1)
  if (last === undefined) return
  session.place = last.position
  if (last.position > session.seen) session.seen = last.position
  if (page.length < proofMax) session.headAtBeat = last.position
  // A server that never says "caught up" leaves finding out to us: without a pause.
  else if (!session.caughtUp) session.beatAtMs -= heartbeatMs
  else {
    // The proof lags behind others' events. Those alone would bring checkpoints, so silence among them is suspect.
    const head = await readHead(connection, silenceMs)
    if (!heard && head > session.headAtBeat)
      session.failure ??= new Error('others write, and not even checkpoints arrive')
    session.headAtBeat = head
  }
}

/** Whether an event the log holds fails to arrive, after the time it may be on its way. */
const isStalled = async (session: Session, missing: Position, signal: AbortSignal): Promise<boolean> => {
  const deadline = performance.now() + graceMs
  while (
    session.seen < missing &&
    session.call.readableLength === 0 &&
    session.failure === undefined &&
    !signal.aborted
  ) {
    const leftMs = deadline - performance.now()
    if (leftMs <= 0) return true
    await session.bell.wait(leftMs)
  }
  return false
}

/** Positions of the server's own events may lie past the head, but none past the end of the log. */
const refuseShortened = async (connection: Connection, after: Position, silenceMs: number): Promise<void> => {
  const [last] = await readEvents(connection, { direction: 'backwards', from: undefined, max: 1 }, silenceMs)
  const end = last?.position ?? logStart
  if (end < after)
    throw new LogRewritten(`the event log ends at ${end}, before ${after}, up to which it was read already`)
}

/** Something to wait for, with an end to patience. */
type Bell = {
  ring(): void
  /** Resolves to whether it rang, since the last time it was waited for, before the time was over or all is aborted. */
  wait(ms: number): Promise<boolean>
}

const createBell = (signal: AbortSignal): Bell => {
  let rung = false
  let wake: (() => void) | undefined
  const ring = (): void => {
    rung = true
    wake?.()
  }
  const wait = async (ms: number): Promise<boolean> => {
    if (!rung && !signal.aborted)
      await new Promise<void>((resolve) => {
        const done = (): void => {
          clearTimeout(timer)
          signal.removeEventListener('abort', done)
          wake = undefined
          resolve()
        }
        const timer = setTimeout(done, ms)
        signal.addEventListener('abort', done, { once: true })
        wake = done
      })
    const rang = rung
    rung = false
    return rang
  }
  return { ring, wait }
}
