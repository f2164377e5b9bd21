import type { RateLimitExceeded } from '../events/calls.ts'
import type { DirectoryKey } from './key-directory.ts'

/**
 * Per-key rate limits: fixed windows that open with the first call. A denied call consumes nothing from any window,
 * so a caller who keeps trying passes as soon as the window ends.
 *
 * Calls refused for another reason (permission, address) have a window of their own: they can neither use up a
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
   * which all capabilities that have such a limit share.
   */
  take(key: DirectoryKey, perSecond?: number): Promise<RateVerdict>
  /** Counts a refusal against the key's window of refusals. */
  takeRefused(key: DirectoryKey): Promise<RateVerdict>
}

const minuteSeconds = 60
const daySeconds = 86_400

/** A window as headers and refusals show it. */
export const windowState = (
  counted: { readonly used: number; readonly leftMs: number },
  { policy, limit, windowSeconds }: Window,
): WindowState => ({
  policy,
  limit,
  windowSeconds,
  remaining: Math.max(0, limit - counted.used),
  resetSeconds: Math.max(1, Math.ceil(Math.round(counted.leftMs) / 1000)),
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

/** The window of a key's calls that are refused for another reason. */
export const refusedWindowOf = ({ limits }: DirectoryKey): Window => ({
  policy: 'refused',
  limit: limits.requests_per_minute,
  windowSeconds: minuteSeconds,
})

type Counter = { used: number; endsAtMs: number }

/**
 * Counts in this process alone: the embedded default. `redis-counters.ts` has the counters that processes share. There
 * are as many counters as there are keys. There is no await between look and count, so no other call comes between them.
 *
 * `clock` is monotonic: a window measured by the time of day would end early, or late, when that is
 * corrected.
 */
export const createRateLimiter = (clock: { now(): number } = performance): RateLimiter => {
  const counters: Readonly<Record<RatePolicy, Map<string, Counter>>> = {
    second: new Map(),
    minute: new Map(),
    day: new Map(),
    refused: new Map(),
  }

  const take = ({ keyId }: DirectoryKey, windows: readonly Window[]): RateVerdict => {
    const nowMs = clock.now()
    const counted = windows.map((window) => {
      const counter = counters[window.policy].get(keyId)
      const open = counter !== undefined && nowMs < counter.endsAtMs
      return { window, counter: open ? counter : { used: 0, endsAtMs: nowMs + window.windowSeconds * 1000 } }
    })
    const denied = counted.some(({ window, counter }) => counter.used >= window.limit)
    if (!denied)
      for (const { window, counter } of counted) {
        counter.used++
        counters[window.policy].set(keyId, counter)
      }
    const states = counted.map(({ window, counter }) =>
      windowState({ used: counter.used, leftMs: counter.endsAtMs - nowMs }, window),
    )
    // Of several full windows the last and longest is named.
    return {
      exceeded: denied ? (states.findLast(({ remaining }) => remaining === 0) ?? null) : null,
      windows: states,
    }
  }

  return {
    take: async (key, perSecond) => take(key, windowsOf(key, perSecond)),
    takeRefused: async (key) => take(key, [refusedWindowOf(key)]),
  }
}
