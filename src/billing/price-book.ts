import type { PriceBookPublished } from '../events/prices.ts'
import { type MicroCredits, parseCredits } from './money.ts'
import { tariff } from './tariff.ts'

/** What one tariff rule yields under a price book. */
export type PricedRule = {
  readonly ruleVersion: number
  readonly sku: string | null
  readonly amount: MicroCredits
}

/** A published price book, ready to rate with. */
export type PriceBook = {
  readonly version: number
  readonly effectiveFromMs: number
  readonly rules: ReadonlyMap<string, PricedRule>
}

export const priceBookOf = (published: PriceBookPublished): PriceBook => ({
  version: published.version,
  effectiveFromMs: Date.parse(published.effective_from),
  rules: new Map(
    published.rules.map(({ rule, rule_version, sku, amount }) => [
      rule,
      { ruleVersion: rule_version, sku, amount: parseCredits(amount) },
    ]),
  ),
})

/**
 * The price book in force at an instant: of those effective by then, the one effective last; of several effective at
 * the same instant, the highest version. Undefined before the first.
 */
export const priceBookAt = (books: readonly PriceBook[], atMs: number): PriceBook | undefined => {
  let best: PriceBook | undefined
  for (const book of books) {
    if (book.effectiveFromMs > atMs) continue
    if (
      best === undefined ||
      book.effectiveFromMs > best.effectiveFromMs ||
      (book.effectiveFromMs === best.effectiveFromMs && book.version > best.version)
    )
      best = book
  }
  return best
}

/**
 * The price book a new installation starts with, published as an event by the migration of an empty log. Prices are
 * custom (Spec §4.1): operators publish their own or override them per organization.
 */
export const defaultPriceBook = {
  version: 1,
  effective_from: '2020-01-01T00:00:00.000Z',
  rules: Object.values(tariff).flatMap((rules) =>
    rules.map(({ id, versions, startPrice }) => ({
      rule: id,
      rule_version: versions.length,
      sku: startPrice?.sku ?? null,
      amount: startPrice?.amount ?? '0',
    })),
  ),
  approver: 'default',
} satisfies PriceBookPublished
