/** A key's rate limits measure elapsed time. `test/contract/rate-limit.ts` tests the limiter's other guarantees. */
import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { createCounters, createRateLimiter } from '../../src/guard/limits/rate-limit.ts'
import { keyOf, passing } from '../contract/rate-limit.ts'

beforeEach(() => {
  vi.useFakeTimers({ now: Date.UTC(2026, 8, 14) })
})
afterEach(() => {
  vi.useRealTimers()
})

test.each([-3_600_000, 3_600_000])('a window keeps its length if the clock is set by %s ms', async (ms) => {
  const limiter = createRateLimiter()
  const key = keyOf(2, 10)
  expect(await passing(limiter, key, 5)).toBe(2)
  vi.setSystemTime(Date.now() + ms)
  expect((await limiter.take(key)).exceeded).toMatchObject({ policy: 'minute', resetSeconds: 60 })
  vi.advanceTimersByTime(59_999)
  expect(await passing(limiter, key, 1)).toBe(0)
  vi.advanceTimersByTime(1)
  expect(await passing(limiter, key, 5)).toBe(2)
})

test('counters of ended windows are removed, and counters of open windows are kept', () => {
  const counters = createCounters()
  const used = (keyId: string, windowSeconds: number): number | undefined =>
    counters.take(keyId, [{ policy: 'minute', limit: 1_000, windowSeconds }])[1]
  expect(used('open', 86_400)).toBe(1)
  for (let minute = 0; minute < 10; minute++) {
    for (let n = 0; n < 10_000; n++) used(`key ${minute} ${n}`, 60)
    vi.advanceTimersByTime(60_000)
  }
  expect(counters.size()).toBeLessThanOrEqual(20_000)
  expect(used('open', 86_400)).toBe(2)
})
