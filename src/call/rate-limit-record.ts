import type { Logger } from 'pino'
import type { DirectoryKey } from '../guard/key-directory.ts'
import type { RatePolicy } from '../guard/rate-limit.ts'
import type { Ledger } from '../ledger/commit.ts'
import { recordRateLimit } from '../ledger/decide.ts'

/**
 * Counts calls refused by a rate limit and records them coalesced: one `RateLimitExceeded` per key, policy and minute,
 * however many there were, so that an abuser cannot flood the event log (decision 24). What a killed process had not
 * yet written is lost: at most a minute of refusals, which cost nothing.
 */
export type RateLimitRecord = {
  count(key: DirectoryKey, policy: RatePolicy, nowMs: number): void
  /** Writes everything counted so far; for the end of the process. */
  flush(): Promise<void>
}

const windowMs = 60_000
const countersMax = 100_000

type Counter = {
  key: DirectoryKey
  policy: RatePolicy
  windowStartMs: number
  count: number
  /** The ledger's revision before the first try to write it: it cannot stand before. */
  absentUpTo?: number
}

const idOf = ({ key, policy, windowStartMs }: Omit<Counter, 'count'>): string =>
  `${key.keyId}/${policy}/${windowStartMs}`

export const createRateLimitRecord = ({
  ledger,
  logger,
  instanceId,
}: {
  ledger: Ledger
  logger: Logger
  /** Tells this process's counts from another's of the same key and minute. */
  instanceId: string
}): RateLimitRecord => {
  const counters = new Map<string, Counter>()
  let timer: NodeJS.Timeout | undefined

  /** What could not be written goes with the next flush: as the same event, should it have been written after all. */
  const keep = (counter: Counter): void => {
    const id = idOf(counter)
    const known = counters.get(id)
    if (known !== undefined) {
      // Its first try may have been written: what came since is counted under the same id and so told once.
      known.count += counter.count
      if (counter.absentUpTo !== undefined) known.absentUpTo = counter.absentUpTo
    } else if (counters.size < countersMax) counters.set(id, counter)
  }

  const write = async (counter: Counter): Promise<void> => {
    const { key, policy, windowStartMs, count } = counter
    const window = new Date(windowStartMs).toISOString()
    try {
      counter.absentUpTo ??= (await ledger.lastSeen(key.organizationId)).revision
      await ledger.submit(key.organizationId, {
        absentUpTo: counter.absentUpTo,
        key: `rate-limit/${key.keyId}/${policy}/${window}/${instanceId}`,
        atMs: Math.min(windowStartMs + windowMs, Date.now()),
        actor: `key:${key.keyId}`,
        decide: (account) => recordRateLimit(account, { key_id: key.keyId, policy, window, count }),
      })
    } catch (error) {
      logger.warn({ err: error, keyId: key.keyId, count }, 'rate-limit refusals could not be recorded yet')
      keep(counter)
    }
  }

  const flushBefore = async (windowStartMs: number): Promise<void> => {
    const ended = [...counters].filter(([, counter]) => counter.windowStartMs < windowStartMs)
    for (const [id] of ended) counters.delete(id)
    await Promise.all(ended.map(([, counter]) => write(counter)))
  }

  const schedule = (nowMs: number): void => {
    if (timer !== undefined || counters.size === 0) return
    timer = setTimeout(
      () => {
        timer = undefined
        const now = Date.now()
        void flushBefore(now - (now % windowMs)).then(() => schedule(Date.now()))
      },
      windowMs - (nowMs % windowMs) + 50,
    )
    timer.unref()
  }

  return {
    count: (key, policy, nowMs) => {
      const windowStartMs = nowMs - (nowMs % windowMs)
      const id = idOf({ key, policy, windowStartMs })
      const counter = counters.get(id)
      if (counter !== undefined) counter.count++
      else if (counters.size < countersMax) counters.set(id, { key, policy, windowStartMs, count: 1 })
      schedule(nowMs)
    },
    flush: async () => {
      clearTimeout(timer)
      timer = undefined
      await flushBefore(Number.POSITIVE_INFINITY)
    },
  }
}
