import type { RuleChange } from '../billing/price-rules.ts'
import type { PriceBookRule } from '../events/prices.ts'
import { table } from './table.ts'

/** A row for each rule of a price book. */
export const ruleLines = (rules: readonly PriceBookRule[]): string[] =>
  table(
    rules.map(({ rule, rule_version, sku, amount }) => ({
      rule,
      version: rule_version,
      sku,
      credits: amount,
    })),
  )

/** A row for each rule that differs between the books. */
export const changeLines = (changes: readonly RuleChange[]): string[] =>
  changes.length === 0
    ? ['the rules are the same']
    : table(
        changes.map(({ rule, from, to }) => ({
          rule,
          sku: to === null ? from?.sku : to.sku,
          version: from?.rule_version,
          credits: from?.amount,
          'to version': to?.rule_version,
          'to credits': to?.amount,
        })),
      )
