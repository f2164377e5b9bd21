import type { MicroCredits } from '../billing/money.ts'
import type { PriceBook } from '../billing/price-book.ts'
import type { CallFacts } from '../events/calls.ts'
import { type Account, availableOf, balanceOf } from './account.ts'
import type { Affordability } from './command.ts'
import { affordabilityOf, ratingOf } from './decide.ts'

/** Account figures for checks before a call is recorded. Pure. */

export type FiguresQuestion = {
  readonly atMs: number
  /** If true, the current account is read from the log. Otherwise, the account in memory is used. */
  readonly fresh?: boolean
  /** Requests the cost of these facts, and whether the balance covers it and `held`. */
  readonly cost?: { readonly facts: CallFacts; readonly book: PriceBook; readonly held?: MicroCredits }
}

export type Figures = {
  readonly revision: number
  readonly balance: MicroCredits
  /** The amount that can be charged, minus the reservations of calls in progress. Can be negative. */
  readonly available: MicroCredits
  /** Null if `cost` was not requested. */
  readonly cost: { readonly required: MicroCredits; readonly affordability: Affordability } | null
}

export const figuresOf = (
  account: Account,
  { atMs, cost }: FiguresQuestion,
  held: MicroCredits,
): Figures => ({
  revision: account.revision,
  balance: balanceOf(account, atMs),
  available: availableOf(account, atMs) - held,
  cost:
    cost === undefined
      ? null
      : {
          required: ratingOf(account, cost.facts, cost.book, atMs).total,
          affordability: affordabilityOf(account, cost.facts, { ...cost, atMs }),
        },
})
