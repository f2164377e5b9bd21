import type { Capability, CapabilityPorts } from '../../call/capability.ts'
import type { AnyCapabilityForm, CapabilityForm } from '../../call/form.ts'
import {
  type Explanation,
  explainOwnCall,
  type OwnBalance,
  type OwnReceipt,
  type OwnUsage,
  ownBalance,
  ownReceipt,
  ownUsage,
} from '../../call/own-account.ts'
import { unavailableIfAway } from '../../call/unavailable.ts'
import {
  type BalanceResult,
  type CallResult,
  callNotFound,
  type ReceiptResult,
  type UsageResult,
} from './contract.ts'
import { accountCalls, document } from './document.ts'
import { createExports } from './export.ts'
import { parseExport, parseRequestId, parseUsage, type UsageInput } from './parse.ts'

/**
 * The queries of partners about their own account: balance, usage, calls, receipts and the ledger. All queries are free. Every key of the
 * organization can make all of them except the export of the ledger.
 */
export const account: Capability = {
  hosts: ['api'],
  document,
  open: (ports) => ({ forms: formsOf(ports) }),
}

type Ports = Pick<CapabilityPorts<unknown>, 'pool' | 'eventLog' | 'ledger' | 'checkpoints' | 'queue'>

const formsOf = (ports: Ports): AnyCapabilityForm[] => [
  balanceForm(ports),
  usageForm(ports),
  callForm(ports),
  receiptForm(ports),
  exportForm(ports),
]

const balanceForm = (ports: Ports): CapabilityForm<null, OwnBalance, BalanceResult> => ({
  ...accountCalls.balance,
  parse: () => ({ input: null }),
  rehearse: 'own',
  gather: (_input, { key, atMs }) => ownBalance(ports, key.organizationId, atMs).catch(unavailableIfAway),
  decide: ({ expiring, ...balance }) => ({
    result: { ...balance, expiring: [...expiring] },
    facts: { kind: 'account', view: 'balance' },
  }),
})

const usageForm = (ports: Ports): CapabilityForm<UsageInput, OwnUsage, UsageResult> => ({
  ...accountCalls.usage,
  parse: parseUsage,
  rehearse: 'own',
  gather: (input, { key, atMs }) =>
    ownUsage(ports, key.organizationId, { ...input, atMs }).catch(unavailableIfAway),
  decide: ({ groups, total, as_of }, { from, to, groupBy }) => ({
    result: { from, to, group_by: groupBy, groups: [...groups], total, as_of },
    facts: { kind: 'account', view: 'usage' },
  }),
})

type CallFindings = { readonly requestId: string; readonly explanation: Explanation | null }

const callForm = (ports: Ports): CapabilityForm<string, CallFindings, CallResult> => ({
  ...accountCalls.call,
  parse: parseRequestId,
  rehearse: 'own',
  gather: async (requestId, { key }) => ({
    requestId,
    explanation: await explainOwnCall(ports, key.organizationId, requestId).catch(unavailableIfAway),
  }),
  decide: ({ requestId, explanation }) =>
    explanation === null
      ? { refusal: callNotFound(requestId) }
      : { result: explanation, facts: { kind: 'account', view: 'call' } },
})

/** A requested checkpoint is made within a minute. */
const receiptRetrySeconds = 30

type ReceiptFindings = { readonly requestId: string; readonly found: OwnReceipt | null }

const receiptForm = (ports: Ports): CapabilityForm<string, ReceiptFindings, ReceiptResult> => ({
  ...accountCalls.receipt,
  parse: parseRequestId,
  rehearse: 'own',
  gather: async (requestId, { key }) => ({
    requestId,
    found: await ownReceipt(ports, key.organizationId, requestId).catch(unavailableIfAway),
  }),
  decide: ({ requestId, found }) => {
    if (found === null) return { refusal: callNotFound(requestId) }
    const facts = { kind: 'account', view: 'receipt' } as const
    return found.receipt === null
      ? {
          result: { request_id: requestId, covered: false },
          facts,
          retryAfterSeconds: receiptRetrySeconds,
        }
      : { result: { covered: true, ...found.receipt }, facts }
  },
})

const exportForm = ({ eventLog }: Ports) => ({
  ...accountCalls.ledger,
  parse: parseExport,
  rehearse: 'own' as const,
  ...createExports(eventLog),
})
