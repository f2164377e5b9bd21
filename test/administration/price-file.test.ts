/** Price books are read from a file, which contains all prices or only the changes. */
import { describe, expect, test } from 'vitest'
import { checkChangedBook, priceRulesOf } from '../../src/administration/prices/price-file.ts'
import { defaultPriceBook } from '../../src/billing/price-book.ts'

const base = defaultPriceBook.rules
const read = (content: unknown, over = base as typeof base) =>
  priceRulesOf(content, { field: 'file', base: over })
const withAmount = (amount: string) =>
  base.map((rule) => (rule.rule === 'ip_lookup.located' ? { ...rule, amount } : rule))

describe('a file that names the price book it changes', () => {
  const check = (content: unknown, base: number | null) => () =>
    checkChangedBook(content, { field: 'file', base, from: '2099-01-01T00:00:00.000Z' })
  const rules = [{ rule: 'ip_lookup.located', amount: '2' }]

  test('is accepted for this book, and a file that names none for every book', () => {
    expect(check({ price_book_version: 3, rules }, 3)).not.toThrow()
    for (const content of [rules, { rules }, { in_force: { rules } }]) expect(check(content, 3)).not.toThrow()
  })

  test.each([
    [4, 'but price book 4 will be in force at 2099-01-01T00:00:00.000Z'],
    [null, 'but no price book will be in force at 2099-01-01T00:00:00.000Z'],
  ])('is refused if another one will be in force: %s', (base, sentence) => {
    expect(check({ price_book_version: 3, rules }, base)).toThrow(
      `these are changes to price book 3, ${sentence}`,
    )
  })

  test.each(['3', 0, 1.5, null])('is refused if the version is %j', (version) => {
    expect(check({ price_book_version: version, rules }, 3)).toThrow('price_book_version: ')
  })
})

describe('a file', () => {
  test.each([
    ['rules alone', withAmount('1.5')],
    ['a book', { version: 3, rules: withAmount('1.5') }],
    ['what "price show" prints', { in_force: { rules: withAmount('1.5') }, upcoming: [] }],
  ])('can contain %s, completely', (_, content) => {
    expect(read(content, [])).toEqual(withAmount('1.5'))
  })

  test.each([
    ['a rule', [{ rule: 'ip_lookup.located', rule_version: 1, sku: 'ip_lookup', amount: '1.5' }]],
    ['what changes of a rule', [{ rule: 'ip_lookup.located', amount: '1.50' }]],
  ])('can contain only %s: the rest comes from the book that it changes', (_, content) => {
    expect(read(content)).toEqual(withAmount('1.5'))
  })

  test('can make a rule of its SKU free', () => {
    const [changed] = read([{ rule: 'ip_lookup.located', sku: null, amount: '0' }]).filter(
      ({ rule }) => rule === 'ip_lookup.located',
    )
    expect(changed).toEqual({ rule: 'ip_lookup.located', rule_version: 1, sku: null, amount: '0' })
  })

  test.each([
    ['rules: a list is expected', {}],
    ['rules: at least 1', []],
    ['rules[0].rule: ', [{ amount: '1' }]],
    ['rules[0]: there is no member "ammount"', [{ rule: 'whoami', ammount: '1' }]],
    ['there is no member "price_book"', { price_book: 3, rules: [{ rule: 'whoami' }] }],
    ['rule whoami has no SKU, so calls would still be free', [{ rule: 'whoami', amount: '5' }]],
    ['there is no rule "sold"', [{ rule: 'sold', rule_version: 1, sku: null, amount: '0' }]],
    ['rule whoami has no version 2', [{ rule: 'whoami', rule_version: 2 }]],
    ['rule whoami occurs twice', [{ rule: 'whoami' }, { rule: 'whoami' }]],
    ['rule ip_lookup.located: "1e3" is not a decimal number', [{ rule: 'ip_lookup.located', amount: '1e3' }]],
  ])('is refused with a sentence: %s', (sentence, content) => {
    expect(() => read(content)).toThrow(sentence)
  })

  test('is refused if it and the book that it changes do not make a complete book', () => {
    const some = base.filter(({ rule }) => rule !== 'whoami')
    expect(() => read([{ rule: 'ip_lookup.located', amount: '2' }], some)).toThrow(
      'a price book must be complete, but neither these rules nor the book in force at that time contain whoami',
    )
    expect(() => read([{ rule: 'whoami', amount: '2' }], some)).toThrow(
      'rule whoami is not in the price book to be changed: give its rule_version, sku and amount',
    )
  })
})
