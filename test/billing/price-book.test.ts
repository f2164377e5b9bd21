/** The price book in force is dated, complete and never changed. */
import { createHash } from 'node:crypto'
import { describe, expect, test } from 'vitest'
import { defaultPriceBook, type PriceBook, priceBookAt, priceBookOf } from '../../src/billing/price-book.ts'

const effective = (version: number, from: string): PriceBook =>
  priceBookOf({ ...defaultPriceBook, version, effective_from: from })
const at = (books: readonly PriceBook[], instant: string): number | undefined =>
  priceBookAt(books, Date.parse(instant))?.version

test('a published book is read completely, with amounts in micro-credits', () => {
  const published = {
    version: 3,
    effective_from: '2026-10-01T00:00:00.000Z',
    rules: [
      { rule: 'ip_lookup.located', rule_version: 2, sku: 'ip_lookup', amount: '0.800001' },
      { rule: 'whoami', rule_version: 1, sku: null, amount: '0' },
    ],
    approver: 'cfo',
  }
  expect(priceBookOf(published)).toEqual({
    version: 3,
    effectiveFromMs: Date.UTC(2026, 9, 1),
    rules: new Map([
      ['ip_lookup.located', { ruleVersion: 2, sku: 'ip_lookup', amount: 800_001n }],
      ['whoami', { ruleVersion: 1, sku: null, amount: 0n }],
    ]),
    // Only the content counts, because anyone can recompute the digest.
    digest: createHash('sha256')
      .update(
        '[3,"2026-10-01T00:00:00.000Z",[["ip_lookup.located",2,"ip_lookup","0.800001"],["whoami",1,null,"0"]]]',
      )
      .digest('base64url'),
  })
})

describe('in force', () => {
  const books = [
    effective(1, '2026-01-01T00:00:00.000Z'),
    effective(2, '2026-07-01T00:00:00.000Z'),
    effective(3, '2027-01-01T00:00:00.000Z'),
  ]

  test.each([
    ['2025-12-31T23:59:59.999Z', undefined],
    ['2026-01-01T00:00:00.000Z', 1],
    ['2026-06-30T23:59:59.999Z', 1],
    ['2026-07-01T00:00:00.000Z', 2],
    ['2026-07-01T00:00:00.001Z', 2],
    ['2026-12-31T23:59:59.999Z', 2],
    ['2027-01-01T00:00:00.000Z', 3],
    ['2099-01-01T00:00:00.000Z', 3],
  ])('at %s is version %s, in any order of publication', (instant, version) => {
    for (const published of [books, books.toReversed(), [...books.slice(1), ...books.slice(0, 1)]])
      expect(at(published, instant)).toBe(version)
  })

  test('a later version with an earlier date does not replace one with a later date', () => {
    const corrected = [...books, effective(4, '2026-03-01T00:00:00.000Z')]
    expect(at(corrected, '2026-02-28T23:59:59.999Z')).toBe(1)
    expect(at(corrected, '2026-03-01T00:00:00.000Z')).toBe(4)
    expect(at(corrected, '2026-07-01T00:00:00.000Z')).toBe(2)
  })

  test('of two books with the same date, the higher version counts', () => {
    const twice = [
      ...books,
      effective(5, '2026-07-01T00:00:00.000Z'),
      effective(4, '2026-07-01T00:00:00.000Z'),
    ]
    expect(at(twice, '2026-08-01T00:00:00.000Z')).toBe(5)
    expect(at(twice.toReversed(), '2026-08-01T00:00:00.000Z')).toBe(5)
  })

  test('without a book there is no price book in force', () => {
    expect(at([], '2026-08-01T00:00:00.000Z')).toBeUndefined()
  })
})
