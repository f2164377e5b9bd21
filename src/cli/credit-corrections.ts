import { adjust, type Corrected, setThreshold, voidGrant } from '../administration/corrections.ts'
import { amountOf, labelOf, signedAmountOf } from '../administration/input.ts'
import { refund } from '../administration/refunds.ts'
import { formatCredits, parseCredits } from '../billing/money.ts'
import { type Command, organizationParameter, type Parameter } from './command.ts'
import { dryRunParameter, referenceParameter } from './credit-parameters.ts'

const reasonParameter: Parameter = { name: 'reason', help: 'kept in the event log', required: true }

const voiding: Command = {
  name: 'credits void',
  summary: 'take back what is left of a lot',
  parameters: [
    organizationParameter,
    { name: 'grant', help: 'grant_id, as "credits lots" shows it', required: true },
    reasonParameter,
    dryRunParameter,
  ],
  run: async ({ foundation }, given) => {
    const organizationId = given.required('org')
    const grantId = given.required('grant')
    const reason = labelOf('reason', given.required('reason'))
    const open = await foundation()
    const dryRun = given.flag('dry-run')
    const voided = await voidGrant(open, { organizationId, grantId, reason, dryRun, ...open.operator })
    return { json: { organization_id: organizationId, grant_id: grantId, ...correctionJson(voided) } }
  },
}

const adjusting: Command = {
  name: 'credits adjust',
  summary: 'give credits, or take them (a negative amount)',
  parameters: [
    organizationParameter,
    { name: 'amount', help: 'credits, at most 6 decimals; -5 takes 5', required: true },
    reasonParameter,
    referenceParameter,
    dryRunParameter,
  ],
  run: async ({ foundation }, given) => {
    const label = given.text('reference')
    const asked = {
      organizationId: given.required('org'),
      amount: signedAmountOf('amount', given.required('amount')),
      reason: labelOf('reason', given.required('reason')),
      reference: label === undefined ? undefined : labelOf('reference', label),
      dryRun: given.flag('dry-run'),
    }
    const open = await foundation()
    const adjusted = await adjust(open, { ...asked, ...open.operator })
    return {
      json: {
        organization_id: asked.organizationId,
        ...correctionJson(adjusted),
        reference: asked.reference ?? null,
        already_adjusted: adjusted.already,
      },
    }
  },
}

const refunding: Command = {
  name: 'credits refund',
  summary: 'give back what a call cost, or a part of it, into the lots it was drawn from',
  parameters: [
    { name: 'request', help: 'request_id of the call', required: true },
    { name: 'amount', help: 'credits, at most 6 decimals (default: all that the call still costs)' },
    reasonParameter,
    { name: 'org', help: 'organization id; needed only where no statement has the call yet' },
    dryRunParameter,
  ],
  run: async ({ foundation, progress }, given) => {
    const amount = given.text('amount')
    const asked = {
      requestId: given.required('request'),
      organizationId: given.text('org'),
      amount: amount === undefined ? undefined : amountOf('amount', amount, { zero: false }),
      reason: labelOf('reason', given.required('reason')),
      dryRun: given.flag('dry-run'),
      onProgress: (events: number) => progress(`${events} events since the call`),
    }
    const open = await foundation()
    const refunded = await refund(open, { ...asked, ...open.operator })
    return {
      json: {
        request_id: asked.requestId,
        organization_id: refunded.organizationId,
        charge_id: refunded.chargeId,
        charged: formatCredits(refunded.charged),
        costs_now: formatCredits(refunded.costs),
        ...correctionJson(refunded),
      },
    }
  },
}

/** What a correction did, or of a dry run would do. `into` and `from` are lots. */
const correctionJson = ({ adjusted, balance, revision }: Corrected) => {
  const { amount, reason, overdraft_repaid, fills, allocations, adjustment_id } = adjusted
  const rest = fills.reduce(
    (left, fill) => left - parseCredits(fill.amount),
    parseCredits(amount) - parseCredits(overdraft_repaid),
  )
  return {
    dry_run: revision === null,
    adjustment_id: revision === null ? null : adjustment_id,
    ...{ amount, reason, overdraft_repaid },
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

const threshold: Command = {
  name: 'credits threshold',
  summary: 'below which balance the organization is told (balance.low)',
  parameters: [
    organizationParameter,
    { name: 'amount', help: 'credits, or "none" to be told no more', required: true },
  ],
  run: async ({ foundation }, given) => {
    const organizationId = given.required('org')
    const text = given.required('amount')
    const amount = text === 'none' ? null : amountOf('amount', text, { zero: true })
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
