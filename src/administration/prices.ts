import { randomUUID } from 'node:crypto'
import { z } from 'zod'
import { formatCredits, type MicroCredits } from '../billing/money.ts'
import { priceBookAt, priceBookOf } from '../billing/price-book.ts'
import { knownRules } from '../billing/tariff.ts'
import { appendUntilKnown } from '../event-log/append-until-known.ts'
import { eventIdOf } from '../event-log/event-id.ts'
import { encodeEvent, faultOf } from '../event-log/stored-event.ts'
import { type PriceBookPublished, priceBookRule } from '../events/prices.ts'
import { priceBookStream } from '../events/streams.ts'
import { publishedBooks } from '../foundation/default-price-book.ts'
import type { Foundation } from '../foundation/foundation.ts'
import { uniqueCommandKey } from './credits.ts'
import { amountOf, InputFault, instantOf } from './input.ts'

/** Every process reads a new book well within this, so that none prices a call by the old one after it took effect. */
const noticeMs = 5_000
/** What a request may take to arrive here after its instant was chosen. */
const noticeToleranceMs = 1_000

/** The price book in force at an instant, and those that take effect after it. */
export const pricesAt = async (
  { eventLog }: Pick<Foundation, 'eventLog'>,
  atMs: number,
): Promise<{ inForce: PriceBookPublished | null; upcoming: PriceBookPublished[] }> => {
  const published = await publishedBooks(eventLog)
  const inForce = priceBookAt(published.map(priceBookOf), atMs)
  return {
    inForce: published.find(({ version }) => version === inForce?.version) ?? null,
    upcoming: published.filter(({ effective_from }) => Date.parse(effective_from) > atMs),
  }
}

/** When a book takes effect: `text`, or as soon as possible. Throws `InputFault` for an instant that is too near. */
export const effectiveFromOf = (text: string | undefined): string => {
  const field = 'effective-from'
  const effectiveFrom =
    text === undefined ? new Date(Date.now() + noticeMs).toISOString() : instantOf(field, text)
  if (Date.parse(effectiveFrom) < Date.now() + noticeMs - noticeToleranceMs)
    throw new InputFault(
      field,
      `${effectiveFrom} is not at least ${noticeMs / 1000} s ahead; prices never change backwards`,
    )
  return effectiveFrom
}

/** Publishes the next price book. What was charged before keeps its price. */
export const publishPriceBook = async (
  { eventLog }: Pick<Foundation, 'eventLog'>,
  {
    rules,
    approver,
    effectiveFrom,
    actor,
  }: { rules: PriceBookPublished['rules']; approver: string; effectiveFrom: string; actor: string },
): Promise<PriceBookPublished> => {
  const books = await publishedBooks(eventLog)
  const version = (books.at(-1)?.version ?? 0) + 1
  const book: PriceBookPublished = { version, effective_from: effectiveFrom, rules, approver }
  await appendUntilKnown(eventLog, priceBookStream, books.length - 1, [
    encodeEvent(
      { type: 'PriceBookPublished', data: book },
      {
        id: eventIdOf(priceBookStream, `${version}/${randomUUID()}`, 0),
        actor,
        effectiveAt: new Date().toISOString(),
      },
    ),
  ])
  return book
}

type PriceOverride = {
  readonly organizationId: string
  readonly sku: string
  /** Null: the price book's price again. */
  readonly amount: MicroCredits | null
  readonly effectiveFrom: string
  readonly actor: string
}

/** Gives one organization its own price of a SKU. Throws `InputFault` for a SKU that no price book has. */
export const setPriceOverride = async (
  { eventLog, ledger }: Pick<Foundation, 'eventLog' | 'ledger'>,
  { organizationId, ...override }: PriceOverride,
): Promise<void> => {
  const skus = new Set((await publishedBooks(eventLog)).flatMap(({ rules }) => rules.map(({ sku }) => sku)))
  if (!skus.has(override.sku))
    throw new InputFault(
      'sku',
      `no price book knows "${override.sku}"; known are ${[...skus].filter((sku) => sku !== null).join(', ')}`,
    )
  await ledger.submit(organizationId, {
    key: uniqueCommandKey('price-override'),
    atMs: Date.now(),
    kind: 'override_price',
    ...override,
  })
}

/**
 * The rules in a document that was parsed as JSON: complete, each once, and all of them known to this release. It may be
 * the rules alone, a book, or what `price show --json` prints. Throws `InputFault` of the field `file`.
 */
export const priceRulesOf = (content: unknown, named: string): PriceBookPublished['rules'] => {
  const document = rulesIn(content)
  const read = rulesDocument.safeParse(document)
  if (!read.success) throw new InputFault('file', `${named}: ${faultOf(read.error, document)}`)
  const rules = read.data.rules.map((rule) => ({ ...rule, amount: canonicalAmount(rule) }))
  const known = knownRules()
  for (const [i, { rule, rule_version }] of rules.entries()) {
    const newest = known.get(rule)
    if (newest === undefined)
      throw new InputFault('file', `there is no rule "${rule}"; there are ${[...known.keys()].join(', ')}`)
    if (rule_version > newest)
      throw new InputFault('file', `rule ${rule} has no version ${rule_version}; the newest is ${newest}`)
    if (rules.findIndex((one) => one.rule === rule) !== i)
      throw new InputFault('file', `rule ${rule} stands in it twice`)
  }
  const missing = [...known.keys()].filter((id) => !rules.some(({ rule }) => rule === id))
  if (missing.length > 0)
    throw new InputFault('file', `a price book is complete; it lacks ${missing.join(', ')}`)
  return rules
}

const canonicalAmount = ({ rule, amount }: { rule: string; amount: string }): string => {
  try {
    return formatCredits(amountOf('file', amount, { zero: true }))
  } catch (error) {
    throw error instanceof InputFault ? new InputFault('file', `rule ${rule}: ${error.message}`) : error
  }
}

const memberOf = (value: unknown, name: string): unknown =>
  typeof value === 'object' && value !== null ? Reflect.get(value, name) : undefined

const rulesIn = (content: unknown): { rules: unknown } => ({
  rules: Array.isArray(content) ? content : memberOf(memberOf(content, 'in_force') ?? content, 'rules'),
})

/** Amounts are taken as an operator types them; events hold them in one form only. */
const rulesDocument = z.object({ rules: z.array(priceBookRule.extend({ amount: z.string() })) })
