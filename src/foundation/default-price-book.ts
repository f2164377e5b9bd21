import type { Logger } from 'pino'
import { defaultPriceBook, priceBookAt, priceBookOf } from '../billing/price-book.ts'
import { knownRules } from '../billing/tariff.ts'
import { appendUntilKnown } from '../event-log/append-until-known.ts'
import { eventIdOf } from '../event-log/event-id.ts'
import { AppendConflict, type EventLog, StreamMissing } from '../event-log/port.ts'
import { decodeEvent, encodeEvent } from '../event-log/stored-event.ts'
import type { PriceBookPublished } from '../events/prices.ts'
import { priceBookStream } from '../events/streams.ts'

const booksMax = 100_000

/** Every price book, oldest first: the one at index n is at revision n of its stream. */
export const publishedBooks = async (eventLog: EventLog): Promise<PriceBookPublished[]> => {
  const events = await eventLog.read(priceBookStream, { max: booksMax }).catch((error: unknown) => {
    if (error instanceof StreamMissing) return []
    throw error
  })
  return events.map(decodeEvent).flatMap(({ type, data }) => (type === 'PriceBookPublished' ? [data] : []))
}

const isDefault = ({ approver }: PriceBookPublished): boolean => approver === defaultPriceBook.approver

/** The rules of this release that a book does not price. */
const rulesLackedBy = (book: PriceBookPublished): string[] =>
  [...knownRules().keys()].filter((id) => book.rules.every(({ rule }) => rule !== id))

/**
 * An installation starts with the default price book. One that still has it gets the prices of capabilities this release
 * added, as its next book; prices an operator published are never added to.
 */
export const keepPriceBookComplete = async (eventLog: EventLog, logger: Logger): Promise<void> => {
  const books = await publishedBooks(eventLog)
  const latest = books.at(-1)
  if (latest !== undefined && !isDefault(latest) && rulesLackedBy(latest).length > 0)
    logger.warn(
      { priceBook: latest.version, from: latest.effective_from, rules: rulesLackedBy(latest) },
      'a price book does not price these rules: calls they are about are refused until "price publish" adds them',
    )
  const inForce = priceBookAt(books.map(priceBookOf), Date.now())
  const current = books.find(({ version }) => version === inForce?.version)
  if (current !== undefined && (!isDefault(current) || rulesLackedBy(current).length === 0)) return
  const version = (latest?.version ?? 0) + 1
  // What an earlier default book priced keeps its price; what it did not price could not be called.
  const effective_from = current?.effective_from ?? defaultPriceBook.effective_from
  try {
    await appendUntilKnown(eventLog, priceBookStream, books.length === 0 ? 'none' : books.length - 1, [
      encodeEvent(
        { type: 'PriceBookPublished', data: { ...defaultPriceBook, version, effective_from } },
        {
          id: eventIdOf(priceBookStream, version === 1 ? 'default' : `default/${version}`, 0),
          actor: 'system',
          effectiveAt: effective_from,
        },
      ),
    ])
  } catch (error) {
    // Another process was first.
    if (!(error instanceof AppendConflict)) throw error
  }
}
