/**
 * Keeps calls away from what fails, so that callers learn it at once and what fails can recover. It is told the time,
 * and why each call failed; a tally says after which failures it opens.
 *
 * Written here and not taken from a library: the ones at hand read the system's clock, and know no cause.
 */
export type CircuitBreaker<Cause> = {
  /** Why no call may pass now, and for how long; null to let one pass. Once the time is over, one at a time may try. */
  refuses(nowMs: number): { cause: Cause; forMs: number } | null
  fail(cause: Cause, nowMs: number, options?: FailureOptions): void
  succeed(nowMs: number): void
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

type Tally = {
  /** Whether that failure is one too many. */
  failed(nowMs: number, about: string | null): boolean
  succeeded(nowMs: number): void
  clear(): void
}

type BreakerBounds = {
  readonly openMs: number
  /** Each trial of a caller that fails doubles the time, up to this. */
  readonly openMsMax: number
  /** A trial that has not ended by then is over: its caller went away. */
  readonly trialMs: number
}

export const createCircuitBreaker = <Cause>(tally: Tally, bounds: BreakerBounds): CircuitBreaker<Cause> => {
  let opened: { cause: Cause; untilMs: number; forMs: number; trialUntilMs: number } | null = null
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
      if (opened === null && !tally.failed(nowMs, about)) return
      const nextMs = opened === null ? bounds.openMs : opened.forMs * (background ? 1 : 2)
      const forMs = Math.min(nextMs, bounds.openMsMax)
      opened = { cause, untilMs: nowMs + forMs, forMs, trialUntilMs: 0 }
    },
    succeed: (nowMs) => {
      if (opened === null) tally.succeeded(nowMs)
      else tally.clear()
      opened = null
    },
    abandon: () => {
      if (opened !== null) opened.trialUntilMs = 0
    },
    state,
  }
}

/** Opens at so many failures without a success between them. Those about the same thing are one. */
export const failuresInARow = (failuresMax: number): Tally => {
  let failures = 0
  /** As many at most as it takes to open. */
  const failedAbout = new Set<string>()
  const clear = (): void => {
    failures = 0
    failedAbout.clear()
  }
  return {
    failed: (_nowMs, about) => {
      if (about !== null) {
        if (failedAbout.has(about)) return false
        failedAbout.add(about)
      }
      return ++failures >= failuresMax
    },
    succeeded: clear,
    clear,
  }
}

const bucketsPerWindow = 30

/** Opens where such a share of a window's calls failed. Fewer calls than `callsMin` say nothing. */
export const failureShare = ({
  windowMs,
  callsMin,
  shareMax,
}: {
  readonly windowMs: number
  readonly callsMin: number
  readonly shareMax: number
}): Tally => {
  let buckets: { number: number; calls: number; failures: number }[] = []
  const count = (nowMs: number, failures: 0 | 1): void => {
    const number = Math.floor(nowMs / (windowMs / bucketsPerWindow))
    buckets = buckets.filter((bucket) => bucket.number > number - bucketsPerWindow)
    const last = buckets.at(-1)
    if (last?.number !== number) buckets.push({ number, calls: 1, failures })
    else {
      last.calls += 1
      last.failures += failures
    }
  }
  const sum = (of: 'calls' | 'failures'): number => buckets.reduce((all, bucket) => all + bucket[of], 0)
  return {
    failed: (nowMs) => {
      count(nowMs, 1)
      return sum('calls') >= callsMin && sum('failures') / sum('calls') >= shareMax
    },
    succeeded: (nowMs) => count(nowMs, 0),
    clear: () => {
      buckets = []
    },
  }
}
