/** Keeps us from knocking again and again where we are not wanted, or where nobody is. */

type BreakerBounds = {
  /** Refusals or failed connections in a row that open it. More than the sessions opened at once, or one bad moment would. */
  readonly strikesToOpen: number
  readonly openMs: number
  /** Each trial that fails doubles the time, up to this. */
  readonly openMsMax: number
  /** A trial that has not ended by then is over: whoever made it went away. */
  readonly trialMs: number
}

export type Breaker<Cause> = {
  /** Why nobody may pass now, and for how long; null to let one pass. Once the time is over, one at a time may try. */
  refuses(nowMs: number): { cause: Cause; forMs: number } | null
  /** Strikes that are about the same thing count as one until the next success; a trial's always counts. */
  strike(cause: Cause, nowMs: number, about?: string | null): void
  succeed(): void
  open(nowMs: number): boolean
}

export const createBreaker = <Cause>(bounds: BreakerBounds): Breaker<Cause> => {
  let strikes = 0
  /** As many at most as it takes to open it. */
  const struckAbout = new Set<string>()
  let opened: { cause: Cause; untilMs: number; forMs: number; trialUntilMs: number } | null = null
  return {
    refuses: (nowMs) => {
      if (opened === null) return null
      if (nowMs < opened.untilMs) return { cause: opened.cause, forMs: opened.untilMs - nowMs }
      if (nowMs < opened.trialUntilMs) return { cause: opened.cause, forMs: opened.trialUntilMs - nowMs }
      opened.trialUntilMs = nowMs + bounds.trialMs
      return null
    },
    strike: (cause, nowMs, about = null) => {
      if (opened === null && about !== null) {
        if (struckAbout.has(about)) return
        struckAbout.add(about)
      }
      strikes++
      // Those who were under way when it opened tell nothing new.
      if (opened !== null && nowMs < opened.untilMs) return
      if (opened === null && strikes < bounds.strikesToOpen) return
      const forMs = opened === null ? bounds.openMs : Math.min(opened.forMs * 2, bounds.openMsMax)
      opened = { cause, untilMs: nowMs + forMs, forMs, trialUntilMs: 0 }
    },
    succeed: () => {
      strikes = 0
      struckAbout.clear()
      opened = null
    },
    open: (nowMs) => opened !== null && nowMs < opened.untilMs,
  }
}
