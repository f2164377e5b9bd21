import { createCircuitBreaker, failureShare } from '../../../concurrency/circuit-breaker.ts'

/** Keeps calls away from a source that fails. */
export type Breaker = {
  /** Null: do not ask. Otherwise say, exactly once, how it went; `unknown` where the caller went away before. */
  readonly admit: () => ((outcome: 'answered' | 'failed' | 'unknown') => void) | null
  readonly state: () => 'closed' | 'open' | 'half_open'
}

export const windowMs = 30_000
/** Fewer calls say nothing about a source. */
export const callsMin = 20
const failureShareMax = 0.5
/** Then one call tries. */
export const openMs = 10_000

/** `now` counts milliseconds and never goes back. */
export const createBreaker = ({ now }: { now: () => number }): Breaker => {
  const tally = failureShare({ windowMs, callsMin, shareMax: failureShareMax })
  // A trial says how it went, so it needs no end of its own.
  const bounds = { openMs, openMsMax: openMs, trialMs: Number.POSITIVE_INFINITY }
  const breaker = createCircuitBreaker<null>(tally, bounds)
  return {
    admit: () => {
      const wasClosed = breaker.state(now()) === 'closed'
      if (breaker.refuses(now()) !== null) return null
      return (outcome) => {
        // What was asked before it opened says nothing new about a source that is left alone since.
        if (wasClosed && breaker.state(now()) !== 'closed') return
        if (outcome === 'answered') breaker.succeed(now())
        else if (outcome === 'failed') breaker.fail(null, now())
        else breaker.abandon()
      }
    },
    state: () => breaker.state(now()),
  }
}
