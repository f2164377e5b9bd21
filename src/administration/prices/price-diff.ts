import { type Month, monthAfter, monthStart } from '../../billing/months.ts'
import { type PriceBook, priceBookOf } from '../../billing/price-book.ts'
import { addCall, addCost, type Cost, noCost } from '../../billing/price-comparison.ts'
import { ruleChanges } from '../../billing/price-rules.ts'
import { publishedAt } from '../../billing/prices.ts'
import type { PriceBookRule } from '../../events/prices.ts'
import type { Foundation } from '../../foundation/foundation.ts'
import { overrideOf } from '../../ledger/account.ts'
import { recordedCalls } from '../../ledger/explain/recorded-calls.ts'
import { readPrices } from '../../ledger/prices/price-stream.ts'
import { registeredAccount } from '../credits/credits.ts'
import type { PricesGiven } from '../fields.ts'
import { priceRulesOf } from './price-file.ts'
import { namedPrices, nameOfPrices } from './prices.ts'

/** All rules of a book, of a proposal or of a given document, with a name. */
type NamedRules = { readonly name: string; readonly rules: readonly PriceBookRule[] }

/**
 * `over` is the list of rules that the given rules change; null for the book in force now. Throws `CommandRefused`, or an `InputFault`
 * about `field`.
 */
export const rulesNamed = async (
  foundation: Pick<Foundation, 'eventLog'>,
  given: PricesGiven,
  { field, over }: { readonly field: string; readonly over: readonly PriceBookRule[] | null },
): Promise<NamedRules> => {
  if (given.kind !== 'rules')
    return { name: nameOfPrices(given), rules: (await namedPrices(foundation, given)).rules }
  const base = over ?? publishedAt((await readPrices(foundation.eventLog)).prices, Date.now())?.rules ?? []
  return { name: 'the given rules', rules: priceRulesOf(given.document, { field, base }) }
}

/** The previous calendar month. */
export const lastMonth = (nowMs: number): Month => {
  const now = new Date(nowMs)
  return new Date(Date.UTC(now.getUTCFullYear(), now.getUTCMonth() - 1)).toISOString().slice(0, 7)
}

export type ComparedCosts = { readonly from: Cost; readonly to: Cost }

/** Computes the cost of a month's calls under both sets of rules, with the organizations' current own prices. Writes nothing. */
export const comparePrices = async (
  { eventLog, ledger }: Pick<Foundation, 'eventLog' | 'ledger'>,
  {
    from,
    to,
    month,
    organizations,
    onProgress,
  }: {
    readonly from: NamedRules
    readonly to: NamedRules
    readonly month: Month
    readonly organizations: readonly string[]
    readonly onProgress: (organizationId: string, calls: number) => void
  },
) => {
  const books = [from, to].map(bookOf)
  const range = { fromMs: Date.parse(monthStart(month)), untilMs: Date.parse(monthStart(monthAfter(month))) }
  const sum: ComparedCosts = { from: noCost(), to: noCost() }
  const compared: ({ organizationId: string } & ComparedCosts)[] = []
  for (const organizationId of organizations) {
    const account = await registeredAccount(ledger, organizationId)
    const costs: ComparedCosts = { from: noCost(), to: noCost() }
    for await (const calls of recordedCalls(eventLog, organizationId, range)) {
      for (const { data, metadata } of calls) {
        const atMs = Date.parse(metadata.effective_at)
        const override = (sku: string) => overrideOf(account, sku, atMs)
        for (const [i, book] of books.entries())
          addCall(i === 0 ? costs.from : costs.to, data.facts, book, override)
      }
      onProgress(organizationId, costs.from.calls)
    }
    if (costs.from.calls === 0) continue
    compared.push({ organizationId, ...costs })
    addCost(sum.from, costs.from)
    addCost(sum.to, costs.to)
  }
  // Only organizations that have calls in the month.
  return { changes: ruleChanges(from.rules, to.rules), organizations: compared, sum }
}

/** The version and the instant of this book are arbitrary, because they do not affect the cost of a call. */
const bookOf = ({ rules }: NamedRules): PriceBook =>
  priceBookOf({ version: 1, effective_from: new Date(0).toISOString(), rules: [...rules] })
