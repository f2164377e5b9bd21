import { z } from 'zod'
import { usageGroups } from '../../../projections/usage.ts'
import type { Refusal } from '../../call/errors.ts'
import type { CapabilityDocument, DescribedCall } from '../../call/form.ts'
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
import examples from './examples.json' with { type: 'json' }

/** The wire of a partner's own account queries. */

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
  /** 202: no checkpoint covers the call yet. */
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

/** Of another organization, or of none: the answer does not reveal which. */
export const callNotFound = (requestId: string): Refusal => ({
  code: 'CALL_001',
  message: `There is no recorded call with the request id ${requestId}. Calls without a valid key are not recorded; calls refused by a rate limit, and refusals beyond the first 60 of a minute, are recorded as counts.`,
  details: { request_id: requestId },
})

/** What people read about a partner's own account. */

const requestId = z.string().describe('The `request_id` of an answer of this organization')

const look = { capability: 'account', permission: null } as const

/** The five queries, by name. All free. */
export const accountCalls = {
  balance: {
    ...look,
    method: 'GET',
    path: '/v1/balance',
    document: {
      operationId: 'getBalance',
      summary: 'The balance',
      description: 'What is left, what of it is available, and what expires when. Free.',
      request: null,
      result: balanceResult,
      codes: [],
    },
  },
  usage: {
    ...look,
    method: 'GET',
    path: '/v1/usage',
    document: {
      operationId: 'getUsage',
      summary: 'Usage of a span of days',
      description: 'Calls and credits by day, capability or key. Days are UTC; at most 400 of them. Free.',
      request: z.object({
        from: z.iso.date().describe('The first day'),
        to: z.iso.date().describe('The last day'),
        group_by: z.enum(usageGroups).optional().describe('Default: day'),
      }),
      result: usageResult,
      codes: ['REQ_002', 'REQ_003'],
    },
  },
  call: {
    ...look,
    method: 'GET',
    path: '/v1/calls/:request_id',
    document: {
      operationId: 'explainCall',
      summary: 'Why a call cost what it did',
      description:
        'Its facts, the rules and prices that applied, the lots it was taken from, and what was corrected since. Free.',
      request: z.object({ request_id: requestId }),
      result: callResult,
      codes: ['REQ_003', 'CALL_001'],
    },
  },
  receipt: {
    ...look,
    method: 'GET',
    path: '/v1/calls/:request_id/receipt',
    document: {
      operationId: 'getReceipt',
      summary: 'A receipt that can be verified offline',
      description:
        'The events of a call as they were recorded, with the proof that a signed checkpoint covers them. ' +
        '202 while none does; one is made within a minute. Free.',
      request: z.object({ request_id: requestId }),
      result: receiptResult.options[1],
      accepted: receiptResult.options[0],
      codes: ['REQ_003', 'CALL_001'],
    },
  },
  ledger: {
    capability: 'ledger_export',
    permission: 'ledger_read',
    method: 'GET',
    path: '/v1/ledger/export',
    document: {
      operationId: 'exportLedger',
      summary: 'The whole ledger, as it was recorded',
      description: 'One event a line. Free.',
      request: z.object({
        from_revision: z
          .string()
          .regex(/^[0-9]{1,16}$/)
          .optional()
          .describe('Go on from here. Default: 0'),
        max: z
          .string()
          .regex(/^[0-9]{1,5}$/)
          .optional()
          .describe('Lines, at most 10000, which is the default'),
      }),
      result: z.looseObject({}),
      streams: 'application/jsonl',
      codes: ['REQ_003'],
    },
  },
} as const satisfies Record<string, DescribedCall>

export const document: CapabilityDocument = {
  tag: 'account',
  about: 'Your own account: balance, usage, calls, receipts and the ledger.',
  calls: Object.values(accountCalls),
  examples,
}
