import { type MicroCredits, parseCredits } from '../../billing/money.ts'
import type { PriceBook } from '../../billing/price-book.ts'
import type { CallFacts } from '../../events/calls.ts'
import type { CreditAdjusted } from '../../events/credits.ts'
import type { RerateLedgerPlanned } from '../../events/rerates.ts'
import { type Account, newAccount } from '../account.ts'
import { ratingOf } from '../decide.ts'

/** Calculates how a re-rating run changes the cost of a call. The result is never stored. Pure. */

/** The data of a call that re-rates need. */
export type RatedCall = { readonly revision: number; readonly facts: CallFacts; readonly atMs: number }

/** The effect of a run on a ledger, from which each call's part of the adjustment can be calculated. */
export type RunOnLedger = {
  readonly run: string
  readonly fromMs: number
  readonly toMs: number
  readonly book: PriceBook
  /** Calls recorded after this revision do not belong to the run. */
  readonly plannedRevision: number
  readonly overrides: RerateLedgerPlanned['overrides']
  /**
   * The last call that was charged more, and the amount, if the whole amount could not be collected. Otherwise null.
   */
  readonly collectedUntil: { readonly revision: number; readonly amount: MicroCredits } | null
}

/** A call's current cost, and the amount that was refunded or reversed. */
export type CostSoFar = {
  readonly now: MicroCredits
  /** The sum of the call's refunds and reversals. */
  readonly givenBack: MicroCredits
  /** True if the call was reversed, or if its refunds add up to its whole cost. */
  readonly isGivenBackWhole: boolean
}

export const costOf = (charged: MicroCredits): CostSoFar => ({
  now: charged,
  givenBack: 0n,
  isGivenBackWhole: false,
})

/** The cost after a refund or a reversal of the call. */
export const givenBackOf = (
  cost: CostSoFar,
  { kind, amount }: { readonly kind: CreditAdjusted['kind']; readonly amount: MicroCredits },
): CostSoFar => {
  const now = cost.now - amount
  return {
    now,
    givenBack: cost.givenBack + amount,
    isGivenBackWhole: cost.isGivenBackWhole || kind === 'reversal' || now <= 0n,
  }
}

/**
 * A call's cost under a new price is the price minus refunds, but never below zero. A fully refunded call stays free, because another call
 * with the same Idempotency-Key may have been charged since.
 */
export const repriced = (
  price: MicroCredits,
  { givenBack, isGivenBackWhole }: Pick<CostSoFar, 'givenBack' | 'isGivenBackWhole'>,
): MicroCredits => (isGivenBackWhole || price < givenBack ? 0n : price - givenBack)

/** A call's price in the run, or null if the run does not include the call. */
const costUnder = (
  { fromMs, toMs, book, plannedRevision, overrides }: RunOnLedger,
  { revision, facts, atMs }: RatedCall,
): MicroCredits | null =>
  revision > plannedRevision || atMs < fromMs || atMs >= toMs
    ? null
    : ratingOf(accountWith(overrides, revision), facts, book, atMs).total

/** The amount by which the run increased a call's cost, or reduced it if it is negative. */
export const partOf = (run: RunOnLedger, call: RatedCall, before: CostSoFar): MicroCredits => {
  const price = costUnder(run, call)
  if (price === null) return 0n
  const { collectedUntil } = run
  const part = repriced(price, before) - before.now
  if (part <= 0n || collectedUntil === null || call.revision < collectedUntil.revision) return part
  return call.revision === collectedUntil.revision ? collectedUntil.amount : 0n
}

/** An account with only the organization's own prices, as they were before the event at a revision. */
const accountWith = (overrides: RunOnLedger['overrides'], revision: number): Account => {
  const account = newAccount('')
  for (const { sku, amount, effective_from, set_revision, withdrawn_revision } of overrides) {
    if (set_revision > revision || (withdrawn_revision !== null && withdrawn_revision < revision)) continue
    const own = account.overrides.get(sku) ?? []
    const price = amount === null ? null : parseCredits(amount)
    account.overrides.set(
      sku,
      [...own, { revision: set_revision, amount: price, fromMs: Date.parse(effective_from) }].sort(
        (a, b) => a.fromMs - b.fromMs,
      ),
    )
  }
  return account
}

/** A change to the cost of calls: the refund or reversal of one charge, or a run over many calls. */
export type Correction =
  | {
      readonly revision: number
      readonly given: { readonly kind: CreditAdjusted['kind']; readonly amount: MicroCredits }
    }
  | { readonly revision: number; readonly run: RunOnLedger }

/** The cost of a call after corrections. `charged` is the original charge. */
export const costAfter = (
  call: RatedCall,
  charged: MicroCredits,
  corrections: readonly Correction[],
): CostSoFar => {
  let cost = costOf(charged)
  for (const correction of corrections)
    cost =
      'given' in correction
        ? givenBackOf(cost, correction.given)
        : { ...cost, now: cost.now + partOf(correction.run, call, cost) }
  return cost
}
