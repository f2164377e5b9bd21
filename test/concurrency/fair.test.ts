import { expect, test } from 'vitest'
import { FairPlaces } from '../../src/concurrency/fair-places.ts'
import { createFairShare } from '../../src/concurrency/fair-share.ts'
import { randomOf } from '../bench/random.ts'

type Outcome = (() => void) | 'full' | 'late'

const manualTimers = () => {
  let nowMs = 0
  const due = new Map<number, { atMs: number; run: () => void }>()
  let ids = 0
  return {
    after: (ms: number, run: () => void) => {
      const id = ids++
      due.set(id, { atMs: nowMs + ms, run })
      return () => void due.delete(id)
    },
    pass: (ms: number) => {
      nowMs += ms
      for (const [id, { atMs, run }] of due)
        if (atMs <= nowMs) {
          due.delete(id)
          run()
        }
    },
    pending: () => due.size,
  }
}

/** Records the outcome of a request for a place, once it is known. */
const asked = (take: Promise<Outcome>): { outcome: Outcome | undefined } => {
  const note: { outcome: Outcome | undefined } = { outcome: undefined }
  void take.then((outcome) => {
    note.outcome = outcome
  })
  return note
}

const settled = async (): Promise<void> => {
  for (let turn = 0; turn < 4; turn++) await Promise.resolve()
}

const isGiven = ({ outcome }: { outcome: Outcome | undefined }): boolean => typeof outcome === 'function'

const release = ({ outcome }: { outcome: Outcome | undefined }): void => {
  if (typeof outcome !== 'function') throw new Error(`no place was given: ${outcome}`)
  outcome()
}

test('a newcomer gets the next free place, no matter how many of another party wait', async () => {
  const timers = manualTimers()
  const places = new FairPlaces({ placesMax: 8, waitingMax: 100, waitMaxMs: 1_000 }, timers.after)
  const flood = Array.from({ length: 60 }, () => asked(places.take('flood')))
  await settled()
  expect(flood.filter(isGiven)).toHaveLength(8)
  const quiet = asked(places.take('quiet'))
  const [first] = flood
  release(first as never)
  await settled()
  expect(isGiven(quiet)).toBe(true)
  expect(flood.filter(isGiven)).toHaveLength(8)
})

test('two parties that both want everything get the same number of places', async () => {
  const timers = manualTimers()
  const places = new FairPlaces({ placesMax: 10, waitingMax: 1_000, waitMaxMs: 1_000 }, timers.after)
  const all = new Map(['a', 'b'].map((name) => [name, new Set<{ outcome: Outcome | undefined }>()]))
  for (const [name, set] of all) for (let i = 0; i < 200; i++) set.add(asked(places.take(name)))
  for (let round = 0; round < 50; round++) {
    await settled()
    for (const set of all.values()) {
      const one = [...set].find(isGiven)
      if (one === undefined) continue
      set.delete(one)
      release(one)
    }
  }
  await settled()
  expect([...all.values()].map((set) => [...set].filter(isGiven).length)).toEqual([5, 5])
})

test('a full queue refuses the newest of the party with the most waiting, not the newcomer', async () => {
  const timers = manualTimers()
  const places = new FairPlaces({ placesMax: 1, waitingMax: 3, waitMaxMs: 1_000 }, timers.after)
  const flood = Array.from({ length: 4 }, () => asked(places.take('flood')))
  const quiet = asked(places.take('quiet'))
  await settled()
  expect(flood.map(({ outcome }) => outcome)).toEqual([expect.any(Function), undefined, undefined, 'full'])
  expect(quiet.outcome).toBeUndefined()
  const late = asked(places.take('flood'))
  await settled()
  expect(late.outcome).toBe('full')
})

test('a request that waits too long is refused and leaves nothing behind', async () => {
  const timers = manualTimers()
  const places = new FairPlaces({ placesMax: 1, waitingMax: 10, waitMaxMs: 500 }, timers.after)
  const holder = asked(places.take('a'))
  const waiter = asked(places.take('b'))
  await settled()
  timers.pass(500)
  await settled()
  expect(waiter.outcome).toBe('late')
  release(holder)
  expect([places.taken, places.waiting, timers.pending()]).toEqual([0, 0, 0])
})

test('places that are taken and returned in any order are never given twice, lost, or left idle while anyone waits', async () => {
  for (let seed = 1; seed <= 30; seed++) {
    const random = randomOf(seed)
    const timers = manualTimers()
    const bounds = { placesMax: 1 + Math.floor(random() * 5), waitingMax: 1 + Math.floor(random() * 8) }
    const places = new FairPlaces({ ...bounds, waitMaxMs: 20 }, timers.after)
    const notes: { outcome: Outcome | undefined }[] = []
    const returned = new Set<unknown>()
    for (let step = 0; step < 200; step++) {
      const what = random()
      if (what < 0.5) notes.push(asked(places.take(`p${Math.floor(random() * 4)}`)))
      else if (what < 0.9) {
        const one = notes.find((note) => isGiven(note) && !returned.has(note))
        if (one !== undefined) {
          returned.add(one)
          release(one)
          if (random() < 0.2) release(one)
        }
      } else timers.pass(Math.floor(random() * 15))
      await settled()
      const holding = notes.filter((note) => isGiven(note) && !returned.has(note)).length
      const waiting = notes.filter(({ outcome }) => outcome === undefined).length
      expect({ seed, step, taken: places.taken, waiting: places.waiting }).toEqual({
        seed,
        step,
        taken: holding,
        waiting,
      })
      expect(holding).toBeLessThanOrEqual(bounds.placesMax)
      expect(waiting).toBeLessThanOrEqual(bounds.waitingMax)
      if (waiting > 0) expect(holding).toBe(bounds.placesMax)
    }
  }
})

test('a party may have the whole bound while it is alone, and half of it next to a second party', () => {
  const share = createFairShare(() => 10)
  const enter = (party: string): (() => void) | null => share.enter(party)
  const own = Array.from({ length: 12 }, () => enter('flood'))
  expect(own.filter((end) => end !== null)).toHaveLength(10)
  const others = Array.from({ length: 7 }, () => enter('quiet'))
  expect(others.filter((end) => end !== null)).toHaveLength(5)
  expect(enter('flood')).toBeNull()
  for (const end of own.slice(0, 6)) end?.()
  expect(enter('flood')).not.toBeNull()
})

test('a newcomer gets in even if the others fill the bound', () => {
  const share = createFairShare(() => 4)
  for (let i = 0; i < 4; i++) expect(share.enter('flood')).not.toBeNull()
  for (let i = 0; i < 20; i++) expect(share.enter(`new ${i}`), `newcomer ${i}`).not.toBeNull()
})

test('ending twice counts once', () => {
  const share = createFairShare(() => 1)
  const end = share.enter('a')
  end?.()
  end?.()
  expect(share.inProgress).toBe(0)
})
