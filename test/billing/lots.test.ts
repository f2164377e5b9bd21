/** Lots decide which credits are used first. Two processes must always agree, so the order is total. */
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { draw, drawable, drawOrder, type Lot } from '../../src/billing/lots.ts'
import { parseCredits } from '../../src/billing/money.ts'
import { randomCases } from '../support/exhaustive.ts'

const never = Number.POSITIVE_INFINITY
const seed = 20_260_914

const lot = (own: Partial<Lot> & { grantId: string }): Lot => ({
  priority: 10,
  expiresAtMs: never,
  revision: 1,
  granted: 10_000_000n,
  remaining: 10_000_000n,
  ...own,
})

/** The lots of one account, each granted at its own revision. */
const accountLots = fc
  .uniqueArray(
    fc.record({
      revision: fc.nat({ max: 1_000 }),
      priority: fc.nat({ max: 3 }),
      expiresAtMs: fc.oneof(
        fc.constant(never),
        fc.integer({ min: 1, max: 5 }).map((n) => n * 1_000),
      ),
      remaining: fc.bigInt({ min: 0n, max: 20_000_000n }),
    }),
    { selector: ({ revision }) => revision, maxLength: 12 },
  )
  .map((lots) => lots.map((own) => lot({ grantId: `g${own.revision}`, ...own, granted: own.remaining })))

describe('the draw order', () => {
  test('priority decides first, then expiry, then age', () => {
    const inOrder = [
      lot({ grantId: 'promotion, expired long ago', priority: 0, expiresAtMs: 1, revision: 90 }),
      lot({ grantId: 'promotion, never expires', priority: 0, revision: 80 }),
      lot({ grantId: 'expires first', expiresAtMs: 1_000, revision: 70 }),
      lot({ grantId: 'expires then, older', expiresAtMs: 2_000, revision: 50 }),
      lot({ grantId: 'expires then, younger', expiresAtMs: 2_000, revision: 60 }),
      lot({ grantId: 'never expires, older', revision: 3 }),
      lot({ grantId: 'never expires, younger', revision: 4 }),
      lot({ grantId: 'last resort', priority: 11, expiresAtMs: 1, revision: 0 }),
    ]
    const names = (lots: readonly Lot[]) => lots.map(({ grantId }) => grantId)
    for (const shuffled of [inOrder.toReversed(), [...inOrder.slice(3), ...inOrder.slice(0, 3)]])
      expect(names(shuffled.toSorted(drawOrder))).toEqual(names(inOrder))
  })

  test('is total: any two lots of an account have one order, and every sort gives the same result', () => {
    fc.assert(
      fc.property(accountLots, fc.infiniteStream(fc.nat()), (lots, random) => {
        const sorted = lots.toSorted(drawOrder)
        const shuffled = lots
          .map((own) => ({ own, at: random.next().value }))
          .toSorted((a, b) => a.at - b.at)
          .map(({ own }) => own)
        expect(shuffled.toSorted(drawOrder)).toEqual(sorted)
        for (const [i, a] of sorted.entries())
          for (const [j, b] of sorted.entries()) {
            const order = drawOrder(a, b)
            expect(Math.sign(order)).toBe(Math.sign(i - j))
            expect(Number.isNaN(order)).toBe(false)
          }
      }),
      { seed, numRuns: randomCases(500) },
    )
  })
})

describe('drawing', () => {
  test('empties each lot before the next, and does not change the lots', () => {
    const lots = [
      lot({ grantId: 'a', remaining: 2_500_000n }),
      lot({ grantId: 'empty', remaining: 0n }),
      lot({ grantId: 'b', remaining: 4_000_000n }),
      lot({ grantId: 'c' }),
    ]
    const before = structuredClone(lots)
    expect(draw(lots, 5_000_001n, 0)).toEqual({
      allocations: [
        { grant_id: 'a', amount: '2.5' },
        { grant_id: 'b', amount: '2.500001' },
      ],
      uncovered: 0n,
    })
    expect(lots).toEqual(before)
  })

  test('takes exactly what is available, and returns the missing amount', () => {
    const lots = [lot({ grantId: 'a', remaining: 1_000_000n })]
    expect(draw(lots, 1_000_000n, 0)).toEqual({
      allocations: [{ grant_id: 'a', amount: '1' }],
      uncovered: 0n,
    })
    expect(draw(lots, 1_000_001n, 0)).toEqual({
      allocations: [{ grant_id: 'a', amount: '1' }],
      uncovered: 1n,
    })
    expect(draw([], 5n, 0)).toEqual({ allocations: [], uncovered: 5n })
    expect(draw(lots, 0n, 0)).toEqual({ allocations: [], uncovered: 0n })
  })

  test('a lot can be used until the millisecond before its expiry, and not after that', () => {
    const lots = [lot({ grantId: 'a', expiresAtMs: 1_000, remaining: 1n })]
    expect(drawable(lots, 999)).toBe(1n)
    expect(draw(lots, 1n, 999)).toEqual({
      allocations: [{ grant_id: 'a', amount: '0.000001' }],
      uncovered: 0n,
    })
    for (const atMs of [1_000, 1_001]) {
      expect(drawable(lots, atMs)).toBe(0n)
      expect(draw(lots, 1n, atMs)).toEqual({ allocations: [], uncovered: 1n })
    }
  })

  test('never takes more than a lot has, never from an expired lot, keeps the order, and accounts for every micro-credit', () => {
    const cases = fc.tuple(
      accountLots,
      fc.bigInt({ min: 0n, max: 80_000_000n }),
      fc.integer({ min: 0, max: 6_000 }),
    )
    fc.assert(
      fc.property(cases, ([unsorted, amount, atMs]) => {
        const lots = unsorted.toSorted(drawOrder)
        const { allocations, uncovered } = draw(lots, amount, atMs)
        const parts = allocations.map(({ grant_id, amount: text }) => {
          const at = lots.findIndex(({ grantId }) => grantId === grant_id)
          const from = lots[at]
          if (from === undefined) throw new Error(`${grant_id} is no lot`)
          return { at, from, part: parseCredits(text) }
        })
        const taken = parts.reduce((sum, { part }) => sum + part, 0n)
        expect(taken + uncovered).toBe(amount)
        expect(uncovered).toBe(amount > drawable(lots, atMs) ? amount - drawable(lots, atMs) : 0n)
        for (const [n, { at, from, part }] of parts.entries()) {
          expect(part).toBeGreaterThan(0n)
          expect(part).toBeLessThanOrEqual(from.remaining)
          expect(from.expiresAtMs).toBeGreaterThan(atMs)
          expect(at).toBeGreaterThan(parts[n - 1]?.at ?? -1)
          if (n < parts.length - 1) expect(part).toBe(from.remaining)
        }
        const untouched = lots
          .slice(0, parts.at(-1)?.at ?? 0)
          .filter((own) => !parts.some(({ from }) => from === own))
        for (const own of untouched) expect(own.remaining === 0n || own.expiresAtMs <= atMs).toBe(true)
      }),
      { seed, numRuns: randomCases(500) },
    )
  })
})
