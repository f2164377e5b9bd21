import { LRUCache } from 'lru-cache'
import { type EventLog, type NewEvent, type RecordedEvent, Unavailable } from '../../event-log/port.ts'
import { readIfAny } from '../../event-log/read-stream.ts'
import { ledgerStream } from '../../events/streams.ts'

/**
 * Finds calls with an Idempotency-Key in a ledger. Older calls are in a projection. For later calls, the revisions of the events that this
 * process has read or appended are kept in memory, so that each event is read only once.
 */
export type KeyedEvents = {
  /** The event log for ledgers, which notes all events that are read or appended with it. */
  readonly eventLog: EventLog
  /**
   * Returns the revisions of these events that are after `after`. `upTo` is the revision up to which the ledger was searched, which is at
   * least its last revision at the time of the call.
   */
  find(
    organizationId: string,
    ids: readonly string[],
    after: number,
  ): Promise<{ places: Map<string, number>; upTo: number }>
}

/** The part of a ledger in memory: the revisions of all calls with Idempotency-Keys from `from` to `upTo`. */
type Tail = {
  readonly stream: string
  from: number
  upTo: number
  readonly places: Map<string, number>
  /** If there are this many places, those that the projection already contains are removed. */
  pruneAt: number
  /** The waiting callers. Each needs only the places after its `after`. */
  readonly waiting: Set<{ readonly after: number }>
  reading: Promise<void> | undefined
  /** The next read, which starts when the current one ends. */
  next: Promise<void> | undefined
}

export const keyedEventsLimits = {
  pageMax: 1_000,
  /** For all ledgers together. A place takes about 100 bytes. The limit is reached only if the projector is down. */
  placesMax: 500_000,
  ledgersMax: 10_000,
  pruneAt: 4_096,
}

/** Searching the text is much faster than parsing it. It does no harm if other events match. */
const isKeyed = ({ type, data }: Pick<NewEvent, 'type' | 'data'>): boolean =>
  type === 'KeyUsed' && data.includes('"idempotent"')

export const createKeyedEvents = (eventLog: EventLog, limits = keyedEventsLimits): KeyedEvents => {
  const byStream = new LRUCache<string, Tail>({
    max: limits.ledgersMax,
    maxSize: limits.placesMax,
    sizeCalculation: ({ places }) => places.size + 1,
  })
  const tails: Tails = { eventLog, limits, byStream }
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
  readonly byStream: LRUCache<string, Tail>
}

const tailOf = ({ byStream, limits }: Tails, stream: string, after: number): Tail => {
  const known = byStream.get(stream)
  if (known !== undefined) return known
  const tail = newTail(stream, after, limits.pruneAt)
  byStream.set(stream, tail)
  return tail
}

/** Changes a tail, and stores it again in the cache if it is still there, so that its new size is counted. */
const changing = ({ byStream }: Tails, tail: Tail, change: () => void): void => {
  change()
  if (byStream.peek(tail.stream) !== tail) return
  byStream.delete(tail.stream)
  byStream.set(tail.stream, tail)
}

const note = (tails: Tails, tail: Tail, first: number, events: readonly Noted[]): void => {
  // Events after a gap are read later. Earlier events are already known.
  if (first > tail.upTo + 1 || first + events.length <= tail.upTo + 1) return
  const added = events.flatMap((event, i): [string, number][] =>
    first + i > tail.upTo && isKeyed(event) ? [[event.id, first + i]] : [],
  )
  // Most events have no Idempotency-Key, and storing the tail again after each append would rebuild the cache's index.
  if (added.length > 0)
    changing(tails, tail, () => {
      for (const [id, revision] of added) tail.places.set(id, revision)
    })
  tail.upTo = first + events.length - 1
}

const readPage = ({ eventLog }: Tails, stream: string, from: number, max: number): Promise<RecordedEvent[]> =>
  readIfAny(eventLog, stream, { from, max })

/** Reads the events between `after` and the start of the tail. */
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
    // Reads the last known event again, to check that the log still contains it.
    const from = Math.max(tail.upTo, 0)
    const page = await readPage(tails, tail.stream, from, pageMax)
    if (page.length === 0 && tail.upTo >= 0)
      throw new Unavailable(`${tail.stream} ends before revision ${tail.upTo}`)
    note(tails, tail, from, page)
    if (page.length < pageMax) return
  }
}

/** Callers that arrive during a read share the next one, because the current read may miss the newest events. */
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
