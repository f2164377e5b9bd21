import { adjust, type Corrected, setThreshold, voidGrant } from '../administration/credits/corrections.ts'
import { refund } from '../administration/credits/refunds.ts'
import { amountOf, labelOf, signedAmountOf } from '../administration/input.ts'
import { formatCredits, parseCredits } from '../billing/money.ts'
import {
  type Command,
  type CommandContext,
  type Given,
  organizationParameter,
  type Parameter,
  wholeOrNot,
} from './command.ts'
import { referenceParameter } from './credit-parameters.ts'

const reasonParameter: Parameter = { name: 'reason', help: 'kept in the event log', required: true }

const voidOf = (given: Given) => ({
  organizationId: given.required('org'),
  grantId: given.required('grant'),
  reason: labelOf('reason', given.required('reason')),
})

const voiding: Command = {
  name: 'credits void',
  summary: 'take back what is left of a lot',
  parameters: [
    organizationParameter,
    { name: 'grant', help: 'grant_id, as "credits lots" shows it', required: true },
    reasonParameter,
  ],
  changes: {
    of: 'money',
    asks: 'always',
    left: wholeOrNot('credits lots'),
    plan: async ({ foundation }, given) => {
      const asked = voidOf(given)
      const open = await foundation()
      const would = await voidGrant(open, { ...asked, dryRun: true, ...open.operator })
      return {
        says: [
          `Take back ${takenIn(would)} credits of ${asked.organizationId}, what is left of the lot ${asked.grantId}: its balance becomes ${formatCredits(would.balance)}.`,
        ],
        json: {
          organization_id: asked.organizationId,
          grant_id: asked.grantId,
          ...correctionJson(would),
        },
      }
    },
  },
  run: async ({ foundation }, given) => {
    const asked = voidOf(given)
    const open = await foundation()
    const voided = await voidGrant(open, { ...asked, dryRun: false, ...open.operator })
    return {
      json: { organization_id: asked.organizationId, grant_id: asked.grantId, ...correctionJson(voided) },
    }
  },
}

const adjustmentOf = (given: Given) => {
  const label = given.text('reference')
  return {
    organizationId: given.required('org'),
    amount: signedAmountOf('amount', given.required('amount')),
    reason: labelOf('reason', given.required('reason')),
    reference: label === undefined ? undefined : labelOf('reference', label),
  }
}

const adjusting: Command = {
  name: 'credits adjust',
  summary: 'give credits, or take them (a negative amount)',
  parameters: [
    organizationParameter,
    { name: 'amount', help: 'credits, at most 6 decimals; -5 takes 5', required: true },
    reasonParameter,
    referenceParameter,
  ],
  changes: {
    of: 'money',
    asks: 'always',
    left: wholeOrNot('credits balance'),
    plan: async ({ foundation }, given) => {
      const asked = adjustmentOf(given)
      const open = await foundation()
      const would = await adjust(open, { ...asked, dryRun: true, ...open.operator })
      const balance = formatCredits(would.balance)
      const amount = formatCredits(asked.amount < 0n ? -asked.amount : asked.amount)
      const verb = asked.amount < 0n ? `Take ${amount} credits from` : `Give ${amount} credits to`
      return {
        says: [
          would.already
            ? `Nothing: it was done under the reference "${asked.reference}" already.`
            : `${verb} ${asked.organizationId}: its balance becomes ${balance}.`,
        ],
        // A grant can be taken back; calls refused in the meantime stay refused.
        asks: would.already ? 'never' : asked.amount < 0n ? 'always' : 'on a terminal',
        json: { ...adjustmentJson(asked, would) },
      }
    },
  },
  run: async ({ foundation }, given) => {
    const asked = adjustmentOf(given)
    const open = await foundation()
    return { json: adjustmentJson(asked, await adjust(open, { ...asked, dryRun: false, ...open.operator })) }
  },
}

const adjustmentJson = (asked: ReturnType<typeof adjustmentOf>, adjusted: Corrected) => ({
  organization_id: asked.organizationId,
  ...correctionJson(adjusted),
  reference: asked.reference ?? null,
  already_adjusted: adjusted.already,
})

const refundOf = (given: Given) => {
  const amount = given.text('amount')
  const label = given.text('reference')
  return {
    requestId: given.required('request'),
    organizationId: given.text('org'),
    amount: amount === undefined ? undefined : amountOf('amount', amount, { zero: false }),
    reason: labelOf('reason', given.required('reason')),
    reference: label === undefined ? undefined : labelOf('reference', label),
  }
}

const refunded = async (
  { foundation, progress }: Pick<CommandContext, 'foundation' | 'progress'>,
  asked: ReturnType<typeof refundOf>,
  dryRun: boolean,
) => {
  const open = await foundation()
  const onProgress = (events: number): void => progress(`${events} events since the call`)
  const done = await refund(open, { ...asked, dryRun, onProgress, ...open.operator })
  const json = {
    request_id: asked.requestId,
    organization_id: done.organizationId,
    charge_id: done.chargeId,
    charged: formatCredits(done.charged),
    costs_now: formatCredits(done.costs),
    ...correctionJson(done),
    reference: asked.reference ?? null,
    already_refunded: done.already,
  }
  return { done, json }
}

const refunding: Command = {
  name: 'credits refund',
  summary: 'give back what a call cost, or a part of it, into the lots it was drawn from',
  parameters: [
    { name: 'request', help: 'request_id of the call', required: true },
    { name: 'amount', help: 'credits, at most 6 decimals (default: all that the call still costs)' },
    reasonParameter,
    referenceParameter,
    { name: 'org', help: 'organization id; needed only where no statement has the call yet' },
  ],
  changes: {
    of: 'money',
    asks: 'on a terminal',
    left: wholeOrNot('ledger explain'),
    plan: async (context, given) => {
      const { done, json } = await refunded(context, refundOf(given), true)
      if (done.already)
        return {
          says: [`Nothing: it was done under the reference "${json.reference}" already.`],
          asks: 'never',
          json,
        }
      return {
        says: [
          `Give ${done.organizationId} ${done.adjusted.amount} credits of call ${json.request_id} back, which then costs ${json.costs_now} of the ${json.charged} it was charged: the balance becomes ${json.balance}.`,
        ],
        json,
      }
    },
  },
  run: async (context, given) => ({ json: (await refunded(context, refundOf(given), false)).json }),
}

const takenIn = ({ adjusted }: Corrected): string => adjusted.amount.replace(/^-/, '')

/** The result of a correction, or the expected result in a dry run. `into` and `from` are lots. */
const correctionJson = ({ adjusted, balance, revision }: Corrected) => {
  const { amount, reason, overdraft_repaid, fills, allocations, adjustment_id } = adjusted
  const rest = fills.reduce(
    (left, fill) => left - parseCredits(fill.amount),
    parseCredits(amount) - parseCredits(overdraft_repaid),
  )
  return {
    dry_run: revision === null,
    adjustment_id: revision === null ? null : adjustment_id,
    amount,
    reason,
    overdraft_repaid,
    into: fills.map((fill) => ({
      grant_id: fill.grant_id,
      amount: fill.amount,
      expires_at: fill.expires_at,
    })),
    new_lot: rest > 0n ? formatCredits(rest) : null,
    from: allocations,
    balance: formatCredits(balance),
    revision,
  }
}

const thresholdOf = (given: Given) => {
  const text = given.required('amount')
  return {
    organizationId: given.required('org'),
    amount: text === 'none' ? null : amountOf('amount', text, { zero: true }),
  }
}

const threshold: Command = {
  name: 'credits threshold',
  summary: 'below which balance the organization is told (balance.low)',
  parameters: [
    organizationParameter,
    { name: 'amount', help: 'credits, or "none" to be told no more', required: true },
  ],
  changes: {
    of: 'settings',
    asks: 'never',
    left: wholeOrNot('event-log show'),
    plan: async (_, given) => {
      const { organizationId, amount } = thresholdOf(given)
      return {
        says: [
          amount === null
            ? `Tell ${organizationId} no more that its balance is low.`
            : `Tell ${organizationId} when its balance is below ${formatCredits(amount)}.`,
        ],
      }
    },
  },
  run: async ({ foundation }, given) => {
    const { organizationId, amount } = thresholdOf(given)
    const open = await foundation()
    const { revision } = await setThreshold(open, { organizationId, amount, ...open.operator })
    return {
      json: {
        organization_id: organizationId,
        threshold: amount === null ? null : formatCredits(amount),
        revision,
      },
    }
  },
}

export const creditCorrections: readonly Command[] = [voiding, adjusting, refunding, threshold]
