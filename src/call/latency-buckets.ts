/**
 * Between which lengths of time calls are told apart: two buckets for each doubling, from half a millisecond to more than a minute. A
 * percentile is as exact as its bucket is narrow: within a factor of 1.42, and nearer where calls spread over it. Pure.
 *
 * Rows hold counts by bucket: whoever changes the bounds has to begin with an empty table.
 */

const firstMs = 0.5
const perDoubling = 2
/** The last one holds what took longer than every bound. */
export const bucketCount = 36

/** In milliseconds; a bucket holds what took no longer. Of the last one: infinity. */
export const boundMs = (bucket: number): number =>
  bucket >= bucketCount - 1 ? Number.POSITIVE_INFINITY : firstMs * 2 ** (bucket / perDoubling)

/** Whatever the length of time is, also none: there is a bucket for it. */
export const bucketOf = (ms: number): number => {
  if (!(ms > firstMs)) return 0
  return Math.min(bucketCount - 1, Math.ceil(Math.log2(ms / firstMs) * perDoubling))
}

/**
 * Within which time so large a part of the calls was answered, in milliseconds, taken to lie evenly (by ratio) in their bucket. Null where
 * there was no call; infinity where it is more than the last bound.
 */
export const percentileMs = (counts: readonly number[], part: number): number | null => {
  const calls = counts.reduce((sum, count) => sum + count, 0)
  if (calls === 0) return null
  const rank = Math.max(1, Math.ceil(calls * part))
  let before = 0
  for (const [bucket, count] of counts.entries()) {
    if (before + count < rank) {
      before += count
      continue
    }
    const upper = boundMs(bucket)
    if (!Number.isFinite(upper)) return upper
    const lower = bucket === 0 ? upper / 2 : boundMs(bucket - 1)
    return lower * (upper / lower) ** ((rank - before) / count)
  }
  return Number.POSITIVE_INFINITY
}
