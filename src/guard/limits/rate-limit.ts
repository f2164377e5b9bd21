import type { RateLimitExceeded } from '../../events/calls.ts'
import type { DirectoryKey } from '../key-directory.ts'

/**
 * Per-key rate limits: fixed windows that open with the first call. A denied call consumes nothing from any window,
 * so a caller who keeps trying passes when the window ends.
 *
 * Calls refused for another reason (permission, address) have their own window: they can neither use up a
 * partner's quota nor flood the event log.
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
  /** The window that denies the call; null lets it pass. */
  readonly exceeded: WindowState | null
  readonly windows: readonly WindowState[]
}

export type RateLimiter = {
  /**
   * Counts a call against the key's windows, or denies it and counts nothing. `perSecond` adds a window of one second,
   * which is shared by all capabilities that have such a limit.
   */
  take(key: DirectoryKey, perSecond?: number): Promise<RateVerdict>
  /** Counts a refusal against the key's window of refusals. */
  takeRefused(key: DirectoryKey): Promise<RateVerdict>
}

const minuteSeconds = 60
const daySeconds = 86_400

/** A window in the form that headers and refusals show. */
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

/** A window in which a call is counted. */
export type Window = { readonly policy: RatePolicy; readonly limit: number; readonly windowSeconds: number }

/** The windows of a call, shortest first. `perSecond` is the capability's own limit, if it has one. */
export const windowsOf = ({ limits }: DirectoryKey, perSecond: number | undefined): readonly Window[] => {
  const minute: Window = { policy: 'minute', limit: limits.requests_per_minute, windowSeconds: minuteSeconds }
  const day: Window = { policy: 'day', limit: limits.requests_per_day, windowSeconds: daySeconds }
  return perSecond === undefined
    ? [minute, day]
    : [{ policy: 'second', limit: perSecond, windowSeconds: 1 }, minute, day]
}

/** The window of a key's calls that are refused for another reason. */
export const refusedWindowOf = ({ limits }: DirectoryKey): Window => ({
  policy: 'refused',
  limit: limits.requests_per_minute,
  windowSeconds: minuteSeconds,
})

/** The counters' answer about a call: 1 if it is denied, then for each window the used count and the remaining milliseconds. */
export type Counted = readonly number[]

/** The verdict for the requested windows. Throws if the answer does not fit them. */
export const verdictOf = ([denied, ...counted]: Counted, windows: readonly Window[]): RateVerdict => {
  if (counted.length !== 2 * windows.length)
    throw new Error('the answer of the counters does not fit the question')
  let exceeded: RateVerdict['exceeded'] = null
  const states = windows.map((window, i) => {
    const used = counted[2 * i] ?? 0
    const state = windowState({ used, leftMs: counted[2 * i + 1] ?? 0 }, window)
    // If several windows are full, the last and longest is named.
    if (denied === 1 && used >= window.limit) exceeded = state
    return state
  })
  return { exceeded, windows: states }
}

/** Counters of this process. */
type Counters = {
  /** Counts a call in every window, or in none when one of them is full. */
  take(keyId: string, windows: readonly Window[]): Counted
}

type Counter = { used: number; endsAtMs: number }

/**
 * There are as many counters as keys. There is no await between check and count, so no other call comes between
 * them.
 *
 * `clock` is monotonic: with the time of day, a window would end early or late when the time is corrected.
 */
const createCounters = (clock: { now(): number } = performance): Counters => {
  const counters: Readonly<Record<RatePolicy, Map<string, Counter>>> = {
    second: new Map(),
    minute: new Map(),
    day: new Map(),
    refused: new Map(),
  }
  return {
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
          counters[policy].set(keyId, counter)
        }
        counted.push(counter.used, Math.round(counter.endsAtMs - nowMs))
      }
      return counted
    },
  }
}

/** Counts in this process alone: the embedded default. `redis-rate-limiter.ts` has counters that processes share. */
export const createRateLimiter = (counters: Counters = createCounters()): RateLimiter => {
  const take = ({ keyId }: DirectoryKey, windows: readonly Window[]): RateVerdict =>
    verdictOf(counters.take(keyId, windows), windows)
  return {
    take: async (key, perSecond) => take(key, windowsOf(key, perSecond)),
    takeRefused: async (key) => take(key, [refusedWindowOf(key)]),
  }
}
