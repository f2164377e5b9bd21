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
  /**
   * Counts a call against the key's windows, or denies it and counts nothing. `perSecond` adds a window of one second,
   * which all capabilities that have such a limit share.
   */
  take(key: DirectoryKey, perSecond?: number): Promise<RateVerdict>
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

/** A window a call is counted in. */
export type Window = { readonly policy: RatePolicy; readonly limit: number; readonly windowSeconds: number }

/** The windows of a call, shortest first. `perSecond` is the capability's own limit, if it has one. */
export const windowsOf = ({ limits }: DirectoryKey, perSecond: number | undefined): readonly Window[] => {
  const minute: Window = { policy: 'minute', limit: limits.requests_per_minute, windowSeconds: minuteSeconds }
  const day: Window = { policy: 'day', limit: limits.requests_per_day, windowSeconds: daySeconds }
  return perSecond === undefined
    ? [minute, day]
    : [{ policy: 'second', limit: perSecond, windowSeconds: 1 }, minute, day]
}

export const createRateLimiter = (counters: Readonly<Record<RatePolicy, Counters>>): RateLimiter => {
  const stateOf = (counted: Counted, { policy, limit, windowSeconds }: Window): WindowState =>
    windowState(counted, policy, limit, windowSeconds)
  return {
    take: async (key, perSecond) => {
      const { keyId } = key
      const windows = windowsOf(key, perSecond)
      // All are counted before any answers, so that concurrent calls cannot slip through between look and count.
      const counting = windows.map((window) => counters[window.policy].penalty(keyId))
      const states: WindowState[] = []
      let denied = false
      for (const [n, window] of windows.entries()) {
        const counted = await (counting[n] as Promise<Counted>)
        denied ||= counted.consumedPoints > window.limit
        states.push(stateOf(counted, window))
      }
      if (!denied) return { exceeded: null, windows: states }
      const back = await Promise.all(windows.map(({ policy }) => counters[policy].reward(keyId)))
      // Calls of the same moment count before they are denied as well. What is full is seen when all have given back.
      const now = await Promise.all(windows.map(({ policy }) => counters[policy].get(keyId)))
      const left = windows.map((window, n) => stateOf(now[n] ?? (back[n] as Counted), window))
      const exceeded = left.findLast(({ remaining }) => remaining === 0) ?? left[0] ?? null
      return { exceeded, windows: left }
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
    second: counter('s', 1),
    minute: counter('m', minuteSeconds),
    day: counter('d', daySeconds),
    refused: counter('r', minuteSeconds),
  }
}
