/**
 * Keeps calls away from what fails, so that callers learn it at once and what fails can recover. It is told the time,
 * and why each call failed.
 *
 * Written here and not taken from a library: the ones at hand read the system's clock, and know no cause.
 */
export type CircuitBreaker<Cause> = {
  /** Why no call may pass now, and for how long; null to let one pass. Once the time is over, one at a time may try. */
  refuses(nowMs: number): { cause: Cause; forMs: number } | null
  fail(cause: Cause, nowMs: number, options?: FailureOptions): void
  /** Closes it, also before its time is over. */
  succeed(): void
  /** A call that passed came to no end that tells anything: another may try. */
  abandon(): void
  state(nowMs: number): BreakerState
}

type BreakerState = 'closed' | 'open' | 'half_open'

type FailureOptions = {
  /** Failures about the same thing may count as one. */
  readonly about?: string | null
  /** A trial that no caller waited for: it keeps the breaker open for as long as before, and no longer. */
  readonly background?: boolean
}

type BreakerBounds = {
  /** It opens at so many failures without a success between them. Those about the same thing are one. */
  readonly failuresMax: number
  readonly openMs: number
  /** Each trial of a caller that fails doubles the time, up to this. */
  readonly openMsMax: number
  /** A trial that has not ended by then is over: its caller went away. */
  readonly trialMs: number
}

export const createCircuitBreaker = <Cause>(bounds: BreakerBounds): CircuitBreaker<Cause> => {
  let opened: { cause: Cause; untilMs: number; forMs: number; trialUntilMs: number } | null = null
  let failures = 0
  /** As many at most as it takes to open. */
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
      // Calls that were under way when it opened tell nothing new.
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
