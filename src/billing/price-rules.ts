import { hash } from 'node:crypto'
import type { PriceBookRule } from '../events/prices.ts'

/** Compares the rules of price books. */

/** The base64url SHA-256 of rules, regardless of their order. Two books with the same digest price every call in the same way. */
export const rulesDigest = (rules: readonly PriceBookRule[]): string =>
  hash(
    'sha256',
    JSON.stringify(
      rules
        .map(({ rule, rule_version, sku, amount }) => [rule, rule_version, sku, amount] as const)
        .sort(([a], [b]) => (a < b ? -1 : 1)),
    ),
    'base64url',
  )

/** The rules of `base` in the same order, with the changed ones replaced, followed by the new rules. */
export const patchedRules = (
  base: readonly PriceBookRule[],
  patch: readonly PriceBookRule[],
): PriceBookRule[] => {
  const changed = new Map(patch.map((rule) => [rule.rule, rule]))
  const known = new Set(base.map(({ rule }) => rule))
  return [
    ...base.map((rule) => changed.get(rule.rule) ?? rule),
    ...patch.filter(({ rule }) => !known.has(rule)),
  ]
}

/** One rule that differs between two books. Null: the book does not contain the rule. */
export type RuleChange = {
  readonly rule: string
  readonly from: PriceBookRule | null
  readonly to: PriceBookRule | null
}

export const ruleChanges = (from: readonly PriceBookRule[], to: readonly PriceBookRule[]): RuleChange[] => {
  const ids = [...new Set([...from, ...to].map(({ rule }) => rule))]
  return ids
    .map((id) => ({
      rule: id,
      from: from.find(({ rule }) => rule === id) ?? null,
      to: to.find(({ rule }) => rule === id) ?? null,
    }))
    .filter((change) => !isSame(change.from, change.to))
}

const isSame = (a: PriceBookRule | null, b: PriceBookRule | null): boolean =>
  a !== null && b !== null && a.rule_version === b.rule_version && a.sku === b.sku && a.amount === b.amount
