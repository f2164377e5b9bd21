import { expect, test } from 'vitest'
import { createRate, ownersAgreed, ownersWanted } from '../../src/peers/owners-wanted.ts'
import { createOwnership } from '../../src/peers/ownership.ts'
import type { Peer } from '../../src/peers/peer.ts'

const limits = { commandsPerOwnerSecond: 5_000, ownersMin: 1 }

test.each([
  [1, 0, 1],
  [1, 5_000, 1],
  [1, 5_001, 2],
  [1, 24_000, 5],
  // One less only when the rest would have room.
  [2, 4_900, 2],
  [2, 3_500, 1],
  [5, 15_000, 5],
  [5, 9_000, 3],
])('%d that write %d commands per second: %d should', (now, perSecond, wanted) => {
  expect(ownersWanted(now, perSecond, limits)).toBe(wanted)
})

test('what is wanted stays once it is followed, at any rate', () => {
  for (let perSecond = 0; perSecond < 60_000; perSecond += 137)
    for (const before of [1, 2, 5, 12]) {
      const wanted = ownersWanted(before, perSecond, limits)
      expect(ownersWanted(wanted, perSecond, limits)).toBe(wanted)
    }
})

test('what the process that lives longest finds holds for all; where it is not known, nothing changes', () => {
  const rows = [
    { id: '01B', owners: 3 },
    { id: '01A', owners: 2 },
  ]
  expect(ownersAgreed(['01B', '01A'], rows, 7)).toBe(2)
  expect(ownersAgreed(['01B', '010'], rows, 7)).toBe(7)
  expect(ownersAgreed([], rows, 7)).toBe(7)
})

test('a rate follows what is counted within half a minute, and a burst hardly moves it', () => {
  const rate = createRate()
  expect(rate(0, 0)).toBe(0)
  let now = 0
  for (let second = 1; second <= 30; second++) now = rate(second * 1_000, second * 1_000)
  expect(now).toBeGreaterThan(940)
  expect(now).toBeLessThan(1_000)
  expect(rate(40_000, 30_100)).toBeLessThan(2_000)
  expect(rate(40_000, 30_100)).toBeLessThan(2_000)
})

test('the processes that live longest write, as many as are wanted, and one that comes or goes changes nothing else', () => {
  const peer = (id: string): Peer => ({ id, ask: () => true })
  const [a, c] = [peer('01A'), peer('01C')]
  const ownership = createOwnership('01B')
  const organizations = Array.from({ length: 200 }, (_, i) => `org_${i}`)
  const owners = (): Set<string> => new Set(organizations.map((one) => ownership.ownerOf(one)?.id ?? 'this'))
  expect(ownership.share([null], 1)).toBe(true)
  expect(owners()).toEqual(new Set(['this']))
  ownership.share([null, c], 1)
  expect(owners()).toEqual(new Set(['this']))
  expect(ownership.share([null, c, a], 1)).toBe(true)
  expect(owners()).toEqual(new Set(['01A']))
  expect(ownership.share([null, c, a], 2)).toBe(false)
  expect(owners()).toEqual(new Set(['01A', 'this']))
  ownership.share([null, c, a], 9)
  expect(owners()).toEqual(new Set(['01A', 'this', '01C']))
  ownership.share([c], 9)
  expect(owners()).toEqual(new Set(['01C']))
  ownership.share([], 9)
  expect(owners()).toEqual(new Set(['this']))
})
