import { hash } from 'node:crypto'
import type { PriceBookPublished } from '../events/prices.ts'
import { type MicroCredits, parseCredits } from './money.ts'
import { tariff } from './tariff.ts'

export type PricedRule = {
  readonly ruleVersion: number
  readonly sku: string | null
  readonly amount: MicroCredits
}

/** A published price book, in the form that is used to rate calls. */
export type PriceBook = {
  readonly version: number
  readonly effectiveFromMs: number
  readonly rules: ReadonlyMap<string, PricedRule>
  /** The `bookDigest` of the whole book. */
  readonly digest: string
}

/**
 * The base64url SHA-256 of a book's content, by which a charge identifies its book. It is calculated over the JSON text
 * `[version,"effective_from",[["rule",rule_version,"sku" or null,"amount"],…]]`, in the order of the rules.
 */
const bookDigest = ({
  version,
  effective_from,
  rules,
}: Pick<PriceBookPublished, 'version' | 'effective_from' | 'rules'>): string =>
  hash(
    'sha256',
    JSON.stringify([
      version,
      effective_from,
      rules.map(({ rule, rule_version, sku, amount }) => [rule, rule_version, sku, amount]),
    ]),
    'base64url',
  )

type BookText = Pick<PriceBookPublished, 'version' | 'effective_from' | 'rules'>

/** Converts a stored book without checking it. Its content can differ from the published content. */
export const priceBookOf = (published: BookText): PriceBook => ({
  version: published.version,
  effectiveFromMs: Date.parse(published.effective_from),
  rules: new Map(
    published.rules.map(({ rule, rule_version, sku, amount }) => [
      rule,
      { ruleVersion: rule_version, sku, amount: parseCredits(amount) },
    ]),
  ),
  digest: bookDigest(published),
})

/** Like `priceBookOf`, but for pricing calls. Throws if the book has no valid date, or does not match its digest. */
export const soundPriceBookOf = (published: BookText & Pick<PriceBookPublished, 'digest'>): PriceBook => {
  const book = priceBookOf(published)
  if (Number.isNaN(book.effectiveFromMs))
    throw new Error(
      `price book ${book.version} takes effect at ${published.effective_from}, which is not a valid date`,
    )
  if (published.digest !== null && published.digest !== book.digest)
    throw new Error(
      `price book ${book.version} was changed after it was published: its content does not match its digest`,
    )
  return book
}

/**
 * The price book in force at an instant: the one that took effect last. If several took effect at the same time, it is
 * the one with the highest version. Undefined before the first book.
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

/** The price book of a new installation. Operators publish their own prices, or override them for an organization (Spec §4.1). */
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
  proposal: null,
  // The book is part of the release, so it needs no digest.
  digest: null,
} satisfies PriceBookPublished
