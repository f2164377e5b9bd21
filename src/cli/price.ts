import { InputFault, instantOf, labelOf } from '../administration/input.ts'
import { priceRulesOf } from '../administration/prices/price-file.ts'
import {
  approvePriceBook,
  namedPrices,
  type PriceName,
  priceNameOf,
  pricesAt,
  proposalAt,
  proposePriceBook,
  withdrawPrices,
} from '../administration/prices/prices.ts'
import { ruleChanges } from '../billing/price-rules.ts'
import type { PriceProposal, PublishedBook } from '../billing/prices.ts'
import { twoPersonOf } from '../config.ts'
import type { PriceBookRule } from '../events/prices.ts'
import { CommandRefused } from '../ledger/write/commit.ts'
import { type Command, type Given, wholeOrNot } from './command.ts'
import { readPriceFile } from './files.ts'
import { priceDiff } from './price-diff.ts'
import { priceOverride, priceOverridesList } from './price-override.ts'
import { changeLines, ruleLines } from './price-tables.ts'

const show: Command = {
  name: 'price show',
  summary: 'the price book in force, those to come and open proposals; or one of them, such as 2 or p3',
  parameters: [
    { name: 'name', help: 'a version, such as 2, or a proposal, such as p3' },
    { name: 'at', help: 'at another instant than now' },
  ],
  changes: 'nothing',
  run: async ({ foundation }, given) => {
    const [text, at] = [given.text('name'), given.text('at')]
    const atMs = at === undefined ? Date.now() : Date.parse(instantOf('at', at))
    if (text !== undefined) {
      const found = await namedPrices(await foundation(), nameGiven(text))
      return { json: found, lines: 'base' in found ? proposalLines(found) : bookLines('', found) }
    }
    const { inForce, upcoming, open } = await pricesAt(await foundation(), atMs)
    return {
      json: { in_force: inForce, upcoming, proposals: open },
      lines: [
        ...(inForce === null ? ['no price book is in force'] : bookLines('in force', inForce)),
        ...upcoming.flatMap((book) => ['', ...bookLines('to come', book)]),
        ...open.flatMap((proposal) => ['', ...proposalLines(proposal)]),
      ],
    }
  },
}

const proposedIn = async (given: Given) => {
  const file = given.required('file')
  const effectiveFrom = instantOf('from', given.required('from'))
  const text = given.text('reason')
  const content = await readPriceFile(file)
  const rulesOver = (base: readonly PriceBookRule[]) => priceRulesOf(content, { named: file, base })
  return {
    effectiveFrom,
    rulesOver,
    reasonGiven: () => (text === undefined ? null : labelOf('reason', text)),
  }
}

const propose: Command = {
  name: 'price propose',
  summary: 'propose a price book, whole or what changes; it prices nothing until it is approved',
  parameters: [
    {
      name: 'file',
      help: 'JSON: [{"rule","rule_version","sku","amount"}, …], or only what changes, such as [{"rule","amount"}]',
      required: true,
      kind: 'file',
    },
    { name: 'from', help: 'ISO 8601 instant from which it is to price calls', required: true },
    { name: 'reason', help: 'kept in the event log' },
  ],
  changes: {
    of: 'money',
    asks: 'never',
    left: wholeOrNot('price show'),
    plan: async ({ foundation }, given) => {
      const { effectiveFrom, rulesOver, reasonGiven } = await proposedIn(given)
      reasonGiven()
      const { inForce } = await pricesAt(await foundation(), Date.parse(effectiveFrom))
      const base = inForce?.rules ?? []
      return {
        says: [
          `Propose, for calls from ${effectiveFrom} on:`,
          ...changeLines(ruleChanges(base, rulesOver(base))),
          'It prices nothing until it is approved.',
        ],
      }
    },
  },
  run: async ({ foundation }, given) => {
    const { effectiveFrom, rulesOver, reasonGiven } = await proposedIn(given)
    const open = await foundation()
    let before: readonly PriceBookRule[] = []
    const proposed = await proposePriceBook(open, {
      rulesOver: (base) => {
        before = base
        return rulesOver(base)
      },
      effectiveFrom,
      reason: reasonGiven(),
      ...open.operator,
    })
    return {
      json: proposed,
      lines: [
        `proposed as p${proposed.proposal}, from ${proposed.effective_from}, digest ${proposed.digest}`,
        ...changeLines(ruleChanges(before, proposed.rules)),
        `It prices nothing until "price approve p${proposed.proposal}"; "price diff ${proposed.base ?? ''} p${proposed.proposal}" says what it would have cost.`,
      ],
    }
  },
}

const approve: Command = {
  name: 'price approve',
  summary: 'approve a proposal: it is published, and prices calls from its instant on',
  parameters: [{ name: 'proposal', help: 'such as p3', required: true }],
  changes: {
    of: 'money',
    asks: 'always',
    left: wholeOrNot('price show'),
    plan: async ({ foundation }, given) => {
      const { number } = nameGiven(given.required('proposal'), 'proposal')
      const found = await proposalAt(await foundation(), number, Date.now())
      if (found === null) throw new CommandRefused(`there is no proposal p${number}; see "price show"`)
      if (found.gone !== null) throw new CommandRefused(found.gone)
      const { effective_from, proposer } = found.proposal
      return {
        says: [
          ...changeLines(found.changes),
          `Approve p${number}, which ${proposer} proposed: it prices calls from ${effective_from} on. It can be withdrawn until then.`,
        ],
      }
    },
  },
  run: async ({ foundation, config }, given) => {
    const { number } = nameGiven(given.required('proposal'), 'proposal')
    const twoPerson = twoPersonOf(config)
    const open = await foundation()
    // If one person is enough, that person has accepted the plan.
    const book = await approvePriceBook(open, {
      proposal: number,
      twoPerson,
      consents: true,
      ...open.operator,
    })
    return {
      json: book,
      lines: [
        `approved by ${book.approver}: p${number} is price book ${book.version}, from ${book.effective_from}, digest ${book.digest}`,
      ],
    }
  },
}

const withdraw: Command = {
  name: 'price withdraw',
  summary: 'withdraw a proposal, or a price book that is not in force yet',
  parameters: [
    { name: 'name', help: 'a version, such as 2, or a proposal, such as p3', required: true },
    { name: 'reason', help: 'kept in the event log (default "withdrawn by operator")' },
  ],
  changes: {
    of: 'money',
    asks: 'always',
    left: wholeOrNot('price show'),
    plan: async ({ foundation }, given) => {
      const name = nameGiven(given.required('name'))
      const found = await namedPrices(await foundation(), name)
      const what = name.kind === 'proposal' ? `proposal p${name.number}` : `price book ${name.number}`
      return {
        says: [`Withdraw ${what}, from ${found.effective_from}: it will never price a call.`],
      }
    },
  },
  run: async ({ foundation, config }, given) => {
    const text = given.required('name')
    const name = nameGiven(text)
    const reason = labelOf('reason', given.text('reason') ?? 'withdrawn by operator')
    const open = await foundation()
    await withdrawPrices(open, { name, reason, twoPerson: twoPersonOf(config), ...open.operator })
    const what = name.kind === 'proposal' ? `proposal p${name.number}` : `price book ${name.number}`
    return {
      json: { withdrawn: text.trim(), reason },
      lines: [`${what} is withdrawn and will never price a call`],
    }
  },
}

export const priceCommands: readonly Command[] = [
  show,
  propose,
  priceDiff,
  approve,
  withdraw,
  priceOverride,
  priceOverridesList,
]

/** A proposal may be named without its letter if the name is unambiguous. */
const nameGiven = (text: string, only?: 'proposal'): PriceName => {
  const name = priceNameOf(text)
  if (name === null)
    throw new InputFault(
      only ?? 'name',
      `"${text}" is ${only === undefined ? 'neither a version, such as 2, nor' : 'not'} a proposal, such as p3`,
    )
  return only === undefined ? name : { ...name, kind: only }
}

/** A book for people: its description, then a row for each rule. */
const bookLines = (what: string, book: PublishedBook): string[] => [
  `price book ${book.version}${what === '' ? '' : `, ${what}`}: effective from ${book.effective_from}, approved by ${book.approver}${book.proposal === null ? '' : ` as proposed in p${book.proposal}`}`,
  ...(book.withdrawn === null
    ? []
    : [`withdrawn at ${book.withdrawn.at} by ${book.withdrawn.by}: ${book.withdrawn.reason}`]),
  ...(book.digest === null ? [] : [`digest ${book.digest}`]),
  ...ruleLines(book.rules),
]

const proposalLines = (proposal: PriceProposal): string[] => [
  `proposal p${proposal.proposal}: from ${proposal.effective_from}, proposed by ${proposal.proposer} at ${proposal.proposed.at}${proposal.reason === null ? '' : `: ${proposal.reason}`}`,
  ...(proposal.version === null ? [] : [`approved: it is price book ${proposal.version}`]),
  ...(proposal.withdrawn === null
    ? []
    : [`withdrawn at ${proposal.withdrawn.at} by ${proposal.withdrawn.by}: ${proposal.withdrawn.reason}`]),
  `digest of the rules ${proposal.digest}`,
  ...ruleLines(proposal.rules),
]
