import { once } from 'node:events'
import type { Logger } from 'pino'
import { createOutage } from '../../concurrency/outage.ts'
import { openRedis, reasonOf } from '../../concurrency/redis.ts'
import type { DirectoryKey } from '../key-directory.ts'
import {
  type Counted,
  type RateLimiter,
  type RateVerdict,
  refusedWindowOf,
  verdictOf,
  type Window,
  windowsOf,
} from './rate-limit.ts'

/**
 * Rate limits with counters in Redis that all processes share.
 *
 * Rate limits protect capacity, not money: charges depend only on the ledger. So a call waits for Redis only briefly, and if Redis fails, the
 * process counts the call itself. While Redis is down, the full limit of a key applies in each process separately.
 *
 * One script counts a call in all its windows in one round trip. The package `rate-limiter-flexible` would count one window at a time and then
 * undo the counts of denied calls, so other processes would briefly see counts that are too high.
 */

/** A longer delay of calls would be worse than separate counters. */
const answerDefaultMaxMs = 50
const startMaxMs = 1_000
/** The pause between two attempts to run the script while no call does. */
const probePauseMs = 1_000

/**
 * Counts a call in every window, or in none if one of them is full. A window starts with its first call. KEYS are the windows. ARGV are the limit
 * and the length in milliseconds of each window. Returns `Counted`. Redis runs one script at a time, so no other call is counted in between.
 *
 * Redis stores when a key expires as a time of day. If its clock was set back, or the new primary's clock is behind, a window would last longer
 * than its length, so it is shortened. A value that is not a counter, such as one of another program, is replaced.
 */
const takeScript = `
local denied, used, left = 0, {}, {}
for i, key in ipairs(KEYS) do
  left[i] = redis.call('pttl', key)
  local value = left[i] >= 0 and redis.pcall('get', key)
  local count = type(value) == 'string' and string.match(value, '^%d+$')
  used[i] = count and tonumber(count) or 0
  if not count then
    left[i] = -1
  elseif left[i] > tonumber(ARGV[2 * i]) then
    left[i] = tonumber(ARGV[2 * i])
    redis.call('pexpire', key, left[i])
  end
  if used[i] >= tonumber(ARGV[2 * i - 1]) then denied = 1 end
end
local answer = {denied}
for i, key in ipairs(KEYS) do
  if denied == 0 then
    used[i] = used[i] + 1
    if left[i] < 0 then redis.call('set', key, 1, 'px', ARGV[2 * i]) else redis.call('incr', key) end
  end
  answer[2 * i] = used[i]
  answer[2 * i + 1] = left[i] < 0 and tonumber(ARGV[2 * i]) or left[i]
end
return answer
`

export type RateLimiterObserver = {
  /** Called when Redis stops answering, so that this process starts to count on its own. */
  degraded(): void
}

export type SharedRateLimiter = RateLimiter & {
  /** Whether Redis answered the last request. */
  shared(): boolean
  close(): void
}

type Options = {
  /** Can contain a password, so it must not be logged. */
  readonly url: string
  /** Counts the calls for which Redis does not answer. */
  readonly local: RateLimiter
  readonly logger: Logger
  readonly observe?: RateLimiterObserver
  /** How long a call waits for Redis. */
  readonly answerMaxMs?: number
}

/** Resolves when Redis is connected, or after a second, so that a missing Redis does not prevent the start. */
export async function openRedisRateLimiter(options: Options): Promise<SharedRateLimiter> {
  const { url, local, logger, observe, answerMaxMs = answerDefaultMaxMs } = options
  const redis = await openRedis({
    url,
    name: 'enrichment-rate-limits',
    script: takeScript,
    commandTimeoutMs: answerMaxMs,
  })
  const outage = createOutage({ logger, what: 'rate limits: counting in Redis' })
  let shared = true
  let closed = false
  const works = (): void => {
    shared = true
    outage.works()
  }
  const fails = (reason: string): void => {
    if (closed) return
    if (shared) observe?.degraded()
    shared = false
    // The client's own error is not logged, because it contains the command and can therefore contain the password.
    outage.failed(new Error(reason))
  }
  let probing: Promise<void> | undefined
  let again: NodeJS.Timeout | undefined
  /** A connected server can still refuse the script, for example because it is a replica or has no memory left. */
  const probe = async (): Promise<void> => {
    clearTimeout(again)
    try {
      await redis.runScript(1, 'enrichment:rate:{probe}', 1, 1)
      works()
    } catch (error) {
      fails(reasonOf(error))
      again = setTimeout(() => {
        if (!shared && redis.status === 'ready') probing = probe()
      }, probePauseMs).unref()
    }
  }
  redis.on('ready', () => {
    probing = probe()
  })
  redis.on('close', () => fails('the connection to Redis was lost'))
  redis.on('error', (error: unknown) => fails(reasonOf(error)))
  await once(redis, 'ready', { signal: AbortSignal.timeout(startMaxMs) }).catch(() => undefined)
  await probing
  if (redis.status !== 'ready') fails('Redis does not answer')

  /** If Redis answers too late, the call can be counted both in Redis and in this process. */
  const take = async (
    { keyId }: DirectoryKey,
    windows: readonly Window[],
    instead: () => Promise<RateVerdict>,
  ): Promise<RateVerdict> => {
    const args: (string | number)[] = []
    // The braces keep all windows of a key on the same node of a Redis cluster.
    for (const { policy } of windows) args.push(`enrichment:rate:{${keyId}}:${policy}`)
    for (const { limit, windowSeconds } of windows) args.push(limit, windowSeconds * 1_000)
    try {
      const answer = (await redis.runScript(windows.length, ...args)) as Counted
      const verdict = verdictOf(answer, windows)
      works()
      return verdict
    } catch (error) {
      fails(reasonOf(error))
      return instead()
    }
  }

  return {
    shared: () => shared,
    take: (key, perSecond) => take(key, windowsOf(key, perSecond), () => local.take(key, perSecond)),
    takeRefused: (key) => take(key, [refusedWindowOf(key)], () => local.takeRefused(key)),
    close: () => {
      closed = true
      clearTimeout(again)
      redis.disconnect()
    },
  }
}
