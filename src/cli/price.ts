import { randomUUID } from 'node:crypto'
import { readFile, stat } from 'node:fs/promises'
import { z } from 'zod'
import { amountOf, setPriceOverride } from '../administration/organizations.ts'
import { formatCredits } from '../billing/money.ts'
import { priceBookAt, priceBookOf } from '../billing/price-book.ts'
import { knownRules } from '../billing/tariff.ts'
import { appendSurely } from '../event-log/append-next.ts'
import { eventIdOf } from '../event-log/event-id.ts'
import type { EventLog } from '../event-log/port.ts'
import { decodeEvent, encodeEvent, faultOf } from '../event-log/stored-event.ts'
import { type PriceBookPublished, priceBookRule } from '../events/prices.ts'
import { priceBookStream } from '../events/streams.ts'
import { type Command, instantOf, labelOf, organizationParameter, UsageError } from './command.ts'
import { table } from './table.ts'

const booksMax = 10_000
/** Every process hears of a new book well within this, so that none prices a call by the old one after it took effect. */
const noticeMs = 5_000

export const priceCommands: readonly Command[] = [
  {
    name: 'price show',
    summary: 'the price book in force, and those to come',
    parameters: [{ name: 'at', help: 'at another instant than now' }],
    run: async ({ foundation }, given) => {
      const at = given.text('at')
      const atMs = at === undefined ? Date.now() : Date.parse(instantOf('at', at))
      const published = await readBooks((await foundation()).eventLog)
      const inForce = priceBookAt(published.map(priceBookOf), atMs)
      const current = published.find(({ version }) => version === inForce?.version) ?? null
      const upcoming = published.filter(({ effective_from }) => Date.parse(effective_from) > atMs)
      return {
        json: { in_force: current, upcoming },
        lines: [
          ...(current === null ? ['no price book is in force'] : shown('in force', current)),
          ...upcoming.flatMap((book) => ['', ...shown('to come', book)]),
        ],
      }
    },
  },
  {
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
      const rules = await readRules(given.required('file'))
      const approver = labelOf('approver', given.required('approver'))
      const from = given.text('effective-from')
      const effectiveFrom =
        from === undefined ? new Date(Date.now() + noticeMs).toISOString() : instantOf('effective-from', from)
      if (Date.parse(effectiveFrom) < Date.now() + noticeMs - 1_000)
        throw new UsageError(
          `--effective-from: ${effectiveFrom} is not at least ${noticeMs / 1000} s ahead; prices never change backwards`,
        )
      const { eventLog } = await foundation()
      const books = await readBooks(eventLog)
      const version = (books.at(-1)?.version ?? 0) + 1
      const book: PriceBookPublished = { version, effective_from: effectiveFrom, rules, approver }
      await appendSurely(eventLog, priceBookStream, books.length - 1, [
        encodeEvent(
          { type: 'PriceBookPublished', data: book },
          {
            id: eventIdOf(priceBookStream, `${version}/${randomUUID()}`, 0),
            actor: 'cli',
            effectiveAt: new Date().toISOString(),
          },
        ),
      ])
      return { json: book, lines: shown('published', book) }
    },
  },
  {
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
      const request = {
        organizationId: given.required('org'),
        sku: given.required('sku'),
        amount: amount === 'none' ? null : amountOf('amount', amount, { zero: true }),
        effectiveFrom: from === undefined ? new Date().toISOString() : instantOf('effective-from', from),
        actor: 'cli',
      }
      const open = await foundation()
      const skus = new Set(
        (await readBooks(open.eventLog)).flatMap(({ rules }) => rules.map(({ sku }) => sku)),
      )
      if (!skus.has(request.sku))
        throw new UsageError(
          `--sku: no price book knows "${request.sku}"; known are ${[...skus].filter((sku) => sku !== null).join(', ')}`,
        )
      await setPriceOverride(open, request)
      return {
        json: {
          organization_id: request.organizationId,
          sku: request.sku,
          amount: request.amount === null ? null : formatCredits(request.amount),
          effective_from: request.effectiveFrom,
        },
      }
    },
  },
]

const readBooks = async (eventLog: EventLog): Promise<PriceBookPublished[]> =>
  (await eventLog.read(priceBookStream, { max: booksMax })).flatMap((recorded) => {
    const event = decodeEvent(recorded)
    return event.type === 'PriceBookPublished' ? [event.data] : []
  })

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

/** Reads and checks a price book's rules: complete, canonical, each once, and all of them known to this release. */
const readRules = async (path: string): Promise<PriceBookPublished['rules']> => {
  const content = rulesIn(await readJson(path))
  const read = rulesFile.safeParse(content)
  if (!read.success) throw new UsageError(`--file: ${path}: ${faultOf(read.error, content)}`)
  const rules = read.data.rules.map((rule) => ({
    ...rule,
    amount: formatCredits(amountOf(`file, rule ${rule.rule}`, rule.amount, { zero: true })),
  }))
  const known = knownRules()
  for (const [i, { rule, rule_version }] of rules.entries()) {
    const newest = known.get(rule)
    if (newest === undefined)
      throw new UsageError(`--file: there is no rule "${rule}"; there are ${[...known.keys()].join(', ')}`)
    if (rule_version > newest)
      throw new UsageError(`--file: rule ${rule} has no version ${rule_version}; the newest is ${newest}`)
    if (rules.findIndex((one) => one.rule === rule) !== i)
      throw new UsageError(`--file: rule ${rule} stands in it twice`)
  }
  const missing = [...known.keys()].filter((id) => !rules.some(({ rule }) => rule === id))
  if (missing.length > 0)
    throw new UsageError(`--file: a price book is complete; it lacks ${missing.join(', ')}`)
  return rules
}

const readJson = async (path: string): Promise<unknown> => {
  try {
    const { size } = await stat(path)
    if (size > fileBytesMax)
      throw new RangeError(`it has ${size} bytes; a price book has at most ${fileBytesMax}`)
    return JSON.parse(await readFile(path, 'utf8'))
  } catch (error) {
    throw new UsageError(
      `--file: ${path} cannot be read as JSON: ${error instanceof Error ? error.message : String(error)}`,
    )
  }
}

/** The rules alone, a book, or what "price show --json" prints. */
const rulesIn = (content: unknown): { rules: unknown } => {
  const member = (value: unknown, name: string): unknown =>
    typeof value === 'object' && value !== null ? (value as Record<string, unknown>)[name] : undefined
  return { rules: Array.isArray(content) ? content : member(member(content, 'in_force') ?? content, 'rules') }
}

/** Amounts are read more kindly than events hold them: as an operator types them. */
const rulesFile = z.object({ rules: z.array(priceBookRule.extend({ amount: z.string() })) })
