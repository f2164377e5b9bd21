import { type MicroCredits, parseCredits } from '../../billing/money.ts'
import type { PriceBook } from '../../billing/price-book.ts'
import type { CallFacts } from '../../events/calls.ts'
import type { CreditAdjusted } from '../../events/credits.ts'
import type { RerateLedgerPlanned } from '../../events/rerates.ts'
import { type Account, newAccount } from '../account.ts'
import { ratingOf } from '../decide.ts'

/** The change of one call's cost by a re-rate: calculated from the run and the call, never stored. Pure. */

/** A call as re-rates see it. */
export type RatedCall = { readonly revision: number; readonly facts: CallFacts; readonly atMs: number }

/** A run that adjusted a ledger, with everything that determines each call's part of the adjustment. */
export type RunOnLedger = {
  readonly run: string
  readonly fromMs: number
  readonly toMs: number
  readonly book: PriceBook
  /** Calls recorded later than this are not the run's. */
  readonly plannedRevision: number
  readonly overrides: RerateLedgerPlanned['overrides']
  /** Where not all could be collected: the last call that was charged more, and by how much. Null: all of them were. */
  readonly collectedUntil: { readonly revision: number; readonly amount: MicroCredits } | null
}

/** What a call costs, and what was given back of it. */
export type CostSoFar = {
  readonly now: MicroCredits
  /** The sum of its refunds and its reversal. */
  readonly givenBack: MicroCredits
  /** It was reversed, or its refunds add up to its whole cost. */
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
 * What a call costs under a new price: the price less what was given back, and never less than nothing. A call that was given back
 * whole stays free at any price: its Idempotency-Key may have charged another call since.
 */
export const repriced = (
  price: MicroCredits,
  { givenBack, isGivenBackWhole }: Pick<CostSoFar, 'givenBack' | 'isGivenBackWhole'>,
): MicroCredits => (isGivenBackWhole || price < givenBack ? 0n : price - givenBack)

/** What a call costs under the run's prices; null: the run is not about it. */
const costUnder = (
  { fromMs, toMs, book, plannedRevision, overrides }: RunOnLedger,
  { revision, facts, atMs }: RatedCall,
): MicroCredits | null =>
  revision > plannedRevision || atMs < fromMs || atMs >= toMs
    ? null
    : ratingOf(accountWith(overrides, revision), facts, book, atMs).total

/** By how much a call became dearer (below zero: cheaper) by the run. */
export const partOf = (run: RunOnLedger, call: RatedCall, before: CostSoFar): MicroCredits => {
  const price = costUnder(run, call)
  if (price === null) return 0n
  const { collectedUntil } = run
  const part = repriced(price, before) - before.now
  if (part <= 0n || collectedUntil === null || call.revision < collectedUntil.revision) return part
  return call.revision === collectedUntil.revision ? collectedUntil.amount : 0n
}

/** An account that knows an organization's own prices as they were when the event at a revision was decided. */
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

/** Changes to the cost of calls, in ledger order: given back of one charge, or a run over many. */
export type Correction =
  | {
      readonly revision: number
      readonly given: { readonly kind: CreditAdjusted['kind']; readonly amount: MicroCredits }
    }
  | { readonly revision: number; readonly run: RunOnLedger }

/** What a call that was charged `charged` costs after these. */
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
