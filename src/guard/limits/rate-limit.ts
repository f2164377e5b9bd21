import type { RateLimitExceeded } from '../../events/calls.ts'
import type { DirectoryKey } from '../key-directory.ts'

/**
 * Rate limits for each key, in fixed windows that start with the first call. A denied call does not count, so a caller that keeps trying
 * succeeds when the window ends.
 *
 * Calls that are refused because of the key's permissions or addresses have a separate window. They do not use up the partner's quota, and they
 * cannot fill the event log.
 */

export type RatePolicy = RateLimitExceeded['policy']

type WindowState = {
  readonly policy: RatePolicy
  readonly limit: number
  readonly windowSeconds: number
  readonly remaining: number
  readonly resetSeconds: number
}

export type RateVerdict = {
  /** The full window that caused the denial, or null if the call is allowed. */
  readonly exceeded: WindowState | null
  readonly windows: readonly WindowState[]
}

export type RateLimiter = {
  /**
   * Counts a call in all windows of the key, or denies it and counts nothing. `perSecond` adds a window, which is shared by all capabilities with
   * a limit per second.
   */
  take(key: DirectoryKey, perSecond?: number): Promise<RateVerdict>
  takeRefused(key: DirectoryKey): Promise<RateVerdict>
}

const minuteSeconds = 60
const daySeconds = 86_400

const windowState = (
  counted: { readonly used: number; readonly leftMs: number },
  { policy, limit, windowSeconds }: Window,
): WindowState => ({
  policy,
  limit,
  windowSeconds,
  remaining: Math.max(0, limit - counted.used),
  resetSeconds: Math.max(1, Math.ceil(counted.leftMs / 1000)),
})

export type Window = { readonly policy: RatePolicy; readonly limit: number; readonly windowSeconds: number }

/** Returns the windows for a call, shortest first. `perSecond` is the limit of the call's capability, if it has one. */
export const windowsOf = ({ limits }: DirectoryKey, perSecond: number | undefined): readonly Window[] => {
  const minute: Window = { policy: 'minute', limit: limits.requests_per_minute, windowSeconds: minuteSeconds }
  const day: Window = { policy: 'day', limit: limits.requests_per_day, windowSeconds: daySeconds }
  return perSecond === undefined
    ? [minute, day]
    : [{ policy: 'second', limit: perSecond, windowSeconds: 1 }, minute, day]
}

/** Returns the window for calls that are refused for a reason other than a rate limit. */
export const refusedWindowOf = ({ limits }: DirectoryKey): Window => ({
  policy: 'refused',
  limit: limits.requests_per_minute,
  windowSeconds: minuteSeconds,
})

/** The first number is 1 if the call is denied, otherwise 0. For each window, the used count and the remaining milliseconds follow. */
export type Counted = readonly number[]

/** Returns the verdict for these windows. Throws if the number of results does not match. */
export const verdictOf = ([denied, ...counted]: Counted, windows: readonly Window[]): RateVerdict => {
  if (counted.length !== 2 * windows.length)
    throw new Error('the rate limit counters returned a wrong number of results')
  let exceeded: RateVerdict['exceeded'] = null
  const states = windows.map((window, i) => {
    const used = counted[2 * i] ?? 0
    const state = windowState({ used, leftMs: counted[2 * i + 1] ?? 0 }, window)
    // If several windows are full, the longest window is reported.
    if (denied === 1 && used >= window.limit) exceeded = state
    return state
  })
  return { exceeded, windows: states }
}

type Counters = {
  take(keyId: string, windows: readonly Window[]): Counted
}

type Counter = { used: number; endsAtMs: number }

/** The number of counters of a policy from which counters of ended windows are removed. */
const removalMin = 10_000

/**
 * There is no await between the check and the count, so no other call is counted in between. `clock` must be monotonic, because adjusting a clock
 * would end a window too early or too late.
 *
 * Only counters of ended windows are removed, because a key without a counter starts a new window. `size` is the number of counters in memory, at
 * most about twice as many as open windows.
 */
export const createCounters = (
  clock: { now(): number } = performance,
): Counters & { readonly size: () => number } => {
  const counters: Readonly<Record<RatePolicy, Map<string, Counter>>> = {
    second: new Map(),
    minute: new Map(),
    day: new Map(),
    refused: new Map(),
  }
  const removeAt: Record<RatePolicy, number> = {
    second: removalMin,
    minute: removalMin,
    day: removalMin,
    refused: removalMin,
  }
  const removeEnded = (policy: RatePolicy, nowMs: number): void => {
    const own = counters[policy]
    if (own.size < removeAt[policy]) return
    for (const [keyId, { endsAtMs }] of own) if (endsAtMs <= nowMs) own.delete(keyId)
    // The next removal happens after the counters have doubled, so that each call pays for a constant share of the removals.
    removeAt[policy] = Math.max(removalMin, 2 * own.size)
  }
  return {
    size: () => Object.values(counters).reduce((sum, { size }) => sum + size, 0),
    take: (keyId, windows) => {
      const nowMs = clock.now()
      const open = windows.map(({ policy, windowSeconds }): Counter => {
        const counter = counters[policy].get(keyId)
        return counter !== undefined && nowMs < counter.endsAtMs
          ? counter
          : { used: 0, endsAtMs: nowMs + windowSeconds * 1000 }
      })
      const denied = windows.some(({ limit }, i) => (open[i]?.used ?? 0) >= limit)
      const counted: number[] = [denied ? 1 : 0]
      for (const [i, { policy }] of windows.entries()) {
        const counter = open[i]
        if (counter === undefined) continue
        if (!denied) {
          counter.used++
          removeEnded(policy, nowMs)
          counters[policy].set(keyId, counter)
        }
        counted.push(counter.used, Math.round(counter.endsAtMs - nowMs))
      }
      return counted
    },
  }
}

/** The default, which counts only in this process. With `redis-rate-limiter.ts`, processes share their counters. */
export const createRateLimiter = (counters: Counters = createCounters()): RateLimiter => {
  const take = ({ keyId }: DirectoryKey, windows: readonly Window[]): RateVerdict =>
    verdictOf(counters.take(keyId, windows), windows)
  return {
    take: async (key, perSecond) => take(key, windowsOf(key, perSecond)),
    takeRefused: async (key) => take(key, [refusedWindowOf(key)]),
  }
}
