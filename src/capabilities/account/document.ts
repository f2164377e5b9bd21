import { z } from 'zod'
import { usageGroups } from '../../../projections/usage.ts'
import type { CapabilityDocument, DescribedCall } from '../../call/form.ts'
import { balanceResult, callResult, receiptResult, usageResult } from './contract.ts'
import examples from './examples.json' with { type: 'json' }

const requestId = z.string().describe('The `request_id` of a call by your organization')

const look = { capability: 'account', permission: null } as const

/** The five queries by name. All are free. */
export const accountCalls = {
  balance: {
    ...look,
    method: 'GET',
    path: '/v1/balance',
    document: {
      operationId: 'getBalance',
      summary: 'Get the balance',
      description: 'Returns the balance, the available part of it, and the next expiries. Free.',
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
      summary: 'Get the usage over a range of days',
      description:
        'Returns calls and credits by day, capability, key or rule, for at most 400 days. Days are in UTC. Free.',
      request: z.object({
        from: z.iso.date().describe('The first day'),
        to: z.iso.date().describe('The last day'),
        group_by: z
          .enum(usageGroups)
          .optional()
          .describe(
            'Default: day. Calls that a rate limit refused have the capability "any" and no rule, so their `name` is empty if you group by rule',
          ),
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
      summary: 'Explain the cost of a call',
      description:
        'Returns the facts of a call, the rules and prices that applied, the lots that paid for it, and later corrections. Free.',
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
      summary: 'Get a receipt that can be verified offline',
      description:
        'Returns the events of a call as they were recorded, with the proof that a signed checkpoint covers them. ' +
        'The answer is 202 until there is such a checkpoint, which is made within a minute. Free.',
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
      summary: 'Export the ledger as it was recorded',
      description: 'Returns one event per line. Free.',
      request: z.object({
        from_revision: z
          .string()
          .regex(/^[0-9]{1,16}$/)
          .optional()
          .describe('The first revision to export. Default: 0'),
        max: z
          .string()
          .regex(/^[0-9]{1,5}$/)
          .optional()
          .describe('The number of events, at most 10000. Default: 10000'),
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
