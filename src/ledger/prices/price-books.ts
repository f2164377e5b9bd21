import type { Logger } from 'pino'
import { type PriceBook, priceBookAt, soundPriceBookOf } from '../../billing/price-book.ts'
import { evolveSoundPrices, noPrices, type Prices, standingBooks } from '../../billing/prices.ts'
import { type Following, follow } from '../../event-log/follow.ts'
import { type EventLog, type RecordedEvent, Unavailable } from '../../event-log/port.ts'
import type { DecodedEvent } from '../../event-log/stored-event.ts'
import { priceBookStream } from '../../events/streams.ts'
import { readPrices } from './price-stream.ts'

/** Every price book that was published and not withdrawn, in memory, fed by the event log. */
export type PriceBooks = {
  /**
   * The book in force at an instant. Throws when none is: an installation without a price book cannot charge; and
   * `Unavailable` from when a book that cannot be read was published.
   */
  at(atMs: number): PriceBook
  readonly caughtUp: Promise<void>
  /** Why new books may go unnoticed, or why a published one cannot be read; null while all is well. */
  failure(): Error | null
  /** 1 if a published book cannot be read; then nothing is priced any more. Otherwise 0. */
  doubtful(): number
  stop(): Promise<void>
}

/** Price books are few: all of them are read, and what is published later is followed. */
export const openPriceBooks = ({ eventLog, logger }: { eventLog: EventLog; logger: Logger }): PriceBooks => {
  let prices: Prices = noPrices
  let books: readonly PriceBook[] = []
  let current: PriceBook | undefined
  let validUntilMs = Number.NEGATIVE_INFINITY
  let following: Following | undefined
  let unreadable: Error | null = null

  const know = (known: Prices): void => {
    // Throws for a book that does not match its digest: then nothing changes here, and it cannot be read.
    books = standingBooks(known).map(soundPriceBookOf)
    prices = known
    validUntilMs = Number.NEGATIVE_INFINITY
  }

  const apply = (event: DecodedEvent): void => {
    if (event.recorded.stream === priceBookStream) know(evolveSoundPrices(prices, event))
  }

  /** It is unknown from when on which prices hold: a call charged by the old ones may be charged wrongly. */
  const refuse = ({ stream, revision }: RecordedEvent): void => {
    // The stream of other software on a shared log: the subscription follows all streams whose names begin like this one.
    if (stream !== priceBookStream) return
    unreadable = new Unavailable(`${stream} cannot be read at revision ${revision}; replace this release`)
  }

  const open = async (): Promise<Following> => {
    // Asked before the stream is read: a book published in between is met twice, never missed.
    const after = await eventLog.head()
    know((await readPrices(eventLog)).prices)
    following = follow({ eventLog, after, prefixes: [priceBookStream], logger, apply, unreadable: refuse })
    return following
  }
  const opening = open()
  const caughtUp = opening.then((opened) => opened.caughtUp)
  // There may be no waiter when the log fails before.
  caughtUp.catch(() => undefined)

  return {
    at: (atMs) => {
      if (unreadable !== null) throw unreadable
      // The book in force changes a few times a year and is asked for on every call.
      if (current !== undefined && atMs < validUntilMs && atMs >= current.effectiveFromMs) return current
      const book = priceBookAt(books, atMs)
      if (book === undefined)
        throw new Error(
          'no price book is in force; propose and approve one with "price propose" and "price approve"',
        )
      current = book
      validUntilMs = Math.min(
        Number.POSITIVE_INFINITY,
        ...books.map(({ effectiveFromMs }) => effectiveFromMs).filter((from) => from > atMs),
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
