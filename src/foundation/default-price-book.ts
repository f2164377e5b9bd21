import type { Logger } from 'pino'
import { defaultPriceBook } from '../billing/price-book.ts'
import { nextVersion, publishedAt, standingBooks } from '../billing/prices.ts'
import { neededRules } from '../billing/tariff.ts'
import { appendChained } from '../event-log/append-chained.ts'
import { eventIdOf } from '../event-log/event-id.ts'
import { AppendConflict, type EventLog } from '../event-log/port.ts'
import { encodeEvent } from '../event-log/stored-event.ts'
import type { PriceBookPublished } from '../events/prices.ts'
import { priceBookStream } from '../events/streams.ts'
import { readPricesAsTheyAre } from '../ledger/price-stream.ts'

const isDefault = ({ approver }: PriceBookPublished): boolean => approver === defaultPriceBook.approver

/** The rules of this release that calls need and a book does not name. */
const rulesLackedBy = (book: PriceBookPublished): string[] =>
  neededRules().filter((id) => book.rules.every(({ rule }) => rule !== id))

/**
 * An installation starts with the default price book. One that still has it gets the prices of capabilities this release
 * added, as its next book; prices an operator published are never added to.
 */
export const keepPriceBookComplete = async (eventLog: EventLog, logger: Logger): Promise<void> => {
  const { prices, revision } = await readPricesAsTheyAre(eventLog)
  const books = standingBooks(prices)
  const latest = books.at(-1)
  if (latest !== undefined && !isDefault(latest) && rulesLackedBy(latest).length > 0)
    logger.warn(
      { priceBook: latest.version, from: latest.effective_from, rules: rulesLackedBy(latest) },
      'a price book does not price these rules: calls they are about are refused until a book with them is proposed and approved ("price propose")',
    )
  const current = publishedAt(prices, Date.now())
  if (current !== null && (!isDefault(current) || rulesLackedBy(current).length === 0)) return
  const version = nextVersion(prices)
  // What an earlier default book priced keeps its price; what it did not price could not be called.
  const effective_from = current?.effective_from ?? defaultPriceBook.effective_from
  try {
    await appendChained(eventLog, priceBookStream, revision === -1 ? 'none' : revision, [
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
