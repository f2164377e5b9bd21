import { readFile, stat } from 'node:fs/promises'
import { amountOf, InputFault, instantOf, labelOf } from '../administration/input.ts'
import {
  effectiveFromOf,
  priceRulesOf,
  pricesAt,
  publishPriceBook,
  setPriceOverride,
} from '../administration/prices.ts'
import { formatCredits } from '../billing/money.ts'
import type { PriceBookPublished } from '../events/prices.ts'
import { type Command, organizationParameter } from './command.ts'
import { table } from './table.ts'

const show: Command = {
  name: 'price show',
  summary: 'the price book in force, and those to come',
  parameters: [{ name: 'at', help: 'at another instant than now' }],
  run: async ({ foundation }, given) => {
    const at = given.text('at')
    const atMs = at === undefined ? Date.now() : Date.parse(instantOf('at', at))
    const { inForce, upcoming } = await pricesAt(await foundation(), atMs)
    return {
      json: { in_force: inForce, upcoming },
      lines: [
        ...(inForce === null ? ['no price book is in force'] : shown('in force', inForce)),
        ...upcoming.flatMap((book) => ['', ...shown('to come', book)]),
      ],
    }
  },
}

const publish: Command = {
  name: 'price publish',
  summary: 'publish a price book; it never re-prices what was charged before',
  parameters: [
    {
      name: 'file',
      help: 'JSON: [{"rule","rule_version","sku","amount"}, …], complete; start from "price show --json"',
      required: true,
    },
    { name: 'approver', help: 'who approved it', required: true },
    { name: 'effective-from', help: 'ISO 8601 instant, at least 5 s ahead (default: 5 s from now)' },
  ],
  run: async ({ foundation }, given) => {
    const file = given.required('file')
    const wanted = {
      rules: priceRulesOf(await readJson(file), file),
      approver: labelOf('approver', given.required('approver')),
      effectiveFrom: effectiveFromOf(given.text('effective-from')),
      actor: 'cli',
    }
    const book = await publishPriceBook(await foundation(), wanted)
    return { json: book, lines: shown('published', book) }
  },
}

const override: Command = {
  name: 'price override',
  summary: 'give one organization its own price of a SKU',
  parameters: [
    organizationParameter,
    { name: 'sku', help: 'as in the price book', required: true },
    { name: 'amount', help: 'credits, or "none" to return to the price book', required: true },
    { name: 'effective-from', help: 'ISO 8601 instant (default now)' },
  ],
  run: async ({ foundation }, given) => {
    const amount = given.required('amount')
    const from = given.text('effective-from')
    const wanted = {
      organizationId: given.required('org'),
      sku: given.required('sku'),
      amount: amount === 'none' ? null : amountOf('amount', amount, { zero: true }),
      effectiveFrom: from === undefined ? new Date().toISOString() : instantOf('effective-from', from),
      actor: 'cli',
    }
    await setPriceOverride(await foundation(), wanted)
    return {
      json: {
        organization_id: wanted.organizationId,
        sku: wanted.sku,
        amount: wanted.amount === null ? null : formatCredits(wanted.amount),
        effective_from: wanted.effectiveFrom,
      },
    }
  },
}

export const priceCommands: readonly Command[] = [show, publish, override]

/** A book for people: what it is, then a row for each rule. */
const shown = (what: string, { version, effective_from, approver, rules }: PriceBookPublished): string[] => [
  `price book ${version}, ${what}: effective from ${effective_from}, approved by ${approver}`,
  ...table(
    rules.map(({ rule, rule_version, sku, amount }) => ({
      rule,
      version: rule_version,
      sku,
      credits: amount,
    })),
  ),
]

/** Far above what a price book of every rule takes. */
const fileBytesMax = 1_000_000

const readJson = async (path: string): Promise<unknown> => {
  try {
    const { size } = await stat(path)
    if (size > fileBytesMax)
      throw new RangeError(`it has ${size} bytes; a price book has at most ${fileBytesMax}`)
    return JSON.parse(await readFile(path, 'utf8'))
  } catch (error) {
    throw new InputFault(
      'file',
      `${path} cannot be read as JSON: ${error instanceof Error ? error.message : String(error)}`,
    )
  }
}
