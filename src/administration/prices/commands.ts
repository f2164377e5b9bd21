import { z } from 'zod'
import { creditsText, formatCredits } from '../../billing/money.ts'
import type { RuleChange } from '../../billing/price-rules.ts'
import { knownRules } from '../../billing/tariff.ts'
import type { PriceBookRule } from '../../events/prices.ts'
import { CommandRefused } from '../../ledger/command.ts'
import { approvalRefusal, readOperators } from '../approval.ts'
import { type Context, command } from '../declare.ts'
import {
  choice,
  credits,
  creditsOrNone,
  instant,
  line,
  organization,
  priceName,
  priceRules,
  reason,
  uuid,
} from '../fields.ts'
import { InputFault, type PriceName } from '../input.ts'
import { checkChangedBook, priceRulesOf } from './price-file.ts'
import { priceOverride, priceOverrides, setPriceOverride, withdrawPriceOverride } from './price-overrides.ts'
import {
  approvePriceBook,
  namedPrices,
  nameOfPrices,
  plannedChanges,
  proposalAt,
  proposePriceBook,
  withdrawPrices,
} from './prices.ts'
import { changeRows, overrideRow, proposalNext } from './queries.ts'

/** The rules of a document, made as changes to the book that would otherwise be in force from the date `from` on. */
const rulesIn =
  (content: unknown, from: string) =>
  (base: readonly PriceBookRule[], version: number | null): PriceBookRule[] => {
    checkChangedBook(content, { field: 'file', base: version, from })
    return priceRulesOf(content, { field: 'file', base })
  }

const changeSentences = (changes: readonly RuleChange[]): string[] =>
  changes.length === 0
    ? ['The rules are the same.']
    : changes.map(({ rule, from, to }) => {
        const [was, becomes] = [from, to].map((one) =>
          one === null
            ? 'nothing'
            : `${creditsText(one.amount)} (${one.sku ?? 'no SKU'}, version ${one.rule_version})`,
        )
        return `${rule}: ${was} → ${becomes}.`
      })

const proposal = z.object({
  rules: priceRules({
    label: 'Prices as JSON',
    help: '[{"rule","rule_version","sku","amount"}, …], or only the changes, such as [{"rule","amount"}]; needed unless a rule and its new price are given',
  }).optional(),
  from: instant({ label: 'From (UTC)', help: 'ISO 8601 instant from which the prices apply to calls' }),
  reason: line({ label: 'Reason', help: 'kept in the event log' }).optional(),
  rule: choice({ label: 'Rule', help: 'the rule with a new price; all other rules stay the same' }, [
    ...knownRules().keys(),
  ]).optional(),
  amount: credits(
    { label: 'New price', help: 'the new price of the rule, in credits' },
    { zero: true },
  ).optional(),
})

const wantedOf = (input: z.output<typeof proposal>, { actor }: Context['operator']) => ({
  rulesOver: rulesIn(contentOf(input), input.from),
  effectiveFrom: input.from,
  reason: input.reason ?? null,
  actor,
})

/** Throws `InputFault` unless either a document is given, or a rule with its new price. */
const contentOf = ({ rules, rule, amount }: z.output<typeof proposal>): unknown => {
  if (rules !== undefined && rule === undefined && amount === undefined) return rules
  if (rules === undefined && rule !== undefined && amount !== undefined)
    return [{ rule, amount: formatCredits(amount) }]
  throw new InputFault('file', 'give either a JSON document, or a rule and its new price')
}

const propose = command({
  name: 'price propose',
  action: 'prices.change',
  summary: 'propose prices; they take effect only after approval',
  input: proposal,
  changes: { of: 'money', asks: 'on a terminal' },
  plan: async ({ foundation, operator }, input) => {
    const { from } = input
    const changes = await plannedChanges(foundation, wantedOf(input, operator))
    return [
      `Propose, for calls from ${from} on:`,
      ...changeSentences(changes),
      'The proposal takes effect only after approval.',
    ]
  },
  run: async ({ foundation, operator }, input) => {
    const proposed = await proposePriceBook(foundation, wantedOf(input, operator))
    const { rules: _, ...rest } = proposed
    const { changes } = await proposalAt(foundation, proposed.proposal, Date.now())
    return {
      json: proposed,
      sections: [rest, 'Changes', changeRows(changes)],
      next: proposalNext(proposed),
    }
  },
})

/** The number of a proposal. Throws `InputFault` for the version of a book, because a proposal with the same number is a different one. */
const proposalIn = ({ kind, number }: PriceName): number => {
  if (kind === 'proposal') return number
  throw new InputFault('proposal', `${number} is a version; proposals have names such as p${number}`)
}

const approve = command({
  name: 'price approve',
  action: 'prices.change',
  summary: 'approve and publish a proposal, whose prices apply from its date on',
  input: z.object({ proposal: priceName({ label: 'Proposal', help: 'such as p3' }) }),
  changes: { of: 'money', asks: 'always' },
  plan: async ({ foundation, operator, twoPerson }, { proposal }) => {
    const number = proposalIn(proposal)
    const found = await proposalAt(foundation, number, Date.now())
    const { proposed, proposer, effective_from, reason: why } = found.proposal
    const operators = await readOperators(foundation.eventLog, twoPerson)
    const refused =
      found.gone ?? approvalRefusal({ proposer: proposed.by, approver: operator.actor, twoPerson, operators })
    if (refused !== null) throw new CommandRefused(refused)
    return [
      ...changeSentences(found.changes),
      `Approve p${number}, which ${proposer} proposed${why === null ? '' : ` (${why})`}: its prices apply to calls from ${effective_from} on. It can be withdrawn until then.`,
    ]
  },
  run: async ({ foundation, operator, twoPerson }, { proposal }) => {
    const asked = { proposal: proposalIn(proposal), actor: operator.actor, twoPerson }
    const book = await approvePriceBook(foundation, asked)
    const { rules: _, ...rest } = book
    return { json: book, sections: [rest], next: [{ name: 'price show', label: 'Prices' }] }
  },
})

const whatOf = ({ kind, number }: PriceName): string =>
  kind === 'proposal' ? `proposal p${number}` : `price book ${number}`

const withdraw = command({
  name: 'price withdraw',
  action: 'prices.change',
  summary: 'withdraw a proposal, or a price book that is not in force yet',
  input: z.object({
    name: priceName({ label: 'Prices', help: 'a version, such as 2, or a proposal, such as p3' }),
    reason: line({ label: 'Reason', help: 'kept in the event log' }).prefault('withdrawn by operator'),
  }),
  changes: { of: 'money', asks: 'always' },
  plan: async ({ foundation }, { name }) => {
    const { effective_from } = await namedPrices(foundation, name)
    return `Withdraw ${whatOf(name)}, effective from ${effective_from}: its prices will never apply.`
  },
  run: async ({ foundation, operator, twoPerson }, { name, reason: why }) => {
    await withdrawPrices(foundation, { name, reason: why, twoPerson, actor: operator.actor })
    return {
      json: { withdrawn: nameOfPrices(name), reason: why },
      lines: [`${whatOf(name)} is withdrawn, and its prices will never apply`],
    }
  },
})

const overrideGiven = z.object({
  organization: organization(),
  sku: line({ label: 'SKU', help: 'as in the price book; "price show" lists the SKUs' }).optional(),
  amount: creditsOrNone({
    label: 'Credits',
    help: 'credits, or "none" to return to the price book',
  }).optional(),
  effective_from: instant({
    label: 'From (UTC)',
    help: 'ISO 8601 instant, not in the past (default: now)',
  }).optional(),
  reason: reason().optional(),
  withdraw: uuid({
    label: 'Withdraw',
    help: 'withdraw the override with this id instead; "price overrides" shows the ids',
  }).optional(),
})

/** Throws `InputFault` if the price is incomplete. */
const ownPriceOf = ({ sku, amount, effective_from, ...given }: z.output<typeof overrideGiven>) => {
  if (sku === undefined) throw new InputFault('sku', 'a value is required')
  if (amount === undefined) throw new InputFault('amount', 'a value is required')
  return {
    organizationId: given.organization,
    effectiveFrom: effective_from ?? new Date().toISOString(),
    reason: given.reason ?? 'set by operator',
    sku,
    amount,
  }
}

/** The override to withdraw; undefined if a price is set. Throws `InputFault` if both are given, because one would be ignored. */
const withdrawnIn = ({
  withdraw,
  sku,
  amount,
  effective_from: from,
}: z.output<typeof overrideGiven>): string | undefined => {
  if (withdraw !== undefined && [sku, amount, from].some((one) => one !== undefined))
    throw new InputFault('withdraw', 'withdraw an override or set a price, not both')
  return withdraw
}

const override = command({
  name: 'price override',
  action: 'prices.change',
  summary:
    "set an organization's own price; it replaces the price of a SKU in the price book, or is withdrawn",
  input: overrideGiven,
  changes: { of: 'money', asks: 'on a terminal' },
  plan: async ({ foundation }, input) => {
    const { organization: organizationId } = input
    const overrideId = withdrawnIn(input)
    if (overrideId !== undefined) {
      const { sku, amount, effective_from } = await priceOverride(foundation, { organizationId, overrideId })
      return `Withdraw the price of ${sku} for ${organizationId}, which is ${amount ?? 'the price of the book'} from ${effective_from} on: from now on, calls are priced as if it had never been set.`
    }
    const wanted = ownPriceOf(input)
    await priceOverrides(foundation, organizationId)
    const amount =
      wanted.amount === null ? 'the price of the book' : creditsText(formatCredits(wanted.amount))
    return `Price ${wanted.sku} for ${organizationId} at ${amount} from ${wanted.effectiveFrom} on.`
  },
  run: async (context, input) => {
    const { foundation, operator } = context
    const { organization: organizationId } = input
    const overrideId = withdrawnIn(input)
    const { actor } = operator
    if (overrideId !== undefined) {
      const why = input.reason ?? 'withdrawn by operator'
      const withdrawn = await withdrawPriceOverride(foundation, {
        organizationId,
        overrideId,
        actor,
        reason: why,
      })
      return { json: { ...overrideRow(withdrawn, context), withdrawn: true } }
    }
    const wanted = ownPriceOf(input)
    const set = await setPriceOverride(foundation, { ...wanted, actor })
    return {
      json: {
        override_id: set.overrideId,
        organization_id: organizationId,
        sku: wanted.sku,
        amount: wanted.amount === null ? null : formatCredits(wanted.amount),
        effective_from: wanted.effectiveFrom,
        reason: wanted.reason,
      },
    }
  },
})

export const declarations = [propose, approve, withdraw, override]
