import { z } from 'zod'
import { creditAmount, instant, label } from './primitives.ts'

/**
 * One line of a price book: a version of a tariff rule, and the price of its SKU. Rules that make calls free are also
 * listed, without SKU and amount, so that their versions have a date too.
 */
export const priceBookRule = z.object({
  rule: z.string().min(1).max(64),
  rule_version: z.int().positive(),
  sku: z.string().min(1).max(64).nullable(),
  amount: creditAmount,
})
export type PriceBookRule = z.infer<typeof priceBookRule>

/** A base64url SHA-256. */
const bookDigestText = z.string().regex(/^[A-Za-z0-9_-]{43}$/)

/**
 * A complete price book. It prices every call from `effective_from` until a later book takes effect, and is never
 * changed. `proposal` and `digest` (`bookDigest`) are null for the default book, which was not proposed.
 */
export const priceBookPublishedV1 = z.object({
  version: z.int().positive(),
  effective_from: instant,
  rules: z.array(priceBookRule).min(1).max(200),
  approver: label,
  proposal: z.int().positive().nullable(),
  digest: bookDigestText.nullable(),
})
export type PriceBookPublished = z.infer<typeof priceBookPublishedV1>

/**
 * A proposal for a complete price book. It prices nothing: when it is approved, a book with the same rules and
 * `effective_from` is published. `base` is the book that would otherwise be in force at that instant. `digest` covers
 * only the rules.
 */
export const priceBookProposedV1 = z.object({
  proposal: z.int().positive(),
  effective_from: instant,
  rules: z.array(priceBookRule).min(1).max(200),
  digest: bookDigestText,
  base: z.int().positive().nullable(),
  reason: label.nullable(),
  proposer: label,
})
export type PriceBookProposed = z.infer<typeof priceBookProposedV1>

/** Withdraws a book before it takes effect, so that it never prices a call. A later withdrawal has no effect. */
export const priceBookWithdrawnV1 = z.object({ version: z.int().positive(), reason: label })

/** The proposal can no longer be approved. */
export const priceProposalWithdrawnV1 = z.object({ proposal: z.int().positive(), reason: label })
