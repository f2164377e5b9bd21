import { z } from 'zod'
import { creditAmount, instant, label, organizationId, signedCreditAmount, uuid } from './primitives.ts'

/** Opens the ledger. `overdraft_limit` is how far below zero the balance can go (decision 13). */
export const organizationRegisteredV1 = z.object({
  organization_id: organizationId,
  name: label,
  overdraft_limit: creditAmount,
})

/**
 * A lot of credits. Lots are drawn by priority (lower first), then expiry (earliest first), then age. `overdraft_repaid`
 * is the part that repaid an overdraft, so it cannot be drawn. `reference` is the operator's own name for the grant, and
 * can be used only once.
 */
export const creditGrantedV1 = z.object({
  grant_id: uuid,
  amount: creditAmount,
  priority: z.int().min(0).max(1000),
  expires_at: instant.nullable(),
  reason: label,
  overdraft_repaid: creditAmount,
  reference: label.nullable(),
})
export type CreditGranted = z.infer<typeof creditGrantedV1>

/** The refunded call. `whole`: the amount was the whole remaining cost of the call when the reference was reserved. */
const refundedCall = z.object({ request_id: z.string().min(1).max(64), whole: z.boolean() })

/**
 * Reserves an organization's reference for one movement of credits, forever. If that movement has been written, it is in
 * the ledger after `ledger_revision`. `priority` is null except for a grant, and `refunds` is null except for a refund.
 */
export const referenceReservedV1 = z.object({
  organization_id: organizationId,
  reference: label,
  movement: z.enum(['grant', 'adjustment', 'refund']),
  amount: signedCreditAmount,
  priority: z.int().min(0).max(1000).nullable(),
  expires_at: instant.nullable(),
  ledger_revision: z.int().nonnegative(),
  refunds: refundedCall.nullable(),
})
export type ReferenceReserved = z.infer<typeof referenceReservedV1>

/** A lot has expired. `amount` is its unused rest. */
export const creditExpiredV1 = z.object({ grant_id: uuid, amount: creditAmount })

/**
 * From `effective_from` on, this organization pays `amount` for a SKU. If `amount` is null, the price book applies
 * again. `override_id` is the event's own id.
 */
export const priceOverrideSetV1 = z.object({
  sku: z.string().min(1).max(64),
  amount: creditAmount.nullable(),
  effective_from: instant,
  override_id: uuid,
  reason: label.nullable(),
})
export type PriceOverrideSet = z.infer<typeof priceOverrideSetV1>

/** The override set at `override_revision` no longer applies. Charges that it priced keep their price. */
export const priceOverrideWithdrawnV1 = z.object({
  override_id: uuid,
  override_revision: z.int().nonnegative(),
  sku: z.string().min(1).max(64),
  reason: label,
})

/** The organization is notified if its balance falls below this amount. Null: it is never notified. */
export const balanceThresholdSetV1 = z.object({ amount: creditAmount.nullable() })

const allocation = z.object({ grant_id: uuid, amount: creditAmount })
export type Allocation = z.infer<typeof allocation>

const chargeLine = z.object({
  sku: z.string(),
  amount: creditAmount,
  rule: z.string(),
  rule_version: z.int().positive(),
})

/**
 * The credits charged for the call in the previous event. `allocations` lists the lots that paid; the rest is overdraft. `rule` is the rule of
 * the first line. `price_book_digest` is the `bookDigest` of the price book.
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
  price_book_digest: z.string().length(43),
})

/** Credits that return to a lot, with the data needed to reopen an empty lot. `revision` and `granted` are from the lot's grant. */
const lotFill = z.object({
  grant_id: uuid,
  amount: creditAmount,
  priority: z.int().min(0).max(1000),
  expires_at: instant.nullable(),
  revision: z.int().nonnegative(),
  granted: creditAmount,
})
export type LotFill = z.infer<typeof lotFill>

/**
 * Corrects an earlier charge, or the balance. A positive amount first repays overdraft (`overdraft_repaid`) and then
 * refills lots (`fills`). The rest becomes a new lot that never expires and is drawn first. A negative amount is taken
 * from the lots in `allocations`; the rest is overdraft.
 *
 * `refund`: an operator returned the cost of a call, or a part of it. `reversal`: the outcome of the call was not known
 * in time. `void`: the rest of a lot was taken back. `rerate`: calls were priced again under other rules. `adjustment`:
 * any other correction. `reference` is the operator's own name for the correction. `charged_at` is the time of the
 * refunded or reversed call, and null for other corrections.
 */
export const creditAdjustedV1 = z.object({
  adjustment_id: uuid,
  adjusts: uuid.nullable(),
  amount: signedCreditAmount,
  reason: label,
  rerate_run: z.string().nullable(),
  allocations: z.array(allocation),
  overdraft_repaid: creditAmount,
  kind: z.enum(['refund', 'reversal', 'adjustment', 'void', 'rerate']),
  fills: z.array(lotFill),
  reference: label.nullable(),
  charged_at: instant.nullable(),
})
export type CreditAdjusted = z.infer<typeof creditAdjustedV1>

/**
 * The statement of a month is final. It contains the events up to `through_revision` with an effective time in that
 * month. Later events with such a time are corrections in a later month. `digest` is the digest of the statement's file.
 * `next` is for reading the next month: its first revision, and the earlier revisions that changed the organization's
 * own prices.
 */
export const monthClosedV1 = z.object({
  month: z.string().regex(/^\d{4}-(0[1-9]|1[0-2])$/),
  through_revision: z.int().nonnegative(),
  totals: z.object({
    opening: signedCreditAmount,
    granted: signedCreditAmount,
    charged: signedCreditAmount,
    adjusted: signedCreditAmount,
    expired: signedCreditAmount,
    closing: signedCreditAmount,
    calls: z.int().nonnegative(),
  }),
  digest: z.string().length(43),
  next: z.object({ revision: z.int().nonnegative(), prices: z.array(z.int().nonnegative()) }),
})
export type MonthClosed = z.infer<typeof monthClosedV1>
