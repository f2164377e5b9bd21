import { z } from 'zod'
import { formatCredits, type MicroCredits } from '../../billing/money.ts'
import { monthStart } from '../../billing/months.ts'
import type { RuleChange } from '../../billing/price-rules.ts'
import type { PriceProposal, PublishedBook } from '../../billing/prices.ts'
import { payingOf } from '../../events/test-organization.ts'
import { CommandRefused } from '../../ledger/command.ts'
import { type Context, type Next, query, type Sections, titled } from '../declare.ts'
import { instant, month, organization, priceName, prices } from '../fields.ts'
import { InputFault, type PriceName } from '../input.ts'
import { namesOf, organizationIds } from '../organizations/organizations.ts'
import { mayDo } from '../roles.ts'
import { type ComparedCosts, comparePrices, lastMonth, rulesNamed } from './price-diff.ts'
import { overriddenOrganizations, priceOverrides, type StandingOverride } from './price-overrides.ts'
import { namedPrices, nameOfPrices, pricesAt, proposalAt } from './prices.ts'

const showPrices = query({
  name: 'price show',
  action: 'accounts.read',
  summary: 'show price books: in force, future and proposed',
  input: z.object({
    name: priceName({
      label: 'Price book',
      help: 'a version, such as 2, or a proposal, such as p3',
    }).optional(),
    at: instant({ label: 'At (UTC)', help: 'ISO 8601 instant (default: now)' }).optional(),
    organization: organization({ help: 'organization id: also shows its own prices' }).optional(),
  }),
  run: async (context, { name, at, organization: organizationId }) => {
    if (name !== undefined) return shownByName(context, name)
    const all = await pricesAt(context.foundation, at === undefined ? Date.now() : Date.parse(at))
    const sees = seesProposals(context)
    const shown = (book: PublishedBook) => (sees ? book : publicBook(book))
    const json = {
      in_force: all.inForce === null ? null : shown(all.inForce),
      upcoming: all.upcoming.map(shown),
      proposals: sees ? all.open : [],
    }
    const sections = [
      ...(json.in_force === null ? ['No price book is in force'] : bookSections('In force', json.in_force)),
      ...json.upcoming.flatMap((book) => bookSections(`From ${book.effective_from}`, book)),
      ...json.proposals.flatMap((one) => proposalSections(one, all.changesOf(one))),
    ]
    const next: readonly Next[] = [
      { name: 'price propose', label: 'Propose prices' },
      ...json.proposals.flatMap((one) => proposalNext(one)),
      ...json.upcoming.map(({ version }) => withdrawNext({ kind: 'book', number: version })),
    ]
    if (organizationId === undefined) return { json, sections, next }
    const own = (await priceOverrides(context.foundation, organizationId)).map((one) =>
      overrideRow(one, context),
    )
    return {
      json: { organization_id: organizationId, ...json, own_prices: own },
      sections: ['Its own prices', own.map(({ organization_id: _, ...one }) => one), ...sections],
      next: [
        { name: 'price override', label: 'Set its own price' },
        { name: 'price overrides', label: 'Withdraw its own price' },
        ...next,
      ],
    }
  },
})

/** Only the operator's users see proposals, and the names of the people who propose and approve them. */
const seesProposals = ({ operator: { role } }: Context): boolean =>
  role === null || mayDo(role, 'finance.read')

const publicBook = ({ version, effective_from, digest, rules }: PublishedBook) => ({
  version,
  effective_from,
  digest,
  rules,
})

const shownByName = async (context: Context, name: PriceName) => {
  if (!seesProposals(context))
    throw new CommandRefused(`there are no prices named ${nameOfPrices(name)}; see "price show"`)
  if (name.kind === 'proposal') {
    const { proposal, changes } = await proposalAt(context.foundation, name.number, Date.now())
    return { json: proposal, sections: proposalSections(proposal, changes), next: proposalNext(proposal) }
  }
  const found = await namedPrices(context.foundation, name)
  return {
    json: found,
    sections: bookSections(`Price book ${name.number}`, found),
    next: [withdrawNext(name)],
  }
}

const bookSections = (head: string, { rules, ...book }: Pick<PublishedBook, 'rules'>): Sections => [
  head,
  book,
  rules,
]

/** A person who approves a proposal first sees its changes. */
const proposalSections = (
  { rules, ...proposal }: PriceProposal,
  changes: readonly RuleChange[],
): Sections => {
  const same = rules.filter((one) => !changes.some(({ rule }) => rule === one.rule))
  return [
    `Proposal p${proposal.proposal}`,
    proposal,
    `Changes of p${proposal.proposal}`,
    changeRows(changes),
    ...titled('Unchanged rules', same),
  ]
}

export const proposalNext = ({
  proposal,
  base,
}: Pick<PriceProposal, 'proposal' | 'base'>): readonly Next[] => {
  const name = `p${proposal}`
  return [
    approveNext(name),
    {
      name: 'price diff',
      label: `Cost under ${name}`,
      given: { ...(base !== null && { from: String(base) }), to: name },
    },
    { name: 'rerate plan', label: `Re-rate under ${name}`, given: { book: name } },
    withdrawNext({ kind: 'proposal', number: proposal }),
  ]
}

const approveNext = (name: string): Next => ({
  name: 'price approve',
  label: `Approve ${name}`,
  given: { proposal: name },
})

const withdrawNext = (prices: PriceName): Next => {
  const name = nameOfPrices(prices)
  return { name: 'price withdraw', label: `Withdraw ${name}`, given: { name } }
}

const anyPrices = 'a version, such as 2, a proposal, such as p3, or rules as JSON'

const diffPrices = query({
  name: 'price diff',
  long: 'repeatable',
  action: 'finance.read',
  summary: "compare two price books, and the cost of a month's calls under each",
  input: z.object({
    from: prices({ label: 'From', help: anyPrices }),
    to: prices({ label: 'To', help: anyPrices }),
    month: month({
      label: 'Month (UTC)',
      help: 'the month of the calls, such as 2026-10 (default: last month)',
    }).optional(),
    organization: organization({ help: 'only this organization' }).optional(),
  }),
  run: async ({ foundation, logger, progress }, { month: asked, organization: organizationId, ...given }) => {
    const of = asked ?? lastMonth(Date.now())
    if (Date.parse(monthStart(of)) > Date.now()) throw new InputFault('month', `${of} has not begun`)
    const from = await rulesNamed(foundation, given.from, { field: 'from', over: null })
    const to = await rulesNamed(foundation, given.to, { field: 'to', over: from.rules })
    const { changes, organizations, sum } = await comparePrices(foundation, {
      from,
      to,
      month: of,
      organizations:
        organizationId === undefined ? payingOf(await organizationIds(foundation, logger)) : [organizationId],
      onProgress: (id, calls) => progress(`${id}: ${calls} calls`),
    })
    const rows = organizations.map((one) => ({ organization_id: one.organizationId, ...costJson(one) }))
    const total = costJson(sum)
    const names = await namesOf(
      foundation,
      rows.map(({ organization_id }) => organization_id),
    )
    const costs = [
      ...rows.map((row) => ({ organization: names.get(row.organization_id) ?? null, ...row })),
      ...(rows.length > 1 ? [{ organization: 'all', organization_id: null, ...total }] : []),
    ]
    const { open } = await pricesAt(foundation, Date.now())
    const isOpen = open.some(({ proposal }) => to.name === `p${proposal}`)
    return {
      json: { from: from.name, to: to.name, changes, month: of, organizations: rows, total },
      sections: [
        `${from.name} → ${to.name}`,
        changeRows(changes),
        ...(rows.length === 0
          ? [`No calls in ${of}`]
          : [
              `Calls in ${of} (UTC), in credits`,
              costs.map(({ skus: _, ...row }) => row),
              total.skus,
              ...unrated(from.name, sum.from.unrated),
              ...unrated(to.name, sum.to.unrated),
            ]),
      ],
      next: isOpen ? [approveNext(to.name)] : [],
    }
  },
})

const unrated = (name: string, calls: number): readonly string[] =>
  calls === 0
    ? []
    : [`${calls} of these calls would have been refused under ${name}, because it has no rule for them`]

/** A row for each rule that differs between the books, with the old and the new values. */
export const changeRows = (changes: readonly RuleChange[]) =>
  changes.map(({ rule, from, to }) => ({
    rule,
    credits: changed(from?.amount, to?.amount),
    sku: changed(from?.sku, to?.sku),
    version: changed(from?.rule_version, to?.rule_version),
  }))

const changed = <Value>(from: Value, to: Value): Value | string =>
  from === to ? to : `${from ?? 'none'} → ${to ?? 'none'}`

const costJson = ({ from, to }: ComparedCosts) => ({
  calls: from.calls,
  cost_from: formatCredits(from.total),
  cost_to: formatCredits(to.total),
  difference: formatCredits(to.total - from.total),
  unrated_from: from.unrated,
  unrated_to: to.unrated,
  skus: [...new Set([...from.skus.keys(), ...to.skus.keys()])].sort().map((sku) => {
    const [was, becomes] = [from.skus.get(sku) ?? noLines, to.skus.get(sku) ?? noLines]
    return {
      sku,
      lines_from: was.lines,
      lines_to: becomes.lines,
      cost_from: formatCredits(was.amount),
      cost_to: formatCredits(becomes.amount),
      difference: formatCredits(becomes.amount - was.amount),
    }
  }),
})

const noLines: { readonly lines: number; readonly amount: MicroCredits } = { lines: 0, amount: 0n }

const listOverrides = query({
  name: 'price overrides',
  action: 'finance.read',
  summary: "list organizations' own prices that have not been withdrawn, with their dates",
  input: z.object({ organization: organization({ help: 'only this organization' }).optional() }),
  columns: [
    { name: 'organization_id', label: 'Organization', kind: 'id' },
    { name: 'sku', label: 'SKU' },
    { name: 'amount', label: 'Credits', kind: 'credits' },
    { name: 'effective_from', label: 'From (UTC)', kind: 'instant' },
    { name: 'in_force', label: 'In force' },
    { name: 'override_id', label: 'Override', kind: 'id' },
    { name: 'set_by', label: 'Set by' },
    { name: 'reason', label: 'Reason' },
  ],
  nextOfRow: [
    { name: 'price override', label: 'Withdraw', given: ({ override_id }) => ({ withdraw: override_id }) },
  ],
  run: async (context, { organization: organizationId }) => {
    const { foundation, logger } = context
    const rows = []
    for (const id of organizationId === undefined
      ? await overriddenOrganizations(foundation, logger)
      : [organizationId])
      for (const one of await priceOverrides(foundation, id)) rows.push(overrideRow(one, context))
    return { json: rows }
  },
})

export const overrideRow = ({ revision: _, ...row }: StandingOverride, context: Context) => {
  const { set_by: __, ...withoutPerson } = row
  return seesProposals(context) ? row : withoutPerson
}

export const declarations = [showPrices, diffPrices, listOverrides]
