import type { Logger } from 'pino'
import type { Outage } from '../../concurrency/outage.ts'
import {
  LogRewritten,
  logStart,
  type Position,
  type SubscribeOptions,
  type SubscriptionItem,
} from '../port.ts'
import type { Connection } from './client.ts'
import { searchWindow } from './messages.ts'
import { createNotice } from './notice.ts'
import { isPositionRefused, readAt, readHead, readHeaders } from './read.ts'
import {
  catchUp,
  type Delivered,
  gather,
  isCaughtUp,
  openSession,
  type Session,
} from './subscription-session.ts'

/**
 * Follows the whole log in order, without end. If the server restarts, the reader is slow or the connection is lost, a subscription ends,
 * sometimes without an error. It is then replaced by a new one.
 */

const batchMaxDefault = 1_000
const retryPauseMs = 100
const retryPauseMaxMs = 5_000

type FollowOptions = {
  readonly connect: () => Promise<Connection>
  /** The subscription is checked after this time without an event. If no event was missed, `idle` is yielded. */
  readonly heartbeatMs: number
  readonly silenceMs: number
  readonly logger: Logger
  readonly lost: Outage
}

/** Ends when the signal aborts. Fails only if the log has lost events that were delivered. */
export async function* followAll(
  follow: FollowOptions,
  options: SubscribeOptions,
): AsyncGenerator<SubscriptionItem> {
  const { signal } = options
  const { logger } = follow
  let position = options.after
  let last: Delivered | undefined = options.known && {
    position: options.known.position,
    id: options.known.eventId,
  }
  let caughtUp = false
  let failures = 0
  /** The position after which the server's subscription begins. It must be the position of an event, because others can be invalid. */
  let from = options.after
  while (!signal.aborted) {
    let session: Session | undefined
    try {
      session = await openSession({ ...follow, ...options, from, after: position, last })
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
        if (session.caughtUp) options.looked?.()
      }
    } catch (error) {
      if (signal.aborted) return
      if (error instanceof LogRewritten) throw error
      if (isPositionRefused(error) && session !== undefined && (await isNowhere(session, from, follow))) {
        logger.error(
          { err: error, position: position.toString() },
          'event log: this position has no event, so the log is read from the start',
        )
        from = logStart
      } else follow.lost.failed(error)
    } finally {
      session?.connection.close()
    }
    await createNotice(signal).wait(Math.min(retryPauseMaxMs, retryPauseMs * 2 ** Math.min(failures++, 10)))
  }
}

/** Whether the log has no event at `from`, where the subscription began. Returns false if the server does not answer. */
const isNowhere = async (
  { connection }: Session,
  from: Position,
  { silenceMs }: FollowOptions,
): Promise<boolean> => {
  if (from === logStart) return false
  try {
    return (await readAt(connection, from, silenceMs)) === null
  } catch {
    return false
  }
}

/** Returns the next item, or undefined after the abort. Throws if this subscription is lost. */
const nextItem = async (
  session: Session,
  follow: FollowOptions,
  { signal, batchMax = batchMaxDefault, looked }: SubscribeOptions,
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
    // Checkpoints also wake up this loop, so the wait is measured from the last heartbeat.
    const leftMs = session.beatAtMs + follow.heartbeatMs - performance.now()
    if (leftMs > 0) {
      await session.notice.wait(leftMs)
      continue
    }
    await checkSilence(session, { ...follow, signal })
    if (session.caughtUp && session.failure === undefined && session.call.readableLength === 0) looked?.()
    if (session.seen > session.said) {
      session.said = session.seen
      return { kind: 'idle', position: session.said }
    }
  }
  return undefined
}

/** How long an event can be in transit before the subscription counts as stalled. */
const graceMs = 1_000
/** How many events of other software are read at a time to check that no event was missed. */
const proofMax = 4 * searchWindow

type Check = {
  readonly heartbeatMs: number
  readonly silenceMs: number
  readonly signal: AbortSignal
}

/**
 * Must be called when no event has arrived for a while. Throws if the log contains an event that was not delivered. Otherwise, moves `seen` past
 * events of other software.
 */
const checkSilence = async (session: Session, check: Check): Promise<void> => {
  const heard = performance.now() - session.heardAtMs < check.heartbeatMs
  session.beatAtMs = performance.now()
  if (session.filtered) {
    if (session.caughtUp || !heard) await lookThrough(session, check, heard)
  } else if (!heard) {
    const head = await readHead(session.connection, check.silenceMs)
    if (await isStalled(session, head, check.signal))
      throw new Error(`events up to ${head} are not delivered`)
  }
}

/** Reads the log a page at a time, without the server's filter, to find events that should have been delivered. */
const lookThrough = async (
  session: Session,
  { silenceMs, heartbeatMs, signal }: Check,
  heard: boolean,
): Promise<void> => {
  const { connection, place, matches } = session
  const from = place === logStart ? undefined : place
  const page = await readHeaders(connection, { direction: 'forwards', from, max: proofMax }, silenceMs)
  const missed = page.find((event) => event.position > session.seen && matches(event))
  if (missed !== undefined) {
    if (await isStalled(session, missed.position, signal))
      throw new Error(`the event at ${missed.position} is not delivered`)
    return
  }
  const last = page.at(-1)
  if (last === undefined) return
  session.place = last.position
  if (last.position > session.seen) session.seen = last.position
  if (page.length < proofMax) session.headAtBeat = last.position
  // If the server has not reported "caught up", the search continues without a pause.
  else if (!session.caughtUp) session.beatAtMs -= heartbeatMs
  else {
    // The end of the log is not reached. If other software writes events, the server must send checkpoints. If none arrive, the subscription is
    // broken.
    const head = await readHead(connection, silenceMs)
    if (!heard && head > session.headAtBeat)
      session.failure ??= new Error('other software writes events, but the server sends no checkpoints')
    session.headAtBeat = head
  }
}

/** Whether an event is still missing after `graceMs`. */
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
    await session.notice.wait(leftMs)
  }
  return false
}
