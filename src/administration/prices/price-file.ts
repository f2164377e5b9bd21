import { z } from 'zod'
import { formatCredits } from '../../billing/money.ts'
import { patchedRules } from '../../billing/price-rules.ts'
import { knownRules, neededRules } from '../../billing/tariff.ts'
import { faultOf } from '../../event-log/stored-event.ts'
import { type PriceBookRule, priceBookRule } from '../../events/prices.ts'
import { amountOf, InputFault } from '../input.ts'

/**
 * The rules in a document that was parsed as JSON: a list of rules, a book, or the output of `price show --json`. The document may
 * contain only the rules and members that change; the rest is taken from `base`. Throws an `InputFault` about `field` unless the
 * result contains every rule of this release exactly once.
 */
export const priceRulesOf = (
  content: unknown,
  { field, base }: { readonly field: string; readonly base: readonly PriceBookRule[] },
): PriceBookRule[] => {
  const given = documentIn(content, field).rules
  for (const [i, { rule }] of given.entries())
    if (given.findIndex((one) => one.rule === rule) !== i)
      throw new InputFault(field, `rule ${rule} occurs twice`)
  const rules = patchedRules(
    base,
    given.map((rule) => wholeRule(rule, { field, base })),
  )
  const known = knownRules()
  for (const { rule, rule_version } of rules) {
    const newest = known.get(rule)
    if (newest === undefined)
      throw new InputFault(field, `there is no rule "${rule}"; the rules are ${[...known.keys()].join(', ')}`)
    if (rule_version > newest)
      throw new InputFault(field, `rule ${rule} has no version ${rule_version}; the newest is ${newest}`)
  }
  const missing = neededRules().filter((id) => !rules.some(({ rule }) => rule === id))
  if (missing.length > 0)
    throw new InputFault(
      field,
      `a price book must be complete, but neither these rules nor the book in force at that time contain ${missing.join(', ')}`,
    )
  return rules
}

/**
 * Throws an `InputFault` about `field` if the document names a price book that it changes, and this is not the book with the version
 * `base`. Otherwise, people would propose changes to prices that they have not seen.
 */
export const checkChangedBook = (
  content: unknown,
  { field, base, from }: { readonly field: string; readonly base: number | null; readonly from: string },
): void => {
  const named = documentIn(content, field)[changedBook]
  if (named === undefined || named === base) return
  throw new InputFault(
    field,
    `these are changes to price book ${named}, but ${base === null ? 'no price book' : `price book ${base}`} will be in force at ${from}; check them against the prices of that time, and propose them again`,
  )
}

const documentIn = (content: unknown, field: string): z.infer<typeof rulesDocument> => {
  const document = rulesIn(content)
  const read = rulesDocument.safeParse(document)
  if (read.success) return read.data
  throw new InputFault(field, faultOf(read.error, document))
}

const wholeRule = (
  { rule, ...given }: z.infer<typeof ruleDocument>,
  { field, base }: { readonly field: string; readonly base: readonly PriceBookRule[] },
): PriceBookRule => {
  const before = base.find((one) => one.rule === rule)
  const { rule_version = before?.rule_version, amount = before?.amount } = given
  const sku = given.sku === undefined ? before?.sku : given.sku
  if (rule_version === undefined || sku === undefined || amount === undefined)
    throw new InputFault(
      field,
      `rule ${rule} is not in the price book to be changed: give its rule_version, sku and amount`,
    )
  const price = canonicalAmount(field, { rule, amount })
  if (sku === null && price !== '0')
    throw new InputFault(
      field,
      `rule ${rule} has no SKU, so calls would still be free: give it a SKU as well`,
    )
  return { rule, rule_version, sku, amount: price }
}

const canonicalAmount = (field: string, { rule, amount }: { rule: string; amount: string }): string => {
  try {
    return formatCredits(amountOf(field, amount, { zero: true }))
  } catch (error) {
    throw error instanceof InputFault ? new InputFault(field, `rule ${rule}: ${error.message}`) : error
  }
}

const memberOf = (value: unknown, name: string): unknown =>
  typeof value === 'object' && value !== null ? Reflect.get(value, name) : undefined

/** What `price show` prints has more members. A document that a person wrote must not, because a misspelt member would have no effect. */
const rulesIn = (content: unknown): object => {
  if (Array.isArray(content)) return { rules: content }
  const isPrinted = ['in_force', 'version', 'proposal'].some((name) => memberOf(content, name) !== undefined)
  if (typeof content === 'object' && content !== null && !isPrinted) return content
  return {
    [changedBook]: memberOf(content, changedBook),
    rules: memberOf(memberOf(content, 'in_force') ?? content, 'rules'),
  }
}

/** The member of a document that names the price book which its rules change. */
const changedBook = 'price_book_version'

/** Operators can write an amount in several forms. Events contain only the canonical form. */
const ruleDocument = priceBookRule.extend({ amount: z.string() }).partial().required({ rule: true }).strict()
const rulesDocument = z.strictObject({
  [changedBook]: z.int().positive().optional(),
  rules: z.array(ruleDocument).min(1),
})
