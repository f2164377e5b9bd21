import type { CallFacts } from '../events/calls.ts'
import type { MicroCredits } from './money.ts'
import type { PriceBook } from './price-book.ts'
import { NoRule, type PriceOverride, rate } from './tariff.ts'

/** The total cost of recorded calls under another price book. */
export type Cost = {
  calls: number
  /** Calls that would have been refused, because the book has no rule for them. */
  unrated: number
  total: MicroCredits
  readonly skus: Map<string, { lines: number; amount: MicroCredits }>
}

export const noCost = (): Cost => ({ calls: 0, unrated: 0, total: 0n, skus: new Map() })

/** Adds the cost of a call's facts, rated as in a live call. */
export const addCall = (cost: Cost, facts: CallFacts, book: PriceBook, override: PriceOverride): void => {
  cost.calls++
  try {
    const { total, lines } = rate(facts, book, override)
    cost.total += total
    for (const { sku, amount } of lines) addLines(cost, sku, { lines: 1, amount })
  } catch (error) {
    if (!(error instanceof NoRule)) throw error
    cost.unrated++
  }
}

export const addCost = (sum: Cost, cost: Cost): void => {
  sum.calls += cost.calls
  sum.unrated += cost.unrated
  sum.total += cost.total
  for (const [sku, part] of cost.skus) addLines(sum, sku, part)
}

const addLines = (
  { skus }: Cost,
  sku: string,
  { lines, amount }: { lines: number; amount: MicroCredits },
): void => {
  const known = skus.get(sku)
  if (known === undefined) skus.set(sku, { lines, amount })
  else {
    known.lines += lines
    known.amount += amount
  }
}
