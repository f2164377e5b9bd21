import fc from 'fast-check'
import { expect, test } from 'vitest'
import { destroyedByMs, epochMs, epochOf, isRetired, mayBeDestroyed } from '../../src/guard/secrets/epochs.ts'
import { randomCases } from '../support/exhaustive.ts'

const hourMs = 3_600_000
const dayMs = 24 * hourMs

/** Returns the time at which the hourly job may destroy a key, found by trying every hour. */
const destroyedAtMs = (epoch: number): number => {
  let atMs = epoch * epochMs
  while (!mayBeDestroyed(epoch, atMs)) atMs += hourMs
  return atMs
}

test('no key exists for more than 31 days, with most of a day to spare for a late job', () => {
  for (const epoch of [0, 1, 716, 5_000]) {
    const existsMs = destroyedAtMs(epoch) - epoch * epochMs
    expect(existsMs).toBeLessThanOrEqual(31 * dayMs - 20 * hourMs)
    expect(destroyedByMs(epoch) - epoch * epochMs).toBe(31 * dayMs)
  }
})

test('data sealed in the last moment of an epoch that live for a day are readable for a day', () => {
  fc.assert(
    fc.property(
      fc.integer({ min: 0, max: 4e12 }),
      fc.integer({ min: 0, max: dayMs }),
      (sealedMs, laterMs) => {
        expect(mayBeDestroyed(epochOf(sealedMs), sealedMs + laterMs)).toBe(false)
      },
    ),
    { seed: 1, numRuns: randomCases(2_000) },
  )
})

test('the current key and the next one are in use; earlier keys, and keys that only a wrong clock can have created, are not', () => {
  expect([7, 8, 9, 10, 11].map((epoch) => isRetired(epoch, 9))).toEqual([true, true, false, false, true])
  const nowMs = 9 * epochMs + 5 * dayMs
  expect([7, 8, 9, 10, 11].map((epoch) => mayBeDestroyed(epoch, nowMs))).toEqual([
    true,
    true,
    false,
    false,
    true,
  ])
})
