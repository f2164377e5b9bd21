/**
 * A double of the event log that fulfils the port's guarantees in memory and fails on demand. It is for testing code that uses
 * the port, never for testing an engine. Each process under test gets its own client of the double, with its own faults.
 */
import { recordedMsIn } from '../../src/event-log/hash-chain.ts'
import {
  AppendConflict,
  checkAppend,
  type EventLog,
  type ExpectedRevision,
  LogRewritten,
  type NewEvent,
  type ReadOptions,
  type RecordedEvent,
  StreamMissing,
  type SubscribeOptions,
  type SubscriptionItem,
  Unavailable,
  UnknownOutcome,
} from '../../src/event-log/port.ts'

/** One append as a client sent it, successful or not. */
export type AppendAttempt = {
  readonly client: string
  readonly stream: string
  readonly expected: ExpectedRevision
  readonly events: readonly NewEvent[]
}

/**
 * The outcome of one append.
 * - `lose-reply`: written, but no reply arrives.
 * - `lose-request`: not written, and no reply arrives.
 * - `late`: not written, and no reply arrives. The request is still on its way until `deliverLate`.
 * - `duplicate`: written and answered. A second copy of the request is still on its way until `deliverLate`.
 * - `unavailable`: refused, not written.
 */
export type AppendFault = 'lose-reply' | 'lose-request' | 'late' | 'duplicate' | 'unavailable'

/** Decides the outcome of each append and read. A hook that waits simulates a slow network. */
export type ClientFaults = {
  readonly onAppend?: (attempt: AppendAttempt) => AppendFault | undefined | Promise<AppendFault | undefined>
  readonly onRead?: (
    stream: string,
    options: ReadOptions,
  ) => 'unavailable' | undefined | Promise<'unavailable' | undefined>
}

export type MemoryEventLog = {
  /** Returns a new client, for one process. */
  client(name: string, faults?: ClientFaults): EventLog
  /** Every append by any client, in order. */
  readonly attempts: readonly AppendAttempt[]
  /** Appends with a request that is still on its way. */
  readonly late: readonly AppendAttempt[]
  /** Delivers the oldest late request, or the given one. Returns whether this delivery wrote the events. */
  deliverLate(attempt?: AppendAttempt): boolean
  /** Restores the log from a copy made when it had this many events. Later events are lost. */
  restore(count: number): void
  /** The events of a stream; empty if it does not exist. */
  eventsOf(stream: string): readonly RecordedEvent[]
  readonly streams: readonly string[]
}

/** `now` is the log's own clock, used for recording times. */
export const createMemoryEventLog = ({ now = () => 0 }: { now?: () => number } = {}): MemoryEventLog => {
  const all: RecordedEvent[] = []
  const streams = new Map<string, RecordedEvent[]>()
  const attempts: AppendAttempt[] = []
  const late: AppendAttempt[] = []
  const waiting = new Set<() => void>()

  /**
   * The engine itself: it appends all events or none, and only at the expected revision. Repeating an append with the same ids at
   * the same revision always succeeds.
   */
  const place = ({ stream, expected, events }: AppendAttempt): { revision: number; written: boolean } => {
    const standing = streams.get(stream) ?? []
    const first = expected === 'none' ? 0 : expected + 1
    const revision = first + events.length - 1
    if (standing.length !== first) {
      const repeated = events.every((event, i) => standing[first + i]?.id === event.id)
      if (!repeated) throw new AppendConflict(stream, expected, standing.length - 1)
      return { revision, written: false }
    }
    for (const [i, event] of events.entries()) {
      const recorded = {
        ...event,
        stream,
        revision: first + i,
        position: BigInt(all.length + 1),
        recordedAtMs: recordedMsIn(event.metadata, now()),
      }
      all.push(recorded)
      standing.push(recorded)
    }
    streams.set(stream, standing)
    const woken = [...waiting]
    waiting.clear()
    for (const wake of woken) wake()
    return { revision, written: true }
  }

  const deliverLate = (attempt = late[0]): boolean => {
    if (attempt === undefined || !late.includes(attempt)) return false
    late.splice(late.indexOf(attempt), 1)
    try {
      return place(attempt).written
    } catch (error) {
      if (error instanceof AppendConflict) return false
      throw error
    }
  }

  const client = (name: string, { onAppend, onRead }: ClientFaults = {}): EventLog => {
    const closing = new AbortController()

    const append: EventLog['append'] = async (stream, expected, events) => {
      checkAppend(stream, expected, events)
      const attempt: AppendAttempt = {
        client: name,
        stream,
        expected,
        events: events.map((event) => ({ ...event })),
      }
      attempts.push(attempt)
      const fault = await onAppend?.(attempt)
      if (closing.signal.aborted) throw new Unavailable('the event log is closed')
      if (fault === 'unavailable') throw new Unavailable(`${name}: the event log refuses to work`)
      if (fault === 'late' || fault === 'duplicate') late.push(attempt)
      if (fault === 'lose-request' || fault === 'late')
        throw new UnknownOutcome(`${name}: the request was lost`)
      if (fault === 'lose-reply') {
        try {
          place(attempt)
        } catch {
          // The append was refused, but the caller never receives the refusal.
        }
        throw new UnknownOutcome(`${name}: the reply was lost`)
      }
      const { revision, written } = place(attempt)
      return { revision, repeated: !written }
    }

    const read: EventLog['read'] = async (stream, options) => {
      if ((await onRead?.(stream, options)) === 'unavailable')
        throw new Unavailable(`${name}: the event log cannot be read`)
      const standing = streams.get(stream)
      if (standing === undefined) throw new StreamMissing(`there is no stream ${stream}`)
      const { from, direction = 'forwards', max } = options
      if (direction === 'forwards') return standing.slice(from ?? 0, (from ?? 0) + max)
      const end = Math.min(from ?? standing.length - 1, standing.length - 1)
      return standing.slice(Math.max(0, end - max + 1), end + 1).reverse()
    }

    async function* subscribe({
      after,
      known,
      prefixes,
      batchMax = 1_000,
      signal,
    }: SubscribeOptions): AsyncGenerator<SubscriptionItem> {
      const either = AbortSignal.any([signal, closing.signal])
      let position = after
      let last = known && { position: known.position, id: known.eventId }
      let caughtUp = false
      while (!either.aborted) {
        if (position > BigInt(all.length) || (last && all[Number(last.position) - 1]?.id !== last.id))
          throw new LogRewritten(`${name}: the event log was rewritten`)
        const ahead = all.slice(Number(position))
        const matching = ahead.filter(
          ({ stream }) => prefixes.length === 0 || prefixes.some((prefix) => stream.startsWith(prefix)),
        )
        const events = matching.slice(0, batchMax)
        const moved = matching.length > batchMax ? events.at(-1)?.position : ahead.at(-1)?.position
        if (moved !== undefined) {
          position = moved
          last = events.at(-1) ?? last
          yield events.length > 0 ? { kind: 'events', events, position } : { kind: 'idle', position }
        } else if (!caughtUp) {
          caughtUp = true
          yield { kind: 'caught-up', position }
        } else {
          await new Promise<void>((resolve) => {
            waiting.add(resolve)
            either.addEventListener('abort', () => resolve(), { once: true })
          })
        }
      }
    }

    return {
      gapless: true,
      append,
      read,
      subscribe,
      head: async () => BigInt(all.length),
      at: async (position) => all[Number(position) - 1] ?? null,
      lookBack: async ({ before, max }) => {
        const events = all
          .slice(0, before === null ? undefined : Number(before) - 1)
          .slice(-max)
          .reverse()
        const oldest = events.at(-1)?.position ?? 1n
        return { events, unreadable: [], next: oldest > 1n ? oldest : null }
      },
      lastRevision: async (stream) => {
        const standing = streams.get(stream)
        return standing === undefined ? null : standing.length - 1
      },
      streams: async (prefix) => [...streams.keys()].filter((stream) => stream.startsWith(prefix)),
      close: async () => closing.abort(),
    }
  }

  return {
    client,
    attempts,
    late,
    deliverLate,
    restore: (count) => {
      all.splice(count)
      for (const [stream, standing] of streams) {
        const kept = standing.filter(({ position }) => position <= BigInt(count))
        if (kept.length === 0) streams.delete(stream)
        else streams.set(stream, kept)
      }
      for (const wake of [...waiting]) wake()
    },
    eventsOf: (stream) => streams.get(stream) ?? [],
    get streams() {
      return [...streams.keys()]
    },
  }
}
