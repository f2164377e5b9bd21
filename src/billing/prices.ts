import { checkEventData, currentVersion, type DomainEvent } from '../events/catalogue.ts'
import type { PriceBookProposed, PriceBookPublished } from '../events/prices.ts'

/** The state of the stream of price books: proposed, published and withdrawn books, by whom and when. Pure. */

/** The actor, the time, and the reason, if given. */
type Act = { readonly by: string; readonly at: string; readonly reason: string | null }

export type PriceProposal = PriceBookProposed & {
  readonly proposed: Act
  /** The version it was published as; null until it is approved. */
  readonly version: number | null
  readonly withdrawn: Act | null
}

export type PublishedBook = PriceBookPublished & {
  readonly published: Act
  readonly withdrawn: Act | null
}

export type Prices = {
  readonly proposals: readonly PriceProposal[]
  /** In the order in which they were published. */
  readonly books: readonly PublishedBook[]
}

export const noPrices: Prices = { proposals: [], books: [] }

/** An event of the stream as it was read. */
type PriceEvent = DomainEvent & {
  readonly metadata: { readonly actor: string; readonly effective_at: string }
}

/** The same as `evolvePrices`, to price calls by. Throws for an event that does not match its type. */
export const evolveSoundPrices = (prices: Prices, event: PriceEvent): Prices => {
  checkEventData(event.type, currentVersion(event.type), event.data)
  return evolvePrices(prices, event)
}

/** A repeated event, or one about a book that does not exist, changes nothing: the first one counts. */
export const evolvePrices = (prices: Prices, event: PriceEvent): Prices => {
  const act = (reason: string | null): Act => ({
    by: event.metadata.actor,
    at: event.metadata.effective_at,
    reason,
  })
  switch (event.type) {
    case 'PriceBookProposed': {
      const { data } = event
      if (prices.proposals.some(({ proposal }) => proposal === data.proposal)) return prices
      const proposal = { ...data, proposed: act(data.reason), version: null, withdrawn: null }
      return { ...prices, proposals: [...prices.proposals, proposal] }
    }
    case 'PriceBookPublished': {
      const { data } = event
      if (prices.books.some(({ version }) => version === data.version)) return prices
      return {
        proposals: prices.proposals.map((one) =>
          one.proposal === data.proposal ? { ...one, version: data.version } : one,
        ),
        books: [...prices.books, { ...data, published: act(null), withdrawn: null }],
      }
    }
    case 'PriceBookWithdrawn': {
      const { version, reason } = event.data
      const withdrawn = act(reason)
      return {
        ...prices,
        books: prices.books.map((book) =>
          // A book that was in force has priced calls, and stays in force.
          book.version === version && book.withdrawn === null && withdrawn.at < book.effective_from
            ? { ...book, withdrawn }
            : book,
        ),
      }
    }
    case 'PriceProposalWithdrawn': {
      const { proposal, reason } = event.data
      return {
        ...prices,
        proposals: prices.proposals.map((one) =>
          one.proposal === proposal && one.withdrawn === null && one.version === null
            ? { ...one, withdrawn: act(reason) }
            : one,
        ),
      }
    }
    default:
      return prices
  }
}

/** The books that price calls now or later: those that were not withdrawn. */
export const standingBooks = ({ books }: Prices): readonly PublishedBook[] =>
  books.filter(({ withdrawn }) => withdrawn === null)

/** The book in force at an instant, as `priceBookAt` returns it; null before the first. */
export const publishedAt = (prices: Prices, atMs: number): PublishedBook | null => {
  const inForce = standingBooks(prices).filter(({ effective_from }) => Date.parse(effective_from) <= atMs)
  return (
    inForce
      .toSorted(
        (a, b) => Date.parse(a.effective_from) - Date.parse(b.effective_from) || a.version - b.version,
      )
      .at(-1) ?? null
  )
}

/** Versions are never given twice, not even that of a book that was withdrawn. */
export const nextVersion = ({ books }: Prices): number =>
  Math.max(0, ...books.map(({ version }) => version)) + 1
