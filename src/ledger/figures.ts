import type { MicroCredits } from '../billing/money.ts'
import type { PriceBook } from '../billing/price-book.ts'
import type { CallFacts } from '../events/calls.ts'
import { type Account, availableOf, balanceOf } from './account.ts'
import type { Affordability } from './command.ts'
import { affordabilityOf, ratingOf } from './decide.ts'

/** Account figures for checks before a call is recorded. Pure. */

export type FiguresQuestion = {
  readonly atMs: number
  /** Of the ledger as the log has it now. Otherwise of the account as it was last seen, which costs no read. */
  readonly fresh?: boolean
  /** The cost of such facts, and whether the balance pays that in addition to `held`. */
  readonly cost?: { readonly facts: CallFacts; readonly book: PriceBook; readonly held?: MicroCredits }
}

export type Figures = {
  readonly revision: number
  readonly balance: MicroCredits
  /** The amount that can be charged in addition to what calls in progress hold. May be negative. */
  readonly available: MicroCredits
  /** Null where it was not asked. */
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
