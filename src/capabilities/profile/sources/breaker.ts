/**
 * Keeps calls away from a source that fails, so that callers learn it at once and the source can recover.
 *
 * Written here and not taken from a library: the ones at hand read the system's clock and count calls per second, where
 * this one has to be told the time and counts over its whole window.
 */
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
const buckets = 30

type Bucket = { second: number; calls: number; failures: number }

/** `now` counts milliseconds and never goes back. */
export const createBreaker = ({ now }: { now: () => number }): Breaker => {
  const counts: Bucket[] = Array.from({ length: buckets }, () => ({ second: -1, calls: 0, failures: 0 }))
  let openedAtMs: number | null = null
  let trying = false

  const bucketNow = (): Bucket | undefined => {
    const second = Math.floor(now() / (windowMs / buckets))
    const bucket = counts[second % buckets]
    if (bucket !== undefined && bucket.second !== second)
      Object.assign(bucket, { second, calls: 0, failures: 0 } satisfies Bucket)
    return bucket
  }

  const fails = (): boolean => {
    const oldest = Math.floor(now() / (windowMs / buckets)) - buckets
    const recent = counts.filter(({ second }) => second > oldest)
    const calls = recent.reduce((sum, bucket) => sum + bucket.calls, 0)
    const failures = recent.reduce((sum, bucket) => sum + bucket.failures, 0)
    return calls >= callsMin && failures / calls >= failureShareMax
  }

  const count = (failed: boolean): void => {
    const bucket = bucketNow()
    // What was asked before the breaker opened says nothing new about a source that is left alone since.
    if (bucket === undefined || openedAtMs !== null) return
    bucket.calls++
    if (failed) bucket.failures++
    if (failed && fails()) openedAtMs = now()
  }

  const close = (): void => {
    openedAtMs = null
    for (const bucket of counts) Object.assign(bucket, { second: -1, calls: 0, failures: 0 } satisfies Bucket)
  }

  return {
    admit: () => {
      if (openedAtMs === null) return (outcome) => outcome !== 'unknown' && count(outcome === 'failed')
      if (trying || now() - openedAtMs < openMs) return null
      trying = true
      return (outcome) => {
        trying = false
        if (outcome === 'answered') close()
        if (outcome === 'failed') openedAtMs = now()
      }
    },
    state: () => (openedAtMs === null ? 'closed' : now() - openedAtMs < openMs ? 'open' : 'half_open'),
  }
}
