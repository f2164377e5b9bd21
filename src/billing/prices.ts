import { checkEventData, currentVersion, type DomainEvent } from '../events/catalogue.ts'
import type { PriceBookProposed, PriceBookPublished } from '../events/prices.ts'

/** The state folded from the stream of price books: which books were proposed, published and withdrawn, by whom and when. */

type Act = { readonly by: string; readonly at: string; readonly reason: string | null }

export type PriceProposal = PriceBookProposed & {
  readonly proposed: Act
  /** The version under which it was published, or null if it is not approved. */
  readonly version: number | null
  readonly withdrawn: Act | null
}

export type PublishedBook = PriceBookPublished & {
  readonly published: Act
  readonly withdrawn: Act | null
}

export type Prices = {
  readonly proposals: readonly PriceProposal[]
  readonly books: readonly PublishedBook[]
  /** For each proposal, the newest version that was published when it was proposed; 0 if there was none. */
  readonly newestBefore: ReadonlyMap<number, number>
}

export const noPrices: Prices = { proposals: [], books: [], newestBefore: new Map() }

type PriceEvent = DomainEvent & {
  readonly metadata: { readonly actor: string; readonly effective_at: string }
}

/** Like `evolvePrices`, but for pricing calls. Throws if an event does not match its schema. */
export const evolveSoundPrices = (prices: Prices, event: PriceEvent): Prices => {
  checkEventData(event.type, currentVersion(event.type), event.data)
  return evolvePrices(prices, event)
}

/** Applies an event. A repeated event, or one about an unknown book, changes nothing. */
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
      return {
        ...prices,
        proposals: [...prices.proposals, proposal],
        newestBefore: new Map([...prices.newestBefore, [data.proposal, nextVersion(prices) - 1]]),
      }
    }
    case 'PriceBookPublished': {
      const { data } = event
      if (prices.books.some(({ version }) => version === data.version)) return prices
      return {
        ...prices,
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
          // A book that was in force has priced calls, so it stays in force.
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

/** The books that were not withdrawn. */
export const standingBooks = ({ books }: Prices): readonly PublishedBook[] =>
  books.filter(({ withdrawn }) => withdrawn === null)

/** The book in force at an instant, chosen as in `priceBookAt`; null before the first book. */
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

/** The version for the next book. Versions are never reused, not even those of withdrawn books. */
export const nextVersion = ({ books }: Prices): number =>
  Math.max(0, ...books.map(({ version }) => version)) + 1
