import { z } from 'zod'
import { usageGroups } from '../../../projections/usage.ts'
import type { Refusal } from '../../call/errors.ts'
import { callFacts, callOutcome } from '../../events/calls.ts'
import { capability } from '../../events/capabilities.ts'
import { creditAdjustedV1 } from '../../events/credits.ts'
import {
  creditAmount,
  instant,
  organizationId,
  signedCreditAmount,
  traceId,
  uuid,
} from '../../events/primitives.ts'

/** The wire format of a partner's own account queries. */

const position = z.string().regex(/^\d+$/)

export const balanceResult = z.object({
  balance: signedCreditAmount,
  available: signedCreditAmount,
  overdraft_limit: creditAmount,
  threshold: creditAmount.nullable(),
  expiring: z.array(z.object({ grant_id: uuid, remaining: creditAmount, expires_at: instant })),
  as_of: z.object({ revision: z.int(), position, recorded_at: instant.nullable() }),
})
export type BalanceResult = z.infer<typeof balanceResult>

const figures = {
  calls: z.int(),
  answered: z.int(),
  refused: z.int(),
  failed: z.int(),
  rate_limited: z.int(),
  charged: creditAmount,
}

export const usageResult = z.object({
  from: z.iso.date(),
  to: z.iso.date(),
  group_by: z.enum(usageGroups),
  groups: z.array(z.object({ name: z.string(), ...figures })),
  total: z.object(figures),
  as_of: z.object({ position, at: instant }),
})
export type UsageResult = z.infer<typeof usageResult>

const rule = { rule: z.string(), rule_version: z.int(), because: z.string() }
const event = z.object({
  type: z.string(),
  event_id: uuid,
  revision: z.int(),
  position,
  recorded_at: instant,
  digest: z.string(),
})

export const callResult = z.object({
  request_id: z.string(),
  organization_id: organizationId,
  key_id: z.string(),
  at: instant,
  capability,
  outcome: callOutcome,
  code: z.string().nullable(),
  facts: callFacts,
  repeats: z.string().nullable(),
  trace_id: traceId.nullable(),
  replays: z.array(z.object({ request_id: z.string().nullable(), at: instant })).readonly(),
  cost: z.object({
    charged: creditAmount,
    now: signedCreditAmount,
    charge_id: uuid.nullable(),
    free_by: z.object(rule).nullable(),
    lines: z
      .array(
        z.object({
          ...rule,
          sku: z.string(),
          amount: creditAmount,
          book_amount: creditAmount.nullable(),
          override: z
            .object({
              override_id: uuid,
              amount: creditAmount.nullable(),
              effective_from: instant,
              reason: z.string().nullable(),
              revision: z.int(),
            })
            .nullable(),
        }),
      )
      .readonly(),
    price_book: z.object({ version: z.int(), digest: z.string() }).nullable(),
  }),
  lots: z
    .array(
      z.object({
        grant_id: uuid,
        amount: creditAmount,
        opened: z
          .object({
            by: z.enum(['grant', 'adjustment']),
            at: instant,
            amount: signedCreditAmount,
            reason: z.string(),
            reference: z.string().nullable(),
            priority: z.int(),
            expires_at: instant.nullable(),
            revision: z.int(),
          })
          .nullable(),
      }),
    )
    .readonly(),
  overdraft: creditAmount,
  balance: z.object({ before: signedCreditAmount, after: signedCreditAmount }),
  adjustments: z
    .array(
      z.object({
        adjustment_id: uuid,
        kind: creditAdjustedV1.shape.kind,
        amount: signedCreditAmount,
        at: instant,
        reason: z.string(),
        rerate_run: z.string().nullable(),
        event: event.nullable(),
      }),
    )
    .readonly(),
  events: z.array(event).readonly(),
  checkpoint: z.object({ size: z.int(), root: z.string(), at: instant }).nullable(),
  as_of: z.object({ revision: z.int(), position, recorded_at: instant }),
})
export type CallResult = z.infer<typeof callResult>

export const receiptResult = z.discriminatedUnion('covered', [
  z.object({ covered: z.literal(false), request_id: z.string() }),
  z.object({
    covered: z.literal(true),
    request_id: z.string(),
    verifier_key: z.string(),
    events: z
      .array(
        z.object({
          stream: z.string(),
          revision: z.int(),
          event_id: uuid,
          type: z.string(),
          metadata: z.string(),
          data: z.string(),
          previous_digest: z.string(),
          proof: z.string(),
        }),
      )
      .readonly(),
  }),
])
export type ReceiptResult = z.infer<typeof receiptResult>

/** The answer does not reveal whether the call belongs to another organization or does not exist. */
export const callNotFound = (requestId: string): Refusal => ({
  code: 'CALL_001',
  message: `There is no recorded call with the request id ${requestId}. Calls without a valid key are not recorded; calls refused by a rate limit, and refusals beyond the first 60 in a minute, are recorded only as counts.`,
  details: { request_id: requestId },
})
