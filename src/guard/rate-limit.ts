import { RateLimiterMemory } from 'rate-limiter-flexible'
import type { RateLimitExceeded } from '../events/calls.ts'
import type { DirectoryKey } from './key-directory.ts'

/**
 * Per-key rate limits: fixed windows that open with the first call. A denied call consumes nothing from any window,
 * so a caller who keeps knocking is let in as soon as the window turns.
 *
 * Calls refused for another reason (permission, address) have a window of their own: they can neither use up a
 * partner's quota nor flood the event log.
 */

export type RatePolicy = RateLimitExceeded['policy']

export type WindowState = {
  readonly policy: RatePolicy
  readonly limit: number
  readonly windowSeconds: number
  readonly remaining: number
  readonly resetSeconds: number
}

export type RateVerdict = {
  /** The window that denies the call; null lets it pass. */
  readonly exceeded: WindowState | null
  readonly windows: readonly WindowState[]
}

export type RateLimiter = {
  /** Counts a call against the key's windows, or denies it and counts nothing. */
  take(key: DirectoryKey): Promise<RateVerdict>
  /** Counts a refusal against the key's window of refusals. */
  takeRefused(key: DirectoryKey): Promise<RateVerdict>
}

/** What counts in this process; `redis-counters.ts` has the counters that processes share. */
type Counters = Pick<RateLimiterMemory, 'penalty' | 'reward' | 'get'>
type Counted = Awaited<ReturnType<Counters['penalty']>>

export const minuteSeconds = 60
export const daySeconds = 86_400

/** A window as headers and refusals tell of it. */
export const windowState = (
  counted: Pick<Counted, 'consumedPoints' | 'msBeforeNext'>,
  policy: RatePolicy,
  limit: number,
  windowSeconds: number,
): WindowState => ({
  policy,
  limit,
  windowSeconds,
  remaining: Math.max(0, limit - counted.consumedPoints),
  resetSeconds: Math.max(1, Math.ceil(counted.msBeforeNext / 1000)),
})

export const createRateLimiter = (counters: {
  minute: Counters
  day: Counters
  refused: Counters
}): RateLimiter => {
  return {
    take: async ({ keyId, limits: { requests_per_minute, requests_per_day } }) => {
      // Both are counted before either answers, so that concurrent calls cannot slip through between look and count.
      const minutely = counters.minute.penalty(keyId)
      const daily = counters.day.penalty(keyId)
      const [minute, day] = [await minutely, await daily]
      const windows = [
        windowState(minute, 'minute', requests_per_minute, minuteSeconds),
        windowState(day, 'day', requests_per_day, daySeconds),
      ]
      if (minute.consumedPoints <= requests_per_minute && day.consumedPoints <= requests_per_day)
        return { exceeded: null, windows }
      const [minuteBack, dayBack] = await Promise.all([
        counters.minute.reward(keyId),
        counters.day.reward(keyId),
      ])
      // Calls of the same moment count before they are denied as well. What is full is seen when all have given back.
      const [minuteNow, dayNow] = await Promise.all([counters.minute.get(keyId), counters.day.get(keyId)])
      const denied = [
        windowState(minuteNow ?? minuteBack, 'minute', requests_per_minute, minuteSeconds),
        windowState(dayNow ?? dayBack, 'day', requests_per_day, daySeconds),
      ]
      const exceeded = denied.findLast(({ remaining }) => remaining === 0) ?? denied[0] ?? null
      return { exceeded, windows: denied }
    },
    takeRefused: async ({ keyId, limits }) => {
      const counted = await counters.refused.penalty(keyId)
      const state = windowState(counted, 'refused', limits.requests_per_minute, minuteSeconds)
      if (counted.consumedPoints <= limits.requests_per_minute) return { exceeded: null, windows: [state] }
      await counters.refused.reward(keyId)
      return { exceeded: state, windows: [state] }
    },
  }
}

/** Counters of this process alone: the embedded default. */
export const memoryCounters = () => {
  // The points are ours to compare, because every key has limits of its own; the library only counts.
  const counter = (keyPrefix: string, duration: number) =>
    new RateLimiterMemory({ keyPrefix, duration, points: Number.MAX_SAFE_INTEGER })
  return {
    minute: counter('m', minuteSeconds),
    day: counter('d', daySeconds),
    refused: counter('r', minuteSeconds),
  }
}
