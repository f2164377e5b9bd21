import { z } from 'zod'
import { priceBookRule } from './prices.ts'
import { creditAmount, instant, label, organizationId, signedCreditAmount, uuid } from './primitives.ts'

/** A re-rate calculates the cost of past calls under other prices, and corrects the difference with adjustments. */

const rerateRunId = z.string().regex(/^rr_[0-9A-HJKMNP-TV-Z]{26}$/)

const count = z.int().nonnegative()

/**
 * Calls with one SKU and rule: their current cost, and their cost under the run's prices (`rerated`). `rule` is null if
 * the calls were refunded or re-rated before.
 */
const difference = z.object({
  sku: z.string(),
  rule: z.string().nullable(),
  calls: count,
  now: signedCreditAmount,
  rerated: signedCreditAmount,
})

/** An organization's own price at the time of the calls, and the revisions at which it was set and withdrawn. */
const override = z.object({
  sku: z.string(),
  amount: creditAmount.nullable(),
  effective_from: instant,
  set_revision: count,
  withdrawn_revision: count.nullable(),
})

/** A refunded or reversed call: its current cost, and its cost under the run's prices (`rerated`). */
const refundedCall = z.object({
  request_id: z.string(),
  given_back: creditAmount,
  now: signedCreditAmount,
  rerated: creditAmount,
})

/**
 * The plan of a run for one ledger, which was read up to `revision`. `given` and `taken` are the totals by which calls
 * become cheaper and more expensive. Two groups of calls are not changed: `unaffordable`, for which the balance was too
 * low, and `refunded`, which were refunded or reversed.
 */
export const rerateLedgerPlannedV1 = z.object({
  run: rerateRunId,
  organization_id: organizationId,
  revision: count,
  digest: z.string(),
  calls: count,
  calls_affected: count,
  given: creditAmount,
  taken: creditAmount,
  differences: z.array(difference).max(1_000),
  balance: signedCreditAmount,
  available: signedCreditAmount,
  uncollected: creditAmount,
  unaffordable: z.object({ calls: count, first: z.array(z.string()).max(20) }),
  overrides: z.array(override).max(1_000),
  refunded: z.object({ calls: count, given_back: creditAmount, first: z.array(refundedCall).max(20) }),
})
export type RerateLedgerPlanned = z.infer<typeof rerateLedgerPlannedV1>

/**
 * The plan is complete. It consists of all earlier events in the stream, which `plan_digest` covers. `book` contains the
 * prices; its `version` is null if they were never published. `signed_by` is the id of the signing key, or `hmac` if the
 * plan was signed with the installation's secret.
 */
export const rerateProposedV1 = z.object({
  run: rerateRunId,
  from: instant,
  to: instant,
  organization_id: organizationId.nullable(),
  book: z.object({
    version: z.int().positive().nullable(),
    effective_from: instant,
    digest: z.string().length(43),
    rules: z.array(priceBookRule).min(1).max(200),
  }),
  reason: label,
  ledgers: count,
  calls: count,
  calls_affected: count,
  given: creditAmount,
  taken: creditAmount,
  plan_digest: z.string().length(43),
  signature: z.object({ signed_by: z.string().max(64), value: z.string().max(200) }),
})
export type RerateProposed = z.infer<typeof rerateProposedV1>

/** The plan with this digest was approved, so the run can be applied. */
export const rerateApprovedV1 = z.object({
  run: rerateRunId,
  plan_digest: z.string().length(43),
  approver: label,
})

/** The run will not be applied to any further ledgers. */
export const rerateAbandonedV1 = z.object({ run: rerateRunId, reason: label })

/**
 * The run has adjusted one ledger, at `revision`. If the balance was too low for all additional charges,
 * `collected_until` contains the revision of the last call that was charged more, and the amount. Later calls were not
 * charged more.
 */
export const rerateLedgerAppliedV1 = z.object({
  run: rerateRunId,
  organization_id: organizationId,
  revision: count,
  adjustment_id: uuid,
  amount: signedCreditAmount,
  uncollected: creditAmount,
  collected_until: z.object({ revision: count, amount: creditAmount }).nullable(),
})

/** The run did not adjust the ledger, because the cost of its calls no longer matches the plan. */
export const rerateLedgerLeftOutV1 = z.object({
  run: rerateRunId,
  organization_id: organizationId,
  reason: label,
})

export const rerateAppliedV1 = z.object({
  run: rerateRunId,
  applied: count,
  left_out: count,
  amount: signedCreditAmount,
  uncollected: creditAmount,
})
