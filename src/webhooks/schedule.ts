/** When a message is tried again, and when no more. Pure. */

const minuteMs = 60_000
const hourMs = 60 * minuteMs

/** After the first attempt and each further one: eight attempts within about a day. */
export const retryDelaysMs: readonly number[] = [
  minuteMs,
  5 * minuteMs,
  30 * minuteMs,
  2 * hourMs,
  4 * hourMs,
  8 * hourMs,
  8 * hourMs,
]
/** Each delay is longer by up to this part of it, so that what failed together does not come back together. */
const spread = 0.1
/** An address at which nothing has succeeded for so long is given up. */
export const failingMsMax = 3 * 24 * hourMs

/** When the next attempt is made after so many; null: none is. `chance` is from 0 to 1. */
export const nextAttemptMs = (attempts: number, nowMs: number, chance: number): number | null => {
  const delayMs = retryDelaysMs[attempts - 1]
  return delayMs === undefined ? null : nowMs + Math.floor(delayMs * (1 + spread * chance))
}

/** What an attempt came to, for the message and for the address it went to. */
export type Verdict =
  | { readonly kind: 'delivered' }
  | { readonly kind: 'again'; readonly atMs: number }
  | { readonly kind: 'dead' }
  /** The message is dead, and nothing more is sent to the address. */
  | { readonly kind: 'disable'; readonly reason: string }

export const verdictOf = ({
  status,
  attempts,
  failingSinceMs,
  nowMs,
  chance,
}: {
  /** Null: there was no answer. */
  readonly status: number | null
  /** This one included. */
  readonly attempts: number
  readonly failingSinceMs: number | null
  readonly nowMs: number
  readonly chance: number
}): Verdict => {
  if (status !== null && status >= 200 && status < 300) return { kind: 'delivered' }
  if (status === 410) return { kind: 'disable', reason: 'it answered 410 Gone' }
  const atMs = nextAttemptMs(attempts, nowMs, chance)
  if (atMs !== null) return { kind: 'again', atMs }
  if (failingSinceMs === null || nowMs - failingSinceMs < failingMsMax) return { kind: 'dead' }
  return { kind: 'disable', reason: `every attempt failed since ${new Date(failingSinceMs).toISOString()}` }
}
