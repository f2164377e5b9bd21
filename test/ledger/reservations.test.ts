/** The maximum cost of calls in progress, added up by organization. Each hold is released once. */
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { createReservations } from '../../src/ledger/write/reservations.ts'
import { randomCases } from '../support/exhaustive.ts'

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
