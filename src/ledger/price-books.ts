import type { Logger } from 'pino'
import { type PriceBook, priceBookAt, priceBookOf } from '../billing/price-book.ts'
import { follow } from '../event-log/follow.ts'
import { type EventLog, logStart } from '../event-log/port.ts'

/** Every published price book, in memory, fed by the event log. */
export type PriceBooks = {
  /** The book in force at an instant. Throws when none is: an installation without a price book cannot charge. */
  at(atMs: number): PriceBook
  readonly caughtUp: Promise<void>
  stop(): Promise<void>
}

/** Price books are few and short: they are read from the log's beginning. */
export const openPriceBooks = ({ eventLog, logger }: { eventLog: EventLog; logger: Logger }): PriceBooks => {
  const books: PriceBook[] = []
  let current: PriceBook | undefined
  let validUntilMs = Number.NEGATIVE_INFINITY
  const { caughtUp, stop } = follow({
    eventLog,
    after: logStart,
    prefixes: ['pricebook'],
    logger,
    apply: (event) => {
      if (event.type !== 'PriceBookPublished') return
      books.push(priceBookOf(event.data))
      validUntilMs = Number.NEGATIVE_INFINITY
    },
  })
  return {
    at: (atMs) => {
      // The book in force changes a few times a year and is asked for on every call.
      if (current !== undefined && atMs < validUntilMs && atMs >= current.effectiveFromMs) return current
      const book = priceBookAt(books, atMs)
      if (book === undefined) throw new Error('no price book is in force; publish one with "price publish"')
      current = book
      validUntilMs = Math.min(
        Number.POSITIVE_INFINITY,
        ...books.map(({ effectiveFromMs }) => effectiveFromMs).filter((from) => from > atMs),
      )
      return book
    },
    caughtUp,
    stop,
  }
}
