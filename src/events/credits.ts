import { z } from 'zod'
import { creditAmount, instant, label, organizationId, signedCreditAmount, uuid } from './primitives.ts'

/** The ledger is opened. `overdraft_limit` is how far below zero the balance may go (decision 13). */
export const organizationRegisteredV1 = z.object({
  organization_id: organizationId,
  name: label,
  overdraft_limit: creditAmount,
})

/**
 * A lot of credits. Lots are drawn by priority (lower first), then earliest expiry, then age.
 * `overdraft_repaid` is the part that paid an overdraft at once and never became drawable.
 */
export const creditGrantedV1 = z.object({
  grant_id: uuid,
  amount: creditAmount,
  priority: z.int().min(0).max(1000),
  expires_at: instant.nullable(),
  reason: label,
  overdraft_repaid: creditAmount,
})
export type CreditGranted = z.infer<typeof creditGrantedV1>

/** What was left of a lot when it expired. */
export const creditExpiredV1 = z.object({ grant_id: uuid, amount: creditAmount })

/** This organization pays `amount` for a SKU from `effective_from` on; null returns it to the price book. */
export const priceOverrideSetV1 = z.object({
  sku: z.string().min(1).max(64),
  amount: creditAmount.nullable(),
  effective_from: instant,
})
export type PriceOverrideSet = z.infer<typeof priceOverrideSetV1>

const allocation = z.object({ grant_id: uuid, amount: creditAmount })
export type Allocation = z.infer<typeof allocation>

const chargeLine = z.object({
  sku: z.string(),
  amount: creditAmount,
  rule: z.string(),
  rule_version: z.int().positive(),
})

/**
 * Credits taken for the fact right before it. `allocations` say which lots paid; what they do not cover is
 * overdraft. `rule` is the rule of the first line.
 */
export const creditChargedV1 = z.object({
  charge_id: uuid,
  sku: z.string(),
  amount: creditAmount,
  lines: z.array(chargeLine).min(1),
  rule: z.string(),
  rule_version: z.int().positive(),
  price_book_version: z.int().positive(),
  allocations: z.array(allocation),
})

/**
 * A correction of an earlier charge, or of the balance. A positive amount first repays overdraft
 * (`overdraft_repaid`), the rest becomes a lot of its own that never expires and is drawn first. A negative amount is
 * taken from the lots named; what they do not cover is overdraft.
 */
export const creditAdjustedV1 = z.object({
  adjustment_id: uuid,
  adjusts: uuid.nullable(),
  amount: signedCreditAmount,
  reason: label,
  rerate_run: z.string().nullable(),
  allocations: z.array(allocation),
  overdraft_repaid: creditAmount,
})
