import { z } from 'zod'
import { usageGroups } from '../../../projections/usage.ts'
import type { CapabilityDocument, DescribedCall } from '../../call/form.ts'
import { balanceResult, callResult, receiptResult, usageResult } from './contract.ts'
import examples from './examples.json' with { type: 'json' }

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
      description: 'The balance, the available part of it, and the next expiries. Free.',
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
      summary: 'Usage over a range of days',
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
        '202 until then; a checkpoint is made within a minute. Free.',
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
