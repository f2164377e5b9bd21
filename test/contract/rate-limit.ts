/** The guarantees of every rate limiter, wherever its counters are stored. Memory and Redis run this suite. */
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import type { DirectoryKey } from '../../src/guard/key-directory.ts'
import type { RateLimiter, RateVerdict } from '../../src/guard/limits/rate-limit.ts'

export type LimiterUnderTest = {
  readonly limiter: RateLimiter
  /** Advances time, so that windows expire. */
  advance(ms: number): Promise<void>
  close(): Promise<void>
}

let named = 0
/** Returns a key that was never used. */
export const keyOf = (perMinute: number, perDay: number, keyId = `contract${++named}`): DirectoryKey =>
  ({ keyId, limits: { requests_per_minute: perMinute, requests_per_day: perDay } }) as unknown as DirectoryKey

const withLimits = ({ keyId }: DirectoryKey, perMinute: number, perDay: number): DirectoryKey =>
  keyOf(perMinute, perDay, keyId)

export const remainingOf = ({ windows }: RateVerdict): Record<string, number> =>
  Object.fromEntries(windows.map(({ policy, remaining }) => [policy, remaining]))

/** Makes one call after the other and returns how many passed. */
export const passing = async (limiter: RateLimiter, key: DirectoryKey, attempts: number): Promise<number> => {
  let passed = 0
  for (let n = 0; n < attempts; n++) if ((await limiter.take(key)).exceeded === null) passed++
  return passed
}

/** Some real time passes between the request and its answer, so the reported window can be a little shorter. */
const about = (seconds: number): unknown => ({
  asymmetricMatch: (value: unknown) =>
    typeof value === 'number' && Number.isInteger(value) && value <= seconds && value >= seconds - 2,
  toString: () => `about ${seconds}`,
})

export const rateLimitContract = (open: () => Promise<LimiterUnderTest>): void => {
  let opened: LimiterUnderTest
  let limiter: RateLimiter
  beforeEach(async () => {
    opened = await open()
    limiter = opened.limiter
  })
  afterEach(() => opened.close())

  describe('a call', () => {
    test('passes up to the limit, and beyond it is denied for the full window', async () => {
      const key = keyOf(3, 100)
      for (const remaining of [2, 1, 0])
        expect(await limiter.take(key)).toEqual({
          exceeded: null,
          windows: [
            { policy: 'minute', limit: 3, windowSeconds: 60, remaining, resetSeconds: about(60) },
            {
              policy: 'day',
              limit: 100,
              windowSeconds: 86_400,
              remaining: 97 + remaining,
              resetSeconds: about(86_400),
            },
          ],
        })
      expect((await limiter.take(key)).exceeded).toEqual({
        policy: 'minute',
        limit: 3,
        windowSeconds: 60,
        remaining: 0,
        resetSeconds: about(60),
      })
    })

    test('is denied by the day even if the minute would allow it', async () => {
      const key = keyOf(10, 2)
      expect(await passing(limiter, key, 2)).toBe(2)
      expect((await limiter.take(key)).exceeded).toEqual({
        policy: 'day',
        limit: 2,
        windowSeconds: 86_400,
        remaining: 0,
        resetSeconds: about(86_400),
      })
    })

    test('denied by both windows gets the longer wait', async () => {
      const key = keyOf(2, 2)
      await passing(limiter, key, 2)
      expect((await limiter.take(key)).exceeded?.policy).toBe('day')
    })

    test('of a key with a limit of zero is denied', async () => {
      expect((await limiter.take(keyOf(0, 10))).exceeded).toMatchObject({ policy: 'minute', remaining: 0 })
    })

    test('counts against the windows and limits of its own key only', async () => {
      const [one, other] = [keyOf(1, 10), keyOf(4, 10)]
      expect(await passing(limiter, one, 5)).toBe(1)
      expect(await passing(limiter, other, 5)).toBe(4)
      expect(await passing(limiter, one, 5)).toBe(0)
    })

    test('is judged by the current limits: raised and lowered limits apply immediately', async () => {
      const key = keyOf(2, 100)
      expect(await passing(limiter, key, 5)).toBe(2)
      expect(await passing(limiter, withLimits(key, 5, 100), 5)).toBe(3)
      expect((await limiter.take(withLimits(key, 1, 100))).exceeded).toMatchObject({
        policy: 'minute',
        limit: 1,
        remaining: 0,
      })
    })
  })

  describe('a window', () => {
    test('opens with the first call and has a fixed length, no matter how many calls follow', async () => {
      const key = keyOf(3, 1_000)
      expect(await passing(limiter, key, 3)).toBe(3)
      for (let passed = 10; passed < 60; passed += 10) {
        await opened.advance(10_000)
        expect((await limiter.take(key)).exceeded?.resetSeconds).toEqual(about(60 - passed))
      }
      await opened.advance(10_000)
      expect(await passing(limiter, key, 10)).toBe(3)
      expect(remainingOf(await limiter.take(key))).toEqual({ minute: 0, day: 994 })
    })

    test('of a day ends after a day', async () => {
      const key = keyOf(100, 3)
      expect(await passing(limiter, key, 10)).toBe(3)
      await opened.advance(86_400_000 - 5_000)
      expect(await passing(limiter, key, 2)).toBe(0)
      await opened.advance(5_000)
      expect(await passing(limiter, key, 10)).toBe(3)
    })
  })

  describe('a denied call', () => {
    test('by the minute does not count against the day', async () => {
      const key = keyOf(2, 10)
      expect(await passing(limiter, key, 50)).toBe(2)
      await opened.advance(60_000)
      expect(remainingOf(await limiter.take(key))).toEqual({ minute: 1, day: 7 })
    })

    test('by the day does not count against the minute', async () => {
      const key = keyOf(10, 2)
      expect(await passing(limiter, key, 5)).toBe(2)
      expect(remainingOf(await limiter.take(withLimits(key, 10, 100)))).toEqual({ minute: 7, day: 97 })
    })

    test('gets the actual remaining count of the window that did not deny it', async () => {
      const byMinute = keyOf(2, 10)
      await passing(limiter, byMinute, 2)
      for (let n = 0; n < 3; n++)
        expect(remainingOf(await limiter.take(byMinute))).toEqual({ minute: 0, day: 8 })
      const byDay = keyOf(10, 2)
      await passing(limiter, byDay, 2)
      for (let n = 0; n < 3; n++)
        expect(remainingOf(await limiter.take(byDay))).toEqual({ minute: 8, day: 0 })
    })

    test('among 100 simultaneous calls: exactly as many as the limit pass, and nothing else is used up', async () => {
      const key = keyOf(7, 1_000)
      const verdicts = await Promise.all(Array.from({ length: 100 }, () => limiter.take(key)))
      expect(verdicts.filter(({ exceeded }) => exceeded === null)).toHaveLength(7)
      await opened.advance(60_000)
      expect(remainingOf(await limiter.take(key))).toEqual({ minute: 6, day: 992 })
    })
  })

  test('simultaneous calls that exceed the limit per minute do not get the waiting time of the limit per day', async () => {
    const key = keyOf(2, 5)
    const verdicts = await Promise.all(Array.from({ length: 12 }, () => limiter.take(key)))
    expect(verdicts.flatMap(({ exceeded }) => exceeded?.policy ?? [])).toEqual(
      Array.from({ length: 10 }, () => 'minute'),
    )
    for (const verdict of verdicts.slice(2)) expect(remainingOf(verdict)).toEqual({ minute: 0, day: 3 })
  })

  describe('a call with its own limit per second', () => {
    const takes = async (key: DirectoryKey, perSecond: number, attempts: number): Promise<number> => {
      let passed = 0
      for (let n = 0; n < attempts; n++) if ((await limiter.take(key, perSecond)).exceeded === null) passed++
      return passed
    }

    test('gets the figures of the window of one second, and counts in all three windows', async () => {
      const key = keyOf(100, 1_000)
      for (const used of [1, 2])
        expect(await limiter.take(key, 5)).toEqual({
          exceeded: null,
          windows: [
            { policy: 'second', limit: 5, windowSeconds: 1, remaining: 5 - used, resetSeconds: 1 },
            {
              policy: 'minute',
              limit: 100,
              windowSeconds: 60,
              remaining: 100 - used,
              resetSeconds: about(60),
            },
            {
              policy: 'day',
              limit: 1_000,
              windowSeconds: 86_400,
              remaining: 1_000 - used,
              resetSeconds: about(86_400),
            },
          ],
        })
    })

    test('is denied beyond it without counting in the longer windows, and passes in the next second', async () => {
      const key = keyOf(100, 1_000)
      expect(await takes(key, 3, 8)).toBe(3)
      const denied = await limiter.take(key, 3)
      expect(denied.exceeded).toEqual({
        policy: 'second',
        limit: 3,
        windowSeconds: 1,
        remaining: 0,
        resetSeconds: 1,
      })
      expect(remainingOf(denied)).toEqual({ second: 0, minute: 97, day: 997 })
      await opened.advance(1_000)
      expect(await takes(key, 3, 8)).toBe(3)
      expect(remainingOf(await limiter.take(key))).toEqual({ minute: 93, day: 993 })
    })

    test('does not share that second with calls that have no such limit', async () => {
      const key = keyOf(100, 1_000)
      expect(await passing(limiter, key, 20)).toBe(20)
      expect(await takes(key, 2, 5)).toBe(2)
      expect(await passing(limiter, key, 20)).toBe(20)
      expect(remainingOf(await limiter.take(key))).toEqual({ minute: 57, day: 957 })
    })

    test("counts against its own key's second only, with the current limit", async () => {
      const [one, other] = [keyOf(100, 1_000), keyOf(100, 1_000)]
      expect(await takes(one, 2, 4)).toBe(2)
      expect(await takes(other, 2, 4)).toBe(2)
      expect(await takes(one, 5, 8)).toBe(3)
      expect((await limiter.take(one, 1)).exceeded).toMatchObject({ policy: 'second', limit: 1 })
    })

    test('denied by a longer window does not count in the second, and gets the longer wait', async () => {
      const key = keyOf(2, 1_000)
      expect(await takes(key, 10, 6)).toBe(2)
      const denied = await limiter.take(key, 10)
      expect(denied.exceeded?.policy).toBe('minute')
      expect(remainingOf(denied)).toEqual({ second: 8, minute: 0, day: 998 })
      const full = keyOf(2, 1_000)
      expect(await takes(full, 2, 2)).toBe(2)
      expect((await limiter.take(full, 2)).exceeded?.policy).toBe('minute')
    })

    test('among 60 simultaneous calls: exactly as many as the limit pass', async () => {
      const key = keyOf(1_000, 10_000)
      const verdicts = await Promise.all(Array.from({ length: 60 }, () => limiter.take(key, 10)))
      expect(verdicts.filter(({ exceeded }) => exceeded === null)).toHaveLength(10)
      for (const { exceeded } of verdicts.filter((verdict) => verdict.exceeded !== null))
        expect(exceeded?.policy).toBe('second')
      expect(remainingOf(await limiter.take(key))).toEqual({ minute: 989, day: 9_989 })
    })

    test('of a key with zero calls per second is denied', async () => {
      expect((await limiter.take(keyOf(10, 10), 0)).exceeded).toMatchObject({ policy: 'second', limit: 0 })
    })

    test('does not count in the window of refusals', async () => {
      const key = keyOf(10, 100)
      expect(await takes(key, 1, 3)).toBe(1)
      expect(await limiter.takeRefused(key)).toMatchObject({ exceeded: null, windows: [{ remaining: 9 }] })
    })
  })

  describe('the window of refusals', () => {
    test("is as large as the key's minute, but separate: neither uses up the other", async () => {
      const key = keyOf(2, 10)
      for (const remaining of [1, 0])
        expect(await limiter.takeRefused(key)).toEqual({
          exceeded: null,
          windows: [{ policy: 'refused', limit: 2, windowSeconds: 60, remaining, resetSeconds: about(60) }],
        })
      expect((await limiter.takeRefused(key)).exceeded).toMatchObject({ policy: 'refused', remaining: 0 })
      expect(remainingOf(await limiter.take(key))).toEqual({ minute: 1, day: 9 })
      expect(await passing(limiter, key, 5)).toBe(1)
    })

    test('counts nothing for a call that it denies, and ends after a minute', async () => {
      const key = keyOf(2, 10)
      let passed = 0
      for (let n = 0; n < 20; n++) if ((await limiter.takeRefused(key)).exceeded === null) passed++
      expect(passed).toBe(2)
      expect(remainingOf(await limiter.takeRefused(withLimits(key, 5, 10)))).toEqual({ refused: 2 })
      await opened.advance(60_000)
      expect(remainingOf(await limiter.takeRefused(key))).toEqual({ refused: 1 })
    })
  })
}
