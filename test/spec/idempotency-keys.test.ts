import fc from 'fast-check'
import { expect, test } from 'vitest'
import { amountOf } from '../../src/administration/input.ts'
import { commandKeyOf } from '../../src/call/key-lookup.ts'
import { randomCases } from '../support/exhaustive.ts'

test('15 no partner’s key equals another key, a request id, or the name of an internal command', () => {
  const key = fc.string({ unit: fc.constantFrom('a', '/', '1', '2', '-', ':'), minLength: 1, maxLength: 12 })
  fc.assert(
    fc.property(key, key, (one, other) => {
      fc.pre(one !== other)
      expect(commandKeyOf(one)).not.toBe(commandKeyOf(other))
      expect(commandKeyOf(one)).not.toBe(other)
    }),
    { seed: 1, numRuns: randomCases(1_000) },
  )
  for (const own of ['refunded/', 'failed/', 'fence/', 'refused/'])
    expect(commandKeyOf(own)).not.toMatch(`^${own}`)
})

test('8 an operator cannot enter more credits than the read models can store', () => {
  expect(amountOf('amount', '1000000000', { zero: false })).toBe(1_000_000_000_000_000n)
  for (const text of ['1000000000.000001', '10000000000000', '-1', '0', '1e3', '', '1.0000001'])
    expect(() => amountOf('amount', text, { zero: false }), text).toThrow(
      expect.objectContaining({
        field: 'amount',
        message: expect.stringContaining('is not a positive decimal number of credits'),
      }),
    )
  expect(amountOf('amount', '0', { zero: true })).toBe(0n)
})
