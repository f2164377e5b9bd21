/** Rate limits of a key. Denied calls cost nothing, so a caller that keeps trying passes when the window ends. */
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import type { DirectoryKey } from '../../src/guard/key-directory.ts'
import { createRateLimiter, type RateLimiter, type RateVerdict } from '../../src/guard/limits/rate-limit.ts'

const keyOf = (keyId: string, perMinute: number, perDay: number): DirectoryKey =>
  ({ keyId, limits: { requests_per_minute: perMinute, requests_per_day: perDay } }) as unknown as DirectoryKey

let limiter: RateLimiter
beforeEach(() => {
  vi.useFakeTimers({ now: Date.UTC(2026, 8, 14) })
  limiter = createRateLimiter()
})
afterEach(() => {
  vi.useRealTimers()
})

const remainingOf = ({ windows }: RateVerdict): Record<string, number> =>
  Object.fromEntries(windows.map(({ policy, remaining }) => [policy, remaining]))

/** Calls until denied, and returns how many passed. */
const passing = async (key: DirectoryKey, attempts: number): Promise<number> => {
  let passed = 0
  for (let n = 0; n < attempts; n++) if ((await limiter.take(key)).exceeded === null) passed++
  return passed
}

describe('a call', () => {
  test('passes up to the limit, and is denied beyond it by the full window', async () => {
    const key = keyOf('a', 3, 100)
    for (const remaining of [2, 1, 0]) {
      const verdict = await limiter.take(key)
      expect(verdict.exceeded).toBeNull()
      expect(verdict.windows).toEqual([
        { policy: 'minute', limit: 3, windowSeconds: 60, remaining, resetSeconds: 60 },
        { policy: 'day', limit: 100, windowSeconds: 86_400, remaining: 97 + remaining, resetSeconds: 86_400 },
      ])
    }
    expect((await limiter.take(key)).exceeded).toEqual({
      policy: 'minute',
      limit: 3,
      windowSeconds: 60,
      remaining: 0,
      resetSeconds: 60,
    })
  })

  test('is denied by the day even if the minute would let it pass', async () => {
    const key = keyOf('a', 10, 2)
    expect(await passing(key, 2)).toBe(2)
    const { exceeded } = await limiter.take(key)
    expect(exceeded).toEqual({
      policy: 'day',
      limit: 2,
      windowSeconds: 86_400,
      remaining: 0,
      resetSeconds: 86_400,
    })
  })

  test('denied by both windows names the longer wait', async () => {
    const key = keyOf('a', 2, 2)
    await passing(key, 2)
    expect((await limiter.take(key)).exceeded?.policy).toBe('day')
  })

  test('counts against the windows and limits of its own key only', async () => {
    expect(await passing(keyOf('a', 1, 10), 5)).toBe(1)
    expect(await passing(keyOf('b', 4, 10), 5)).toBe(4)
    expect(await passing(keyOf('a', 1, 10), 5)).toBe(0)
  })

  test('is judged by the current limits: raised and lowered limits apply immediately', async () => {
    expect(await passing(keyOf('a', 2, 100), 5)).toBe(2)
    expect(await passing(keyOf('a', 5, 100), 5)).toBe(3)
    const lowered = await limiter.take(keyOf('a', 1, 100))
    expect(lowered.exceeded).toMatchObject({ policy: 'minute', limit: 1, remaining: 0 })
  })
})

describe('a denied call', () => {
  test('by the minute uses nothing of the day', async () => {
    const key = keyOf('a', 2, 10)
    expect(await passing(key, 50)).toBe(2)
    vi.advanceTimersByTime(60_000)
    expect(remainingOf(await limiter.take(key))).toEqual({ minute: 1, day: 7 })
  })

  test('by the day uses nothing of the minute', async () => {
    const key = keyOf('a', 10, 2)
    expect(await passing(key, 5)).toBe(2)
    expect(remainingOf(await limiter.take(keyOf('a', 10, 100)))).toEqual({ minute: 7, day: 97 })
  })

  test('includes the rest of the window that did not deny it', async () => {
    const byMinute = keyOf('a', 2, 10)
    await passing(byMinute, 2)
    for (let n = 0; n < 3; n++)
      expect(remainingOf(await limiter.take(byMinute))).toEqual({ minute: 0, day: 8 })
    const byDay = keyOf('b', 10, 2)
    await passing(byDay, 2)
    for (let n = 0; n < 3; n++) expect(remainingOf(await limiter.take(byDay))).toEqual({ minute: 8, day: 0 })
  })

  test('endless calls do not move the window: after its end exactly the limit passes', async () => {
    const key = keyOf('a', 3, 1_000)
    expect(await passing(key, 3)).toBe(3)
    for (let second = 1; second < 60; second++) {
      vi.advanceTimersByTime(1_000)
      const { exceeded } = await limiter.take(key)
      expect(exceeded?.resetSeconds).toBe(60 - second)
    }
    vi.advanceTimersByTime(999)
    expect((await limiter.take(key)).exceeded?.resetSeconds).toBe(1)
    vi.advanceTimersByTime(1)
    expect(await passing(key, 10)).toBe(3)
  })

  test('passes again when the day ends', async () => {
    const key = keyOf('a', 100, 3)
    expect(await passing(key, 10)).toBe(3)
    vi.advanceTimersByTime(86_400_000 - 1)
    expect(await passing(key, 2)).toBe(0)
    vi.advanceTimersByTime(1)
    expect(await passing(key, 10)).toBe(3)
  })

  test('among 100 simultaneous calls: exactly the limit passes, and nothing else is used up', async () => {
    const key = keyOf('a', 7, 1_000)
    const verdicts = await Promise.all(Array.from({ length: 100 }, () => limiter.take(key)))
    expect(verdicts.filter(({ exceeded }) => exceeded === null)).toHaveLength(7)
    vi.advanceTimersByTime(60_000)
    expect(remainingOf(await limiter.take(key))).toEqual({ minute: 6, day: 992 })
  })
})

describe('the window of refusals', () => {
  test("is as wide as the key's minute, and separate: neither uses up the other", async () => {
    const key = keyOf('a', 2, 10)
    for (const remaining of [1, 0]) {
      const verdict = await limiter.takeRefused(key)
      expect(verdict).toEqual({
        exceeded: null,
        windows: [{ policy: 'refused', limit: 2, windowSeconds: 60, remaining, resetSeconds: 60 }],
      })
    }
    expect((await limiter.takeRefused(key)).exceeded).toMatchObject({
      policy: 'refused',
      limit: 2,
      remaining: 0,
    })
    expect(remainingOf(await limiter.take(key))).toEqual({ minute: 1, day: 9 })
    expect(await passing(key, 5)).toBe(1)
    expect((await limiter.takeRefused(keyOf('b', 2, 10))).exceeded).toBeNull()
  })

  test('takes nothing for a call that it denies, and ends after a minute', async () => {
    const key = keyOf('a', 2, 10)
    let passed = 0
    for (let n = 0; n < 20; n++) if ((await limiter.takeRefused(key)).exceeded === null) passed++
    expect(passed).toBe(2)
    expect(remainingOf(await limiter.takeRefused(keyOf('a', 5, 10)))).toEqual({ refused: 2 })
    vi.advanceTimersByTime(60_000)
    expect(remainingOf(await limiter.takeRefused(key))).toEqual({ refused: 1 })
  })
})

test.each([-3_600_000, 3_600_000])('a window keeps its length if the clock is set by %s ms', async (ms) => {
  const key = keyOf('a', 2, 10)
  expect(await passing(key, 5)).toBe(2)
  vi.setSystemTime(Date.now() + ms)
  expect((await limiter.take(key)).exceeded).toMatchObject({ policy: 'minute', resetSeconds: 60 })
  vi.advanceTimersByTime(59_999)
  expect(await passing(key, 1)).toBe(0)
  vi.advanceTimersByTime(1)
  expect(await passing(key, 5)).toBe(2)
})
