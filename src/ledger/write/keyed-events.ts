import {
  type EventLog,
  type NewEvent,
  type RecordedEvent,
  StreamMissing,
  Unavailable,
} from '../../event-log/port.ts'
import { ledgerStream } from '../../events/streams.ts'

/**
 * The places of calls with an Idempotency-Key, which may be repeated. The
 * projection has the older ones; of those after it this process remembers what it read and appended. However far the
 * projection is behind, an event is read once here, and not once for every call that asks.
 *
 * It gives places and nothing else. Places it forgets are read again: it affects cost, never meaning.
 */
export type KeyedEvents = {
  /** The event log as a ledger uses it: events that pass through are noted. */
  readonly eventLog: EventLog
  /**
   * At which revisions after `after` the ledger holds those events, and up to where it was looked through: at least to its end
   * at the time of asking. Throws what the event log throws.
   */
  find(
    organizationId: string,
    ids: readonly string[],
    after: number,
  ): Promise<{ places: Map<string, number>; upTo: number }>
}

/** The known part of one ledger: the places of all its keyed events from `from` up to `upTo`. */
type Tail = {
  readonly stream: string
  from: number
  upTo: number
  readonly places: Map<string, number>
  /** When so many places are known, those the projection has by now are dropped. */
  pruneAt: number
  /** Waiting callers, by the revision up to which they need no places. */
  readonly waiting: Set<{ readonly after: number }>
  reading: Promise<void> | undefined
  /** Begins when the one under way is done. */
  next: Promise<void> | undefined
}

export const keyedEventsLimits = {
  pageMax: 1_000,
  /** Some 100 bytes each, in all ledgers. So many calls are in no projection only where the projector is down. */
  placesMax: 500_000,
  ledgersMax: 10_000,
  pruneAt: 4_096,
}

/** A search in the text finds too many rather than too few, and costs a fraction of parsing it. */
const isKeyed = ({ type, data }: Pick<NewEvent, 'type' | 'data'>): boolean =>
  type === 'KeyUsed' && data.includes('"idempotent"')

export const createKeyedEvents = (eventLog: EventLog, limits = keyedEventsLimits): KeyedEvents => {
  const tails: Tails = { eventLog, limits, byStream: new Map(), placesHeld: 0 }
  const noted = (stream: string, first: number, events: readonly Noted[]): void => {
    if (stream.startsWith(ledgerPrefix)) note(tails, tailOf(tails, stream, first - 1), first, events)
  }
  return {
    eventLog: {
      ...eventLog,
      append: async (stream, expected, events) => {
        const appended = await eventLog.append(stream, expected, events)
        noted(stream, expected === 'none' ? 0 : expected + 1, events)
        return appended
      },
      read: async (stream, options) => {
        const page = await eventLog.read(stream, options)
        if (options.direction !== 'backwards') noted(stream, options.from ?? 0, page)
        return page
      },
    },
    find: async (organizationId, ids, after) => {
      const tail = tailOf(tails, ledgerStream(organizationId), after)
      const asked = { after }
      tail.waiting.add(asked)
      try {
        await catchUp(tails, tail)
        const places = new Map<string, number>()
        for (const id of ids) {
          const revision = tail.places.get(id)
          if (revision !== undefined) places.set(id, revision)
        }
        prune(tails, tail)
        return { places, upTo: tail.upTo }
      } finally {
        tail.waiting.delete(asked)
      }
    },
  }
}

const ledgerPrefix = ledgerStream('')

type Noted = Pick<NewEvent, 'id' | 'type' | 'data'>

type Tails = {
  readonly eventLog: EventLog
  readonly limits: typeof keyedEventsLimits
  /** Least recently used first. */
  readonly byStream: Map<string, Tail>
  placesHeld: number
}

const tailOf = (tails: Tails, stream: string, after: number): Tail => {
  const { byStream, limits } = tails
  const tail = byStream.get(stream) ?? newTail(stream, after, limits.pruneAt)
  byStream.delete(stream)
  byStream.set(stream, tail)
  if (byStream.size > limits.ledgersMax) forgetOldest(tails)
  return tail
}

const forgetOldest = (tails: Tails): void => {
  const [oldest] = tails.byStream.values()
  if (oldest === undefined) return
  tails.byStream.delete(oldest.stream)
  tails.placesHeld -= oldest.places.size
}

/** A forgotten tail still serves the callers who wait for it, and is not counted. */
const changing = (tails: Tails, tail: Tail, change: () => void): void => {
  const before = tail.places.size
  change()
  if (tails.byStream.get(tail.stream) !== tail) return
  tails.placesHeld += tail.places.size - before
  while (tails.placesHeld > tails.limits.placesMax) forgetOldest(tails)
}

const note = (tails: Tails, tail: Tail, first: number, events: readonly Noted[]): void => {
  // What does not continue the tail will be read, and what it knows already is known.
  if (first > tail.upTo + 1 || first + events.length <= tail.upTo + 1) return
  changing(tails, tail, () => {
    for (const [i, event] of events.entries())
      if (first + i > tail.upTo && isKeyed(event)) tail.places.set(event.id, first + i)
  })
  tail.upTo = first + events.length - 1
}

const readPage = ({ eventLog }: Tails, stream: string, from: number, max: number): Promise<RecordedEvent[]> =>
  eventLog.read(stream, { from, max }).catch((error: unknown) => {
    if (error instanceof StreamMissing) return []
    throw error
  })

/** Reads the events between a projection and a tail that began later, with an account. */
const readBefore = async (tails: Tails, tail: Tail, after: number): Promise<void> => {
  const { pageMax } = tails.limits
  const earlier = newTail(tail.stream, after, 0)
  while (earlier.upTo + 1 < tail.from) {
    const from = earlier.upTo + 1
    const page = await readPage(tails, tail.stream, from, Math.min(pageMax, tail.from - from))
    if (page.length === 0) throw new Unavailable(`${tail.stream} ends before revision ${tail.from}`)
    note(tails, earlier, from, page)
  }
  changing(tails, tail, () => {
    for (const [id, revision] of earlier.places) tail.places.set(id, revision)
  })
  tail.from = after + 1
}

const readOn = async (tails: Tails, tail: Tail): Promise<void> => {
  const { pageMax } = tails.limits
  const least = leastOf(tail)
  if (least > tail.upTo) {
    changing(tails, tail, () => tail.places.clear())
    tail.from = least + 1
    tail.upTo = least
  } else if (least + 1 < tail.from) await readBefore(tails, tail, least)
  for (;;) {
    // From the last one known on: a projection or a memory that is ahead of the log knows what is not there.
    const from = Math.max(tail.upTo, 0)
    const page = await readPage(tails, tail.stream, from, pageMax)
    if (page.length === 0 && tail.upTo >= 0)
      throw new Unavailable(`${tail.stream} ends before revision ${tail.upTo}`)
    note(tails, tail, from, page)
    if (page.length < pageMax) return
  }
}

/** A reading under way may have passed the end before it was asked for: everyone who asks in the meantime shares the next reading. */
const catchUp = (tails: Tails, tail: Tail): Promise<void> => {
  tail.next ??= (tail.reading ?? Promise.resolve())
    .catch(() => undefined)
    .then(() => {
      tail.reading = tail.next
      tail.next = undefined
      return readOn(tails, tail)
    })
  return tail.next
}

const prune = (tails: Tails, tail: Tail): void => {
  if (tail.places.size < tail.pruneAt) return
  const least = leastOf(tail)
  changing(tails, tail, () => {
    for (const [id, revision] of tail.places) if (revision <= least) tail.places.delete(id)
  })
  tail.from = Math.max(tail.from, least + 1)
  tail.pruneAt = Math.max(tails.limits.pruneAt, 2 * tail.places.size)
}

const newTail = (stream: string, after: number, pruneAt: number): Tail => ({
  stream,
  from: after + 1,
  upTo: after,
  places: new Map(),
  pruneAt,
  waiting: new Set(),
  reading: undefined,
  next: undefined,
})

const leastOf = ({ waiting }: Tail): number => {
  let least = Number.POSITIVE_INFINITY
  for (const { after } of waiting) least = Math.min(least, after)
  return least
}
