import { z } from 'zod'
import { creditAmount, instant, label } from './primitives.ts'

/**
 * One line of a price book: which version of which tariff rule applies, and what the SKU it yields costs. A rule
 * that makes calls free is listed too, without SKU and amount, so that its version is dated as well.
 */
export const priceBookRule = z.object({
  rule: z.string().min(1).max(64),
  rule_version: z.int().positive(),
  sku: z.string().min(1).max(64).nullable(),
  amount: creditAmount,
})
export type PriceBookRule = z.infer<typeof priceBookRule>

/** A SHA-256 in base64url. */
const bookDigestText = z.string().regex(/^[A-Za-z0-9_-]{43}$/)

/**
 * A price book, complete. It prices every call from `effective_from` until a later book's; it is never changed. `proposal` and `digest`
 * (`bookDigest`, by which charges name it) are null for the default book, which nobody proposed.
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
 * A price book that someone wants, complete. It prices nothing until it is approved: then a book of the same rules and the same
 * instant is published. `base` is the book that would be in force then without it, `digest` that of the rules alone.
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

/** A book that never came into force: it prices nothing. Counts only where it is dated before the book's instant. */
export const priceBookWithdrawnV1 = z.object({ version: z.int().positive(), reason: label })

/** No one can approve the proposal any more. */
export const priceProposalWithdrawnV1 = z.object({ proposal: z.int().positive(), reason: label })
