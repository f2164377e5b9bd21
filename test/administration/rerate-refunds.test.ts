/** Re-rating refunded or reversed calls does not undo their refunds. */
import fc from 'fast-check'
import { beforeEach, describe, expect, test } from 'vitest'
import { planSections } from '../../src/administration/rerates/queries.ts'
import { formatCredits, parseCredits } from '../../src/billing/money.ts'
import { defaultPriceBook, priceBookOf } from '../../src/billing/price-book.ts'
import { sectionLines } from '../../src/cli/table.ts'
import { randomCases } from '../support/exhaustive.ts'
import {
  apply,
  approved,
  balance,
  beginAnew,
  call,
  costOf,
  opened,
  plan,
  prices,
  refund,
} from './rerate-scene.ts'

beforeEach(beginAnew)

describe('a call that was refunded or reversed', () => {
  const empty = { calls_affected: 0, given: '0', taken: '0' }

  test('is not charged again if prices are unchanged, and is listed separately', async () => {
    const scene = await opened('10')
    const [partly, whole, reversed] = [await call(scene), await call(scene), await call(scene)]
    await refund(scene, partly, '0.4')
    await refund(scene, whole, '1')
    await refund(scene, reversed, '1', 'reversal')
    const { ledgers, proposed } = await plan(scene, prices('1'))
    expect(proposed).toMatchObject({ calls: 3, ...empty })
    expect(ledgers[0]?.refunded).toEqual({
      calls: 3,
      given_back: '2.4',
      first: [
        { request_id: partly, given_back: '0.4', now: '0.6', rerated: '0.6' },
        { request_id: whole, given_back: '1', now: '0', rerated: '0' },
        { request_id: reversed, given_back: '1', now: '0', rerated: '0' },
      ],
    })
    expect(sectionLines(planSections({ proposed, ledgers })).join('\n')).toMatch(
      /Refunded or reversed calls of org_\w+: 3\. The re-rate keeps the 2\.4 credits .*\n.*rerated\nr0 +0\.4 +0\.6 +0\.6\n/,
    )
  })

  test.each([
    ['3', ['2.6', '0', '0']],
    ['0.5', ['0.1', '0', '0']],
    ['0.3', ['0', '0', '0']],
  ] as const)(
    'keeps its refund at a price of %s: never below zero, and zero after a full refund',
    async (price, costs) => {
      const scene = await opened('10')
      const made = [await call(scene), await call(scene), await call(scene)] as const
      await refund(scene, made[0], '0.4')
      await refund(scene, made[1], '1')
      await refund(scene, made[2], '1', 'reversal')
      await apply(scene, await approved(scene, await plan(scene, prices(price))))
      expect(await Promise.all(made.map((one) => costOf(scene, one)))).toEqual(costs.map(parseCredits))
      expect((await plan(scene, prices(price))).proposed).toMatchObject(empty)
      // A refund is a fixed amount, so it counts in full again when the previous price is restored.
      await apply(scene, await approved(scene, await plan(scene, prices('1'))))
      expect(await costOf(scene, made[0])).toBe(600_000n)
      expect(await balance(scene)).toBe('9.4')
    },
  )

  test('is never among the calls that could not have been paid after a full refund', async () => {
    const scene = await opened('1')
    await refund(scene, await call(scene), '1')
    expect((await plan(scene, prices('5'))).ledgers[0]).toMatchObject({
      taken: '0',
      uncollected: '0',
      unaffordable: { calls: 0, first: [] },
    })
  })

  test('unchanged prices give an empty plan, and changed prices give the price minus the refunds, for any history', async () => {
    const price = fc.integer({ min: 0, max: 30 }).map((tenths) => String(tenths / 10))
    const step = fc.oneof(
      fc.record({ kind: fc.constant('call' as const), located: fc.boolean() }),
      fc.record({
        kind: fc.constantFrom('refund' as const, 'reversal' as const),
        of: fc.nat(),
        tenths: fc.integer({ min: 1, max: 10 }),
      }),
      fc.record({ kind: fc.constant('rerate' as const), located: price, other: price }),
    )
    type Made = { requestId: string; located: boolean; charged: boolean; back: bigint; whole: boolean }
    const [seen, most] = [{ whole: 0, part: 0, below: 0 }, 1_000n * 1_000_000n]
    await fc.assert(
      fc.asyncProperty(fc.array(step, { minLength: 4, maxLength: 16 }), async (steps) => {
        beginAnew()
        const scene = await opened(formatCredits(most))
        let current = { located: '1', other: '0' }
        const made: Made[] = []
        const priceOf = ({ located }: Made): bigint => parseCredits(current[located ? 'located' : 'other'])
        const expectedOf = (one: Made): bigint => {
          const left = priceOf(one) - one.back
          return one.whole || left < 0n ? 0n : left
        }
        const planned = () => plan(scene, prices(current.located, current.other))
        const happens = async (one: (typeof steps)[number]): Promise<void> => {
          if (one.kind === 'call') {
            const rules = prices(current.located, current.other)
            const requestId = await call(scene, one.located, priceBookOf({ ...defaultPriceBook, rules }))
            const fresh = { requestId, located: one.located, charged: true, back: 0n, whole: false }
            made.push({ ...fresh, charged: priceOf(fresh) > 0n })
          } else if (one.kind === 'rerate') {
            current = { located: one.located, other: one.other }
            if (made.length > 0) await apply(scene, await approved(scene, await planned()))
          } else {
            const given = made[one.of % Math.max(1, made.length)]
            if (given === undefined || !given.charged) return
            const now = expectedOf(given)
            const amount = one.kind === 'reversal' ? now : (now * BigInt(one.tenths)) / 10n
            if (amount === 0n) return
            await refund(scene, given.requestId, formatCredits(amount), one.kind)
            given.back += amount
            given.whole = amount === now
          }
        }
        for (const one of steps) {
          await happens(one)
          if (made.length === 0) continue
          let spent = 0n
          for (const single of made) {
            expect(await costOf(scene, single.requestId)).toBe(expectedOf(single))
            spent += expectedOf(single)
            if (one.kind !== 'rerate') continue
            if (single.whole) seen.whole++
            else if (single.back > priceOf(single)) seen.below++
            else if (single.back > 0n) seen.part++
          }
          expect(await balance(scene)).toBe(formatCredits(most - spent))
          const { proposed, ledgers } = await planned()
          expect(proposed).toMatchObject({ calls: made.length, ...empty })
          expect(ledgers[0]?.refunded?.calls).toBe(made.filter(({ back }) => back > 0n).length)
          for (const { now, rerated } of ledgers[0]?.refunded?.first ?? []) expect(rerated).toBe(now)
        }
      }),
      { seed: 20_261_124, numRuns: randomCases(60) },
    )
    for (const often of Object.values(seen)) expect(often).toBeGreaterThan(randomCases(5))
  })
})
