import { once } from 'node:events'
import type { Logger } from 'pino'
import { openRedis, reasonOf } from '../../concurrency/redis.ts'
import { createOutage } from '../../event-log/outage.ts'
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
 * Rate limits in Redis, with counters that all processes share.
 *
 * Limits protect capacity, not money: only the ledger decides what is charged. So a call waits for Redis only briefly. A call
 * that Redis does not answer in time, or answers with an error, is counted in its own process instead: every call is counted
 * somewhere, and none fails because of Redis. While Redis is down, a key may make as many calls in each process as normally in all together.
 *
 * One script counts all windows of a call in one round trip. `rate-limiter-flexible` handles one window at a time and refunds
 * the points of a denied call: four commands instead of one, with moments between them in which another
 * process sees points that will be refunded.
 */

/** Waiting longer would cost the call more than the shared counter is worth. */
const answerDefaultMaxMs = 50
/** How long a starting process waits for the connection. */
const startMaxMs = 1_000

/**
 * Takes one from every window, or from none when one of them is full; a window opens with the first call it takes.
 * KEYS: the windows. ARGV: limit and length in milliseconds of each. Returns whether the call is denied, then for each
 * window the used count and the remaining time. Redis runs scripts one at a time, so no other call comes between.
 */
const takeScript = `
local denied, used, left = 0, {}, {}
for i, key in ipairs(KEYS) do
  left[i] = redis.call('pttl', key)
  used[i] = left[i] < 0 and 0 or tonumber(redis.call('get', key))
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

/** Events about shared counters, for operations. */
export type RateLimiterObserver = {
  /** Redis answered before and no longer does: this process counts alone. */
  degraded(): void
}

export type SharedRateLimiter = RateLimiter & {
  /** Whether Redis answered the last time it was asked. */
  shared(): boolean
  close(): void
}

type Options = {
  /** Holds a password: never logged. */
  readonly url: string
  /** Counts the calls that Redis does not count. */
  readonly local: RateLimiter
  readonly logger: Logger
  readonly observe?: RateLimiterObserver
  /** Milliseconds a call waits for its answer; 50 by default. */
  readonly answerMaxMs?: number
}

/** Resolves once Redis is connected, or after a second without it: a missing Redis never prevents startup. */
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
    // Not the client's own error: it carries the command, which may be the one with the password.
    outage.failed(new Error(reason))
  }
  redis.on('ready', works)
  redis.on('close', () => fails('the connection was lost'))
  redis.on('error', (error: unknown) => fails(reasonOf(error)))
  await once(redis, 'ready', { signal: AbortSignal.timeout(startMaxMs) }).catch(() => undefined)
  if (redis.status !== 'ready') fails('it does not answer')

  /** A call whose answer came too late may be counted in both places. */
  const take = async (
    { keyId }: DirectoryKey,
    windows: readonly Window[],
    instead: () => Promise<RateVerdict>,
  ): Promise<RateVerdict> => {
    const args: (string | number)[] = []
    // The braces keep a key's windows together in a cluster.
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
      redis.disconnect()
    },
  }
}
