/** The tariff as a table: for each fact, the rule that decides and the price. The most decisive rule comes first. */
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { parseCredits } from '../../src/billing/money.ts'
import {
  defaultPriceBook,
  type PriceBook,
  type PricedRule,
  priceBookOf,
} from '../../src/billing/price-book.ts'
import { becauseOf, knownRules, NoRule, type PriceOverride, rate, tariff } from '../../src/billing/tariff.ts'
import type { CallFacts } from '../../src/events/calls.ts'
import { priceBookPublishedV1 } from '../../src/events/prices.ts'
import { randomCases } from '../support/exhaustive.ts'

const hmac = 'q83vEjRWeJCrze8SNFZ4kKvN7xI0VniQq83vEjRWeJA'
const located = {
  kind: 'ip_lookup',
  success: true,
  country_code: 'CZ',
  address_hmac: hmac,
} satisfies CallFacts
const notLocated = {
  kind: 'ip_lookup',
  success: false,
  country_code: null,
  address_hmac: hmac,
} satisfies CallFacts
const validated = (
  status: 'valid' | 'invalid' | 'risky' | 'unknown',
  company_status: 'found' | 'not_found' | 'not_requested' | 'not_applicable' = 'not_requested',
) =>
  ({
    kind: 'email_validation',
    status,
    sub_status: 'accepted',
    decision_row: 17,
    company_status,
    domain: 'example.com',
    address_hmac: hmac,
  }) satisfies CallFacts
const profile = (source: 'cached' | 'fresh' | 'deleted') =>
  ({
    kind: 'profile',
    source,
    age_seconds: 0,
    subject_id: 'sub_01J8ZQ5V7N3K2M4P6R8T0W1X2Y',
  }) satisfies CallFacts
const validLine = { sku: 'email_validation', amount: '1', rule: 'email_validation.valid' }
const companyLine = { sku: 'company_data', amount: '2', rule: 'email_validation.company_found' }
const noOverride: PriceOverride = () => undefined

type Row = {
  fact: string
  facts: CallFacts
  rule: string
  lines: { sku: string; amount: string; rule: string }[]
}

const table: Row[] = [
  {
    fact: '4.1.1 a valid e-mail address',
    facts: validated('valid'),
    rule: 'email_validation.valid',
    lines: [validLine],
  },
  {
    fact: '4.1.2 a valid one whose company was found',
    facts: validated('valid', 'found'),
    rule: 'email_validation.valid',
    lines: [validLine, companyLine],
  },
  {
    fact: '4.1.4 a valid one whose company was asked for and not found',
    facts: validated('valid', 'not_found'),
    rule: 'email_validation.valid',
    lines: [validLine],
  },
  {
    fact: 'a valid one of a domain that has no company',
    facts: validated('valid', 'not_applicable'),
    rule: 'email_validation.valid',
    lines: [validLine],
  },
  {
    fact: 'a risky one whose company was found',
    facts: validated('risky', 'found'),
    rule: 'email_validation.company_found',
    lines: [companyLine],
  },
  {
    fact: 'an undetermined one, if ever its company was found (decision 10)',
    facts: validated('unknown', 'found'),
    rule: 'email_validation.unknown',
    lines: [],
  },
  {
    fact: 'a disposable one, if ever its company was found (decision 10)',
    facts: { ...validated('risky', 'found'), sub_status: 'disposable', decision_row: 8 },
    rule: 'email_validation.risky',
    lines: [],
  },
  {
    fact: '4.1.3 an invalid e-mail address',
    facts: validated('invalid', 'not_applicable'),
    rule: 'email_validation.invalid',
    lines: [],
  },
  {
    fact: 'a risky one whose company was not found',
    facts: validated('risky', 'not_found'),
    rule: 'email_validation.risky',
    lines: [],
  },
  { fact: 'an undetermined one', facts: validated('unknown'), rule: 'email_validation.unknown', lines: [] },
  {
    fact: 'a profile from the cache',
    facts: profile('cached'),
    rule: 'profile.cached',
    lines: [{ sku: 'profile_cached', amount: '2', rule: 'profile.cached' }],
  },
  {
    fact: 'a fresh profile',
    facts: profile('fresh'),
    rule: 'profile.fresh',
    lines: [{ sku: 'profile_fresh', amount: '5', rule: 'profile.fresh' }],
  },
  { fact: 'that a person was deleted', facts: profile('deleted'), rule: 'profile.deleted', lines: [] },
  {
    fact: 'a pixel decision',
    facts: { kind: 'pixel', action: 'decided', domain: 'example.com', fire: true },
    rule: 'pixel',
    lines: [],
  },
  {
    fact: 'an address that was located',
    facts: located,
    rule: 'ip_lookup.located',
    lines: [{ sku: 'ip_lookup', amount: '1', rule: 'ip_lookup.located' }],
  },
  {
    fact: 'one located without a country',
    facts: { ...located, country_code: null },
    rule: 'ip_lookup.located',
    lines: [{ sku: 'ip_lookup', amount: '1', rule: 'ip_lookup.located' }],
  },
  { fact: 'an address that was not', facts: notLocated, rule: 'ip_lookup.not_located', lines: [] },
  { fact: 'whoami', facts: { kind: 'whoami' }, rule: 'whoami', lines: [] },
  { fact: 'a look at the balance', facts: { kind: 'account', view: 'balance' }, rule: 'account', lines: [] },
  {
    fact: 'an export',
    facts: { kind: 'ledger_export', from_revision: 0, through_revision: 9 },
    rule: 'ledger_export',
    lines: [],
  },
  { fact: 'an answer that went out again', facts: { kind: 'replay' }, rule: 'replay', lines: [] },
  { fact: 'a refusal', facts: { kind: 'refusal', code: 'REQ_002' }, rule: 'refusal', lines: [] },
  {
    fact: 'a refusal for want of credits',
    facts: { kind: 'refusal', code: 'CREDIT_001' },
    rule: 'refusal',
    lines: [],
  },
]

const book = priceBookOf(defaultPriceBook)

/** A price book with some rules changed, or removed (undefined). */
const bookWith = (own: Record<string, Partial<PricedRule> | undefined>): PriceBook => {
  const rules = new Map(book.rules)
  for (const [rule, priced] of Object.entries(own)) {
    if (priced === undefined) rules.delete(rule)
    else rules.set(rule, { ruleVersion: 1, sku: null, amount: 0n, ...rules.get(rule), ...priced })
  }
  return { ...book, version: 7, rules }
}

describe('the default price book', () => {
  test.each(table)('$fact is decided by $rule', ({ facts, rule, lines }) => {
    expect(rate(facts, book, noOverride)).toEqual({
      total: lines.reduce((sum, { amount }) => sum + parseCredits(amount), 0n),
      lines: lines.map((line) => ({
        ...line,
        amount: parseCredits(line.amount),
        ruleVersion: knownRules().get(line.rule),
      })),
      rule,
      ruleVersion: knownRules().get(rule),
      priceBookVersion: 1,
    })
  })

  test('can be published: it fits its own event schema', () => {
    expect(priceBookPublishedV1.parse(defaultPriceBook)).toEqual(defaultPriceBook)
  })

  test('names every rule in its newest version, and no other', () => {
    expect(new Map(defaultPriceBook.rules.map(({ rule, rule_version }) => [rule, rule_version]))).toEqual(
      knownRules(),
    )
    expect(defaultPriceBook.rules).toHaveLength(knownRules().size)
  })

  test('every rule decides some row of this table', () => {
    const deciding = new Set(table.flatMap(({ rule, lines }) => [rule, ...lines.map((line) => line.rule)]))
    expect([...deciding].sort()).toEqual(defaultPriceBook.rules.map(({ rule }) => rule).sort())
  })

  test('prices only charged facts: a rule without a SKU has no price', () => {
    for (const { sku, amount } of defaultPriceBook.rules)
      expect(sku === null).toBe(parseCredits(amount) === 0n)
  })
})

describe('email_validation.company_found', () => {
  test('version 1 still prices the same facts, when the company of an unknown address was charged', () => {
    const first = bookWith({ 'email_validation.company_found': { ruleVersion: 1 } })
    expect(rate(validated('unknown', 'found'), first, noOverride)).toMatchObject({
      total: 2_000_000n,
      rule: 'email_validation.company_found',
      ruleVersion: 1,
    })
  })
})

describe('rules', () => {
  test('have unique names', () => {
    const names = Object.values(tariff).flatMap((rules) => rules.map(({ id }) => id))
    expect(new Set(names).size).toBe(names.length)
  })

  test('have the reason that bills show; rules from another release have no reason', () => {
    for (const [rule, newest] of knownRules())
      for (let version = 1; version <= newest; version++)
        expect(becauseOf(rule, version), `${rule} ${version}`).toMatch(/ /)
    const company = 'email_validation.company_found'
    expect(becauseOf(company, 1)).not.toBe(becauseOf(company, 2))
    expect([becauseOf(company, 3), becauseOf('unheard.of', 1)]).toEqual(['', ''])
  })

  test('leave no fact undecided', () => {
    const facts: fc.Arbitrary<CallFacts> = fc.oneof(
      fc.boolean().map((success) => ({ ...located, success })),
      fc.constantFrom<CallFacts>({ kind: 'whoami' }, { kind: 'replay' }),
      fc.constantFrom('REQ_001', 'CREDIT_001', 'SYS_001').map((code) => ({ kind: 'refusal', code }) as const),
    )
    fc.assert(
      fc.property(facts, (any) => {
        const rating = rate(any, book, noOverride)
        expect(rating.total).toBe(rating.lines.reduce((sum, { amount }) => sum + amount, 0n))
        expect(rate(any, book, noOverride)).toEqual(rating)
      }),
      { seed: 20_260_914, numRuns: randomCases(200) },
    )
  })

  test('in a version that this release does not know are refused, even if another rule would match', () => {
    for (const ruleVersion of [2, 0, 99])
      expect(() => rate(located, bookWith({ 'ip_lookup.located': { ruleVersion } }), noOverride)).toThrow(
        NoRule,
      )
    expect(() => rate(notLocated, bookWith({ 'ip_lookup.located': { ruleVersion: 2 } }), noOverride)).toThrow(
      'price book 7 names ip_lookup.located version 2, which this release does not have',
    )
  })

  test('for other facts may be unknown: they are not evaluated', () => {
    expect(rate(located, bookWith({ whoami: { ruleVersion: 2 } }), noOverride).total).toBe(1_000_000n)
  })

  test('that the book leaves out decide nothing; a fact without a rule is refused, never free', () => {
    expect(() => rate(located, bookWith({ 'ip_lookup.located': undefined }), noOverride)).toThrow(NoRule)
    expect(() => rate({ kind: 'whoami' }, bookWith({ whoami: undefined }), noOverride)).toThrow(
      'price book 7 has no rule for whoami facts',
    )
    expect(rate(notLocated, bookWith({ 'ip_lookup.located': undefined }), noOverride).rule).toBe(
      'ip_lookup.not_located',
    )
  })
})

describe('prices', () => {
  test('come from the book, to the micro-credit, and name it', () => {
    const rating = rate(
      located,
      bookWith({ 'ip_lookup.located': { amount: 1n, sku: 'located' } }),
      noOverride,
    )
    expect(rating).toEqual({
      total: 1n,
      lines: [{ sku: 'located', amount: 1n, rule: 'ip_lookup.located', ruleVersion: 1 }],
      rule: 'ip_lookup.located',
      ruleVersion: 1,
      priceBookVersion: 7,
    })
  })

  test('of the organization take precedence, by SKU', () => {
    const asked: string[] = []
    const rating = rate(located, bookWith({ 'ip_lookup.located': { sku: 'located' } }), (sku) => {
      asked.push(sku)
      return 250_000n
    })
    expect(asked).toEqual(['located'])
    expect(rating.total).toBe(250_000n)
    expect(rating.lines).toEqual([
      { sku: 'located', amount: 250_000n, rule: 'ip_lookup.located', ruleVersion: 1 },
    ])
  })

  test.each([
    { from: 'the book', zero: rate(located, bookWith({ 'ip_lookup.located': { amount: 0n } }), noOverride) },
    { from: "the organization's own price", zero: rate(located, bookWith({}), () => 0n) },
  ])('of zero from $from make no line: free, by the rule that would have charged', ({ zero }) => {
    expect(zero).toEqual({
      total: 0n,
      lines: [],
      rule: 'ip_lookup.located',
      ruleVersion: 1,
      priceBookVersion: 7,
    })
  })

  test("an organization's price does not apply to facts without a SKU, and cannot charge for free facts", () => {
    const never: PriceOverride = (sku) => {
      throw new Error(`asked for ${sku}`)
    }
    for (const facts of [notLocated, { kind: 'whoami' }, { kind: 'refusal', code: 'SYS_001' }] as const)
      expect(rate(facts, book, never).total).toBe(0n)
  })
})
