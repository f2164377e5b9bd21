/** The maximum cost of calls in progress, added up by organization. Each hold is released once. */
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { createReservations } from '../../src/ledger/write/reservations.ts'
import { randomCases } from '../support/exhaustive.ts'

test('an organization without calls in progress has nothing on hold', () => {
  expect(createReservations().held('org_a')).toBe(0n)
})

test('holds add up for each organization separately', () => {
  const reservations = createReservations()
  reservations.hold('org_a', 1_000_000n)
  reservations.hold('org_a', 2n)
  reservations.hold('org_b', 5n)
  expect([reservations.held('org_a'), reservations.held('org_b'), reservations.held('org_c')]).toEqual([
    1_000_002n,
    5n,
    0n,
  ])
})

test('a hold is released once, even if it is released repeatedly', () => {
  const reservations = createReservations()
  const release = reservations.hold('org_a', 3n)
  reservations.hold('org_a', 4n)
  release()
  release()
  expect(reservations.held('org_a')).toBe(4n)
})

test('a hold of zero counts as a hold', () => {
  const reservations = createReservations()
  const release = reservations.hold('org_a', 0n)
  expect(reservations.held('org_a')).toBe(0n)
  release()
  expect(reservations.held('org_a')).toBe(0n)
})

test('in any order of holds and releases, the total is the sum of the holds not yet released', () => {
  const step = fc.record({
    organization: fc.constantFrom('org_a', 'org_b', 'org_c'),
    amount: fc.bigInt(0n, 10n ** 15n),
    release: fc.nat({ max: 20 }),
  })
  fc.assert(
    fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
      const reservations = createReservations()
      const holds: { organization: string; amount: bigint; release: () => void; held: boolean }[] = []
      for (const { organization, amount, release } of steps) {
        holds.push({
          organization,
          amount,
          release: reservations.hold(organization, amount),
          held: true,
        })
        // Some steps release nothing, and some repeat a release.
        const released = holds[release]
        released?.release()
        if (released !== undefined) released.held = false
        for (const name of ['org_a', 'org_b', 'org_c']) {
          const left = holds.filter((one) => one.held && one.organization === name)
          expect(reservations.held(name)).toBe(left.reduce((sum, one) => sum + one.amount, 0n))
        }
      }
    }),
    { seed: 1, numRuns: randomCases(300) },
  )
})
