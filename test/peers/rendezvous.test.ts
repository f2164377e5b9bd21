import { randomBytes } from 'node:crypto'
import { ulid } from 'ulid'
import { expect, test } from 'vitest'
import { firstFor, hashOf } from '../../src/peers/rendezvous.ts'

const contender = (id: string) => ({ id, hash: hashOf(id) })
const contenders = (count: number) => Array.from({ length: count }, () => contender(ulid()))
const organizations = Array.from({ length: 10_000 }, () => `org_${ulid()}`)
const shares = (
  among: readonly { id: string; hash: number }[],
  names = organizations,
): Map<string, number> => {
  const counts = new Map(among.map(({ id }) => [id, 0]))
  for (const name of names) {
    const id = firstFor(name, among)?.id ?? ''
    counts.set(id, (counts.get(id) ?? 0) + 1)
  }
  return counts
}

// Of random ids one share in 16,000 would differ by more than a tenth: fixed ones, so that this is no matter of luck.
const fixed = (count: number) =>
  Array.from({ length: count }, (_, i) => contender(`01K0M3M8Q4${String(i).padStart(16, '0')}`))
const fixedNames = Array.from(
  { length: 10_000 },
  (_, i) => `org_01K0M3M8Q4${String(i * 7_919).padStart(16, '0')}`,
)

test.each([2, 3, 8, 16])('%d processes get equal shares of the organizations', (count) => {
  for (const share of shares(fixed(count), fixedNames).values())
    expect(Math.abs((share * count) / fixedNames.length - 1)).toBeLessThan(count === 16 ? 0.15 : 0.1)
})

test('ids made in the same millisecond, one after the other, get shares as equal as any', () => {
  const stem = ulid().slice(0, 25)
  const near = [...'0123456789ABCDEF'].slice(0, 8).map((end) => contender(`${stem}${end}`))
  for (const share of shares(near).values()) expect(Math.abs(share / 1_250 - 1)).toBeLessThan(0.2)
})

test('one that joins takes its share from all, and moves nothing else; one that leaves gives it back', () => {
  const before = contenders(8)
  const joining = contender(ulid())
  const after = [...before, joining]
  const moved = organizations.filter((name) => firstFor(name, before) !== firstFor(name, after))
  expect(moved.every((name) => firstFor(name, after) === joining)).toBe(true)
  expect(moved.length / organizations.length).toBeGreaterThan(0.09)
  expect(moved.length / organizations.length).toBeLessThan(0.13)
  const losers = new Set(moved.map((name) => firstFor(name, before)?.id))
  expect(losers.size).toBe(8)
})

test('the order in which processes are known does not matter', () => {
  const some = contenders(7)
  const other = some.toReversed()
  expect(organizations.filter((name) => firstFor(name, some)?.id !== firstFor(name, other)?.id)).toEqual([])
})

test('where two hash alike, the lower id is first, in either order', () => {
  const twins = [
    { id: 'B', hash: 7 },
    { id: 'A', hash: 7 },
  ]
  expect(firstFor('org_1', twins)?.id).toBe('A')
  expect(firstFor('org_1', twins.toReversed())?.id).toBe('A')
})

test('no one is first where there is no one', () => {
  expect(firstFor('org_1', [])).toBeUndefined()
})

test('hashes are the same on every machine and in every release', () => {
  expect(['', 'a', 'org_01K0M3M8Q40000000000000000', 'ä😀'].map(hashOf)).toMatchInlineSnapshot(`
    [
      0,
      2229343059,
      898000347,
      2014401215,
    ]
  `)
})

test('every bit of a hash is set half of the time', () => {
  const hashes = Array.from({ length: 20_000 }, () => hashOf(randomBytes(8).toString('hex')))
  for (let bit = 0; bit < 32; bit++) {
    const set = hashes.filter((hash) => (hash >>> bit) & 1).length
    expect(Math.abs(set / hashes.length - 0.5)).toBeLessThan(0.03)
  }
})
