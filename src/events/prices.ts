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

/** A price book, complete. It prices every call from `effective_from` until a later book's; it is never changed. */
export const priceBookPublishedV1 = z.object({
  version: z.int().positive(),
  effective_from: instant,
  rules: z.array(priceBookRule).min(1).max(200),
  approver: label,
})
export type PriceBookPublished = z.infer<typeof priceBookPublishedV1>
