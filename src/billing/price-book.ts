import type { PriceBookPublished } from '../events/prices.ts'
import { type MicroCredits, parseCredits } from './money.ts'

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
  rules: [
    { rule: 'email_validation.valid', rule_version: 1, sku: 'email_validation', amount: '1' },
    { rule: 'email_validation.company_found', rule_version: 1, sku: 'company_data', amount: '2' },
    { rule: 'email_validation.invalid', rule_version: 1, sku: null, amount: '0' },
    { rule: 'email_validation.risky', rule_version: 1, sku: null, amount: '0' },
    { rule: 'email_validation.unknown', rule_version: 1, sku: null, amount: '0' },
    { rule: 'ip_lookup.located', rule_version: 1, sku: 'ip_lookup', amount: '1' },
    { rule: 'ip_lookup.not_located', rule_version: 1, sku: null, amount: '0' },
    { rule: 'profile.cached', rule_version: 1, sku: 'profile_cached', amount: '2' },
    { rule: 'profile.fresh', rule_version: 1, sku: 'profile_fresh', amount: '5' },
    { rule: 'profile.deleted', rule_version: 1, sku: null, amount: '0' },
    { rule: 'pixel', rule_version: 1, sku: null, amount: '0' },
    { rule: 'whoami', rule_version: 1, sku: null, amount: '0' },
    { rule: 'replay', rule_version: 1, sku: null, amount: '0' },
    { rule: 'refusal', rule_version: 1, sku: null, amount: '0' },
  ],
  approver: 'default',
} satisfies PriceBookPublished
