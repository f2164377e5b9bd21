/**
 * Keeps calls away from a failing target, so that callers are refused immediately and the target can recover. Available libraries read the
 * system's clock and record no cause. Here, the caller passes both.
 */
export type CircuitBreaker<Cause> = {
  /** Returns why no call may pass now, and for how long. Null: the call may pass. When the time is over, one call at a time may try. */
  refuses(nowMs: number): { cause: Cause; forMs: number } | null
  fail(cause: Cause, nowMs: number, options?: FailureOptions): void
  /** Closes the breaker, even before its time is over. */
  succeed(): void
  /** Ends a trial that had no meaningful outcome, so that another call can try. */
  abandon(): void
  state(nowMs: number): BreakerState
}

type BreakerState = 'closed' | 'open' | 'half_open'

type FailureOptions = {
  /** What the failure concerns. Several failures with the same value count as one. */
  readonly about?: string | null
  /** A failed trial without a waiting caller does not lengthen the time for which the breaker stays open. */
  readonly background?: boolean
}

type BreakerBounds = {
  /** The breaker opens after this many failures without a success between them. */
  readonly failuresMax: number
  readonly openMs: number
  /** Each failed trial of a caller doubles the time for which the breaker stays open, up to this limit. */
  readonly openMsMax: number
  /** A trial that takes longer counts as over, because its caller no longer waits. */
  readonly trialMs: number
}

export const createCircuitBreaker = <Cause>(bounds: BreakerBounds): CircuitBreaker<Cause> => {
  let opened: { cause: Cause; untilMs: number; forMs: number; trialUntilMs: number } | null = null
  let failures = 0
  /** What the failures since the last success concern. Never more entries than `failuresMax`. */
  const failedAbout = new Set<string>()
  const isOneTooMany = (about: string | null): boolean => {
    if (about !== null) {
      if (failedAbout.has(about)) return false
      failedAbout.add(about)
    }
    return ++failures >= bounds.failuresMax
  }
  const isOpen = (nowMs: number): boolean => opened !== null && nowMs < opened.untilMs
  const state = (nowMs: number): BreakerState =>
    opened === null ? 'closed' : isOpen(nowMs) ? 'open' : 'half_open'
  return {
    refuses: (nowMs) => {
      if (opened === null) return null
      const untilMs = nowMs < opened.untilMs ? opened.untilMs : opened.trialUntilMs
      if (nowMs < untilMs) return { cause: opened.cause, forMs: untilMs - nowMs }
      opened.trialUntilMs = nowMs + bounds.trialMs
      return null
    },
    fail: (cause, nowMs, { about = null, background = false } = {}) => {
      // The failures of calls that were in progress when the breaker opened show nothing new.
      if (isOpen(nowMs)) return
      if (opened === null && !isOneTooMany(about)) return
      const nextMs = opened === null ? bounds.openMs : opened.forMs * (background ? 1 : 2)
      const forMs = Math.min(nextMs, bounds.openMsMax)
      opened = { cause, untilMs: nowMs + forMs, forMs, trialUntilMs: 0 }
    },
    succeed: () => {
      failures = 0
      failedAbout.clear()
      opened = null
    },
    abandon: () => {
      if (opened !== null) opened.trialUntilMs = 0
    },
    state,
  }
}
