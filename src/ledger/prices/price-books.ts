import type { Logger } from 'pino'
import { type PriceBook, priceBookAt, soundPriceBookOf } from '../../billing/price-book.ts'
import { evolveSoundPrices, noPrices, type Prices, standingBooks } from '../../billing/prices.ts'
import { type Following, follow } from '../../event-log/follow.ts'
import { type EventLog, type RecordedEvent, Unavailable } from '../../event-log/port.ts'
import type { DecodedEvent } from '../../event-log/stored-event.ts'
import { priceBookStream } from '../../events/streams.ts'
import { readPrices } from './price-stream.ts'

/** All price books that were published and not withdrawn, kept up to date from the event log. */
export type PriceBooks = {
  /** Returns the book in force at an instant. Throws if no book is in force, and throws `Unavailable` if a published book cannot be read. */
  at(atMs: number): PriceBook
  readonly caughtUp: Promise<void>
  /** Returns the reason why this process can miss new books or cannot read a published one, or null. */
  failure(): Error | null
  /** Returns 1 if a published book cannot be read, so that calls cannot be priced, and otherwise 0. */
  doubtful(): number
  stop(): Promise<void>
}

/** Returns a function that finds the book in force. The last result is cached, because every call needs it and it rarely changes. */
export const createInForce = (books: readonly PriceBook[]): ((atMs: number) => PriceBook | undefined) => {
  let current: PriceBook | undefined
  let untilMs = Number.NEGATIVE_INFINITY
  return (atMs) => {
    if (current !== undefined && atMs >= current.effectiveFromMs && atMs < untilMs) return current
    current = priceBookAt(books, atMs)
    untilMs = Math.min(
      Number.POSITIVE_INFINITY,
      ...books.map(({ effectiveFromMs }) => effectiveFromMs).filter((from) => from > atMs),
    )
    return current
  }
}

/** Reads all price books, and then follows the event log for new ones. */
export const openPriceBooks = ({ eventLog, logger }: { eventLog: EventLog; logger: Logger }): PriceBooks => {
  let prices: Prices = noPrices
  let inForce = createInForce([])
  let following: Following | undefined
  let unreadable: Error | null = null

  const know = (known: Prices): void => {
    // If a book does not match its digest, this throws before the known prices are changed.
    inForce = createInForce(standingBooks(known).map(soundPriceBookOf))
    prices = known
  }

  const apply = (event: DecodedEvent): void => {
    if (event.recorded.stream === priceBookStream) know(evolveSoundPrices(prices, event))
  }

  /** If a book cannot be read, the prices in force are unknown, so no more calls are priced. */
  const refuse = ({ stream, revision }: RecordedEvent): void => {
    // The subscription also returns events of other streams whose names begin with the name of this stream.
    if (stream !== priceBookStream) return
    unreadable = new Unavailable(
      `${stream} cannot be read at revision ${revision}; install a release that can read it`,
    )
  }

  const open = async (): Promise<Following> => {
    // The head is read first, so that a book published between the two reads can be read twice, but never missed.
    const after = await eventLog.head()
    know((await readPrices(eventLog)).prices)
    following = follow({ eventLog, after, prefixes: [priceBookStream], logger, apply, unreadable: refuse })
    return following
  }
  const opening = open()
  const caughtUp = opening.then((opened) => opened.caughtUp)
  // The subscription can fail before anyone awaits this promise.
  caughtUp.catch(() => undefined)

  return {
    at: (atMs) => {
      if (unreadable !== null) throw unreadable
      const book = inForce(atMs)
      if (book === undefined)
        throw new Error(
          'no price book is in force; propose one with "price propose", and approve it with "price approve"',
        )
      return book
    },
    caughtUp,
    failure: () => following?.failure() ?? unreadable,
    doubtful: () => (unreadable === null ? 0 : 1),
    stop: async () => {
      await opening.catch(() => undefined)
      await following?.stop()
    },
  }
}
