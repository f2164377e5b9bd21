import { expect, test } from 'vitest'
import { eventIdOf } from '../../src/event-log/event-id.ts'
import { RecentCommands } from '../../src/ledger/recent-commands.ts'

const id = (n: number): string => eventIdOf('org', `call-${n}`, 0)
/** Commands of two events each, from revision 1 on: the nth ends at 2n. */
const noted = (count: number): RecentCommands => {
  const recent = new RecentCommands()
  recent.reset(0)
  for (let n = 1; n <= count; n++) recent.note(id(n), 2 * n)
  return recent
}

test('what was noted behind a revision may be there; what was not, is not', () => {
  const recent = noted(20)
  expect(recent.mayHold(id(20), 38)).toBe(true)
  expect(recent.mayHold(id(1), 0)).toBe(true)
  expect(recent.mayHold(id(19), 38)).toBe(false)
  expect(recent.mayHold(id(21), 0)).toBe(false)
  expect(recent.mayHold(id(20), 40)).toBe(false)
})

test('it knows how far back it reaches, and says nothing of what lies before', () => {
  const recent = new RecentCommands()
  recent.reset(100)
  expect([recent.mayHold(id(1), 99), recent.mayHold(id(1), 100)]).toEqual([null, false])
  recent.note(id(1), 102)
  expect([recent.mayHold(id(1), 99), recent.mayHold(id(1), 100)]).toEqual([null, true])
})

test('however many commands come, the last 512 are known and the memory is bounded', () => {
  for (const count of [511, 512, 1_023, 1_024, 1_025, 5_000]) {
    const recent = noted(count)
    const after = 2 * Math.max(0, count - 512)
    for (let n = Math.max(1, count - 511); n <= count; n++) expect(recent.mayHold(id(n), after)).toBe(true)
    expect(recent.mayHold('ffffffff-ffff-5fff-8fff-ffffffffffff', after)).toBe(false)
    // What it has forgotten it does not take for absent.
    const reach = Array.from({ length: count + 1 }, (_, n) => recent.mayHold('none', 2 * n)).indexOf(false)
    expect(count - reach).toBeLessThan(1_024)
    for (let n = 1; n <= reach; n += 97) expect(recent.mayHold(id(n), 2 * n - 2)).not.toBe(false)
  }
})

test('what is noted twice, or late, is known once', () => {
  const recent = noted(3)
  recent.note(id(2), 4)
  recent.note(id(3), 6)
  expect(recent.mayHold(id(3), 5)).toBe(true)
  expect(recent.mayHold(id(2), 4)).toBe(false)
})
