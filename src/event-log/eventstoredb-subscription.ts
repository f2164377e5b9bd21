import type { ReadResp } from '@eventstore/db-client/generated/streams_pb.js'
import type { Logger } from 'pino'
import type { Connection } from './eventstoredb-client.ts'
import { recordedEvent, searchWindow, subscribeRequest } from './eventstoredb-messages.ts'
import { isSystemEvent, readEvents, readHead } from './eventstoredb-read.ts'
import {
  logStart,
  type Position,
  type RecordedEvent,
  type SubscribeOptions,
  type SubscriptionItem,
} from './port.ts'

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
/** While catching up a batch waits this long for one more event: events arrive in handfuls, consumers like many. */
const lingerMs = 10
/** How long an event the log holds may be on its way before the subscription counts as stalled. */
const graceMs = 1_000
/** How many events of others are looked through at a time to prove that nothing was missed among them. */
const proofMax = 4 * searchWindow
const retryPauseMs = 100
const retryPauseMaxMs = 5_000

export type FollowOptions = {
  readonly connect: () => Promise<Connection>
  /** After this long without an event the subscription is checked, and `idle` said where it can be proved. */
  readonly heartbeatMs: number
  readonly silenceMs: number
  readonly logger: Logger
}

/** Ends when the signal aborts; fails where the log no longer holds what it delivered, and at nothing else. */
export async function* followAll(
  follow: FollowOptions,
  options: SubscribeOptions,
): AsyncGenerator<SubscriptionItem> {
  const { signal } = options
  const { logger } = follow
  let position = options.after
  let caughtUp = false
  let failures = 0
  /** Where the server's subscription begins. Not every position is a place in the log: only those of events are. */
  let from = options.after
  while (!signal.aborted) {
    let session: Session | undefined
    try {
      session = await openSession(follow, { ...options, from, after: position })
      for (;;) {
        const item = await session.next()
        if (item === undefined) return
        failures = 0
        const moved = item.position > position
        position = item.position
        if (moved) from = position
        if (item.kind !== 'caught-up') yield item
        else if (!caughtUp) {
          caughtUp = true
          yield item
        } else if (moved) yield { kind: 'idle', position }
      }
    } catch (error) {
      if (signal.aborted) return
      if (error instanceof Rewound) throw error
      if (isInvalidPosition(error) && from !== logStart) {
        logger.error(
          { err: error, position: position.toString() },
          'event log: no event stands at this position, reading from the start',
        )
        from = logStart
      } else
        logger.warn({ err: error, position: position.toString() }, 'event log: subscription lost, resuming')
    } finally {
      session?.close()
    }
    await createBell(signal).wait(Math.min(retryPauseMaxMs, retryPauseMs * 2 ** Math.min(failures++, 10)))
  }
}

const isInvalidPosition = (error: unknown): boolean =>
  error instanceof Error && /invalid ?position/i.test(error.message)

/** What was delivered is no longer in the log: it is another one, or was restored from an older copy. Final. */
class Rewound extends Error {
  override name = 'Rewound'
}

type Session = {
  /** The next item, or `undefined` once aborted. Throws when this subscription is lost. */
  next(): Promise<SubscriptionItem | undefined>
  close(): void
}

type SessionOptions = SubscribeOptions & { readonly from: Position }

const openSession = async (follow: FollowOptions, options: SessionOptions): Promise<Session> => {
  const { heartbeatMs, silenceMs } = follow
  const { prefixes, signal, batchMax = batchMaxDefault } = options
  const connection = await follow.connect()
  try {
    // Before subscribing, and from the same server: so everything up to here is delivered before "caught up".
    const headAtStart = await readHead(connection, silenceMs)
    if (headAtStart < options.after) await refuseRewound(connection, options.after, silenceMs)
    const call = connection.read(subscribeRequest(options.from, prefixes))
    const bell = createBell(signal)
    let failure: Error | undefined
    call.on('readable', bell.ring)
    call.on('error', (error) => {
      failure = error
      bell.ring()
    })
    call.on('end', () => {
      failure ??= new Error('the server ended the subscription')
      bell.ring()
    })

    /** The last position said to the consumer. */
    let said = options.after
    /** Everything that matches up to here was taken from the call. */
    let seen = options.after
    /** A place in the log at or before `seen`. */
    let place = options.from
    let serverCaughtUp = false
    let caughtUp = false
    let heardAt = performance.now()
    let beatAt = heardAt
    let headAtBeat = headAtStart
    /** Why to give this subscription up once what was proved is said. */
    let doubt: Error | undefined

    const matches = (event: RecordedEvent): boolean =>
      !isSystemEvent(event) &&
      (prefixes.length === 0 || prefixes.some((prefix) => event.stream.startsWith(prefix)))

    const take = (response: ReadResp): RecordedEvent | undefined => {
      heardAt = performance.now()
      const event = recordedEvent(response)
      if (response.hasCaughtUp()) serverCaughtUp = true
      if (event === undefined || event.position <= seen) return undefined
      seen = event.position
      place = event.position
      return matches(event) ? event : undefined
    }

    /** What the call holds, up to a batch. The call reads no further from the server than its own small buffer. */
    const gather = async (): Promise<RecordedEvent[]> => {
      const batch: RecordedEvent[] = []
      let bytes = 0
      while (batch.length < batchMax && bytes < batchBytesMax) {
        const response: ReadResp | null = failure === undefined ? call.read() : null
        if (response === null) {
          if (caughtUp || serverCaughtUp || seen >= headAtStart || batch.length === 0) break
          if (!(await bell.wait(lingerMs))) break
          continue
        }
        const event = take(response)
        if (event === undefined) continue
        batch.push(event)
        bytes += event.data.length + event.metadata.length
      }
      return batch
    }

    const stalled = async (missing: Position): Promise<boolean> => {
      const deadline = performance.now() + graceMs
      while (seen < missing && call.readableLength === 0 && failure === undefined && !signal.aborted) {
        const left = deadline - performance.now()
        if (left <= 0) return true
        await bell.wait(left)
      }
      return false
    }

    /** Nothing came for a while: finds out whether nothing was to come. Throws where something was. */
    const beat = async (): Promise<void> => {
      const heard = performance.now() - heardAt < heartbeatMs
      beatAt = performance.now()
      if (heard && (prefixes.length === 0 || !caughtUp)) return
      if (prefixes.length === 0) {
        const head = await readHead(connection, silenceMs)
        if (await stalled(head)) throw new Error(`events up to ${head} do not arrive`)
        return
      }
      const from = place === logStart ? undefined : place
      const page = await readEvents(connection, { direction: 'forwards', from, max: proofMax }, silenceMs)
      const missed = page.find((event) => event.position > seen && matches(event))
      if (missed !== undefined) {
        if (await stalled(missed.position)) throw new Error(`the event at ${missed.position} does not arrive`)
        return
      }
      const last = page.at(-1)
      if (last === undefined) return
      place = last.position
      if (last.position > seen) seen = last.position
      if (page.length < proofMax) {
        headAtBeat = last.position
        return
      }
      // A server that never says "caught up" leaves finding out to us: without a pause.
      if (!caughtUp) {
        beatAt -= heartbeatMs
        return
      }
      // The proof lags behind others' events. Those alone would bring checkpoints, so silence among them is suspect.
      const head = await readHead(connection, silenceMs)
      if (!heard && head > headAtBeat) doubt = new Error('others write, and not even checkpoints arrive')
      headAtBeat = head
    }

    const next = async (): Promise<SubscriptionItem | undefined> => {
      for (;;) {
        if (signal.aborted) return undefined
        if (!caughtUp && (serverCaughtUp || seen >= headAtStart)) {
          caughtUp = true
          if (headAtStart > said) said = headAtStart
          if (headAtStart > seen) {
            seen = headAtStart
            place = headAtStart
          }
          return { kind: 'caught-up', position: said }
        }
        const events = await gather()
        const last = events.at(-1)
        if (last !== undefined) {
          beatAt = performance.now()
          said = last.position
          return { kind: 'events', events, position: said }
        }
        if (!caughtUp && (serverCaughtUp || seen >= headAtStart)) continue
        if (failure !== undefined || doubt !== undefined) throw failure ?? doubt
        // Checkpoints ring too: only the time since the last beat counts.
        const left = beatAt + heartbeatMs - performance.now()
        if (left > 0) {
          await bell.wait(left)
          continue
        }
        await beat()
        if (seen > said) {
          said = seen
          return { kind: 'idle', position: said }
        }
      }
    }

    return { next, close: connection.close }
  } catch (error) {
    connection.close()
    throw error
  }
}

/** Positions of the server's own events may lie past the head, but none past the end of the log. */
const refuseRewound = async (connection: Connection, after: Position, silenceMs: number): Promise<void> => {
  const [last] = await readEvents(connection, { direction: 'backwards', from: undefined, max: 1 }, silenceMs)
  const end = last?.position ?? logStart
  if (end < after)
    throw new Rewound(`the event log ends at ${end}, before ${after}, up to which it was read already`)
}

/** Something to wait for, with an end to patience. */
const createBell = (signal: AbortSignal) => {
  let rung = false
  let wake: (() => void) | undefined
  const ring = (): void => {
    rung = true
    wake?.()
  }
  /** Resolves to whether it rang, since the last time it was waited for, before the time was over. */
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
