/** A token bucket: so many a second, and so many at once. */
export type TokenBucket = {
  /** Takes a token, or tells how many milliseconds from now the next one is there. */
  take(nowMs: number): number
  full(nowMs: number): boolean
}

export const createTokenBucket = ({
  perSecond,
  burst,
}: {
  perSecond: number
  burst: number
}): TokenBucket => {
  let tokens = burst
  let filledAtMs = Number.NEGATIVE_INFINITY
  const fill = (nowMs: number): void => {
    // A clock set back must not empty the bucket.
    const elapsedMs = Math.max(nowMs - filledAtMs, 0)
    tokens = Math.min(burst, tokens + (elapsedMs * perSecond) / 1_000)
    filledAtMs = nowMs
  }
  return {
    take: (nowMs) => {
      fill(nowMs)
      if (tokens < 1) return Math.ceil(((1 - tokens) * 1_000) / perSecond)
      tokens--
      return 0
    },
    full: (nowMs) => {
      fill(nowMs)
      return tokens >= burst
    },
  }
}
