/**
 * Refuses calls to a failing target immediately, so that the target can recover. Unlike in available libraries, the caller passes the time and
 * the cause of a failure.
 */
export type CircuitBreaker<Cause> = {
  /** Returns the reason why calls are refused, and for how long, or null if this call is allowed. After that time, one call at a time is a trial. */
  refuses(nowMs: number): { cause: Cause; forMs: number } | null
  fail(cause: Cause, nowMs: number, options?: FailureOptions): void
  /** Closes the breaker, even if its time is not over. */
  succeed(): void
  /** Ends a trial without a meaningful outcome, so that another call can be the trial. */
  abandon(): void
  state(nowMs: number): BreakerState
}

type BreakerState = 'closed' | 'open' | 'half_open'

type FailureOptions = {
  /** The subject of the failure. Several failures with the same subject count as one. */
  readonly about?: string | null
  /** Set for a trial without a waiting caller. If it fails, the breaker does not stay open for longer than before. */
  readonly background?: boolean
}

type BreakerBounds = {
  /** The breaker opens after this many consecutive failures. */
  readonly failuresMax: number
  readonly openMs: number
  /** Each failed trial doubles the time for which the breaker stays open, up to this limit. */
  readonly openMsMax: number
  /** A trial that takes longer counts as over, because its caller is no longer waiting. */
  readonly trialMs: number
}

export const createCircuitBreaker = <Cause>(bounds: BreakerBounds): CircuitBreaker<Cause> => {
  let opened: { cause: Cause; untilMs: number; forMs: number; trialUntilMs: number } | null = null
  let failures = 0
  /** The subjects of the failures since the last success, at most `failuresMax`. */
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
      // While the breaker is open, failures are from calls that were already in progress, so they do not count.
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
