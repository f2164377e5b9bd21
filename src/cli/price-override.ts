import { amountOf, instantOf, labelOf } from '../administration/input.ts'
import {
  overriddenOrganizations,
  priceOverrides,
  type StandingOverride,
  setPriceOverride,
  withdrawPriceOverride,
} from '../administration/prices/price-overrides.ts'
import { formatCredits } from '../billing/money.ts'
import {
  type Answer,
  type Command,
  type Given,
  type OperatedFoundation,
  organizationParameter,
  wholeOrNot,
} from './command.ts'
import { table } from './table.ts'

export const priceOverride: Command = {
  name: 'price override',
  summary: 'give one organization its own price of a SKU, or withdraw such a price',
  parameters: [
    organizationParameter,
    { name: 'sku', help: 'as in the price book' },
    { name: 'amount', help: 'credits, or "none" to return to the price book' },
    { name: 'effective-from', help: 'ISO 8601 instant, not in the past (default now)' },
    { name: 'reason', help: 'kept in the event log (default "set by operator", or "withdrawn by operator")' },
    { name: 'withdraw', help: 'instead: the id of the override to withdraw, as "price overrides" lists it' },
  ],
  changes: {
    of: 'money',
    asks: 'on a terminal',
    left: wholeOrNot('price overrides'),
    plan: async ({ foundation }, given) => {
      const [withdrawn, organizationId] = [given.text('withdraw'), given.required('org')]
      const wanted = withdrawn === undefined ? wantedOf(given) : null
      const standing = await priceOverrides(await foundation(), organizationId)
      if (wanted === null) {
        const found = standing.find(({ overrideId }) => overrideId === withdrawn)
        const what = found === undefined ? '' : `: ${found.sku} at ${found.amount ?? 'the price of the book'}`
        return { says: [`Withdraw override ${withdrawn} of ${organizationId}${what}.`] }
      }
      const amount =
        wanted.amount === null ? 'the price of the book' : `${formatCredits(wanted.amount)} credits`
      return {
        says: [`Price ${wanted.sku} for ${organizationId} at ${amount} from ${wanted.effectiveFrom} on.`],
      }
    },
  },
  run: async ({ foundation }, given) => {
    const withdrawn = given.text('withdraw')
    return withdrawn === undefined
      ? setting(foundation, given)
      : withdrawing(await foundation(), { given, overrideId: withdrawn })
  },
}

const wantedOf = (given: Given) => {
  const amount = given.required('amount')
  const from = given.text('effective-from')
  return {
    organizationId: given.required('org'),
    sku: given.required('sku'),
    amount: amount === 'none' ? null : amountOf('amount', amount, { zero: true }),
    effectiveFrom: from === undefined ? new Date().toISOString() : instantOf('effective-from', from),
    reason: labelOf('reason', given.text('reason') ?? 'set by operator'),
  }
}

const setting = async (foundation: () => Promise<OperatedFoundation>, given: Given): Promise<Answer> => {
  const wanted = wantedOf(given)
  const open = await foundation()
  const { overrideId } = await setPriceOverride(open, { ...wanted, ...open.operator })
  return {
    json: {
      override_id: overrideId,
      organization_id: wanted.organizationId,
      sku: wanted.sku,
      amount: wanted.amount === null ? null : formatCredits(wanted.amount),
      effective_from: wanted.effectiveFrom,
      reason: wanted.reason,
    },
  }
}

const withdrawing = async (
  open: OperatedFoundation,
  { given, overrideId }: { given: Given; overrideId: string },
): Promise<Answer> => {
  const withdrawn = await withdrawPriceOverride(open, {
    organizationId: given.required('org'),
    overrideId,
    reason: labelOf('reason', given.text('reason') ?? 'withdrawn by operator'),
    ...open.operator,
  })
  return {
    json: { ...overrideJson(withdrawn), withdrawn: true },
    lines: [
      `withdrawn: ${withdrawn.sku} at ${withdrawn.amount ?? 'the price of the book'} from ${withdrawn.effectiveFrom}; what it priced keeps its price`,
    ],
  }
}

export const priceOverridesList: Command = {
  name: 'price overrides',
  summary: "list organizations' own prices that were not withdrawn, with their dates",
  parameters: [{ name: 'org', help: 'of this organization only' }],
  changes: 'nothing',
  run: async ({ foundation, logger }, given) => {
    const open = await foundation()
    const asked = given.text('org')
    const organizations = asked === undefined ? await overriddenOrganizations(open, logger) : [asked]
    const listed: StandingOverride[] = []
    for (const organizationId of organizations) listed.push(...(await priceOverrides(open, organizationId)))
    const rows = listed.map(overrideJson)
    return { json: rows, lines: rows.length === 0 ? ['there are no overrides'] : table(rows) }
  },
}

const overrideJson = (one: StandingOverride) => ({
  organization_id: one.organizationId,
  sku: one.sku,
  amount: one.amount,
  effective_from: one.effectiveFrom,
  in_force: one.inForce,
  override_id: one.overrideId,
  set_by: one.setBy,
  set_at: one.setAt,
  reason: one.reason,
})
