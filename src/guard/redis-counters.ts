import { setTimeout as sleep } from 'node:timers/promises'
import type { Redis } from 'ioredis'
import type { Logger } from 'pino'
import { within } from '../concurrency/deadline.ts'
import { openRedis, reasonOf } from '../concurrency/redis.ts'
import type { DirectoryKey } from './key-directory.ts'
import {
  type RateLimiter,
  type RateVerdict,
  refusedWindowOf,
  type Window,
  windowState,
  windowsOf,
} from './rate-limit.ts'

/**
 * Rate-limit counters that every process of an installation shares, in Redis.
 *
 * Limits protect capacity, not money: the ledger alone decides what is charged. So a call waits for Redis only briefly.
 * A call whose answer is late is counted in its own process instead. When Redis is gone, refuses, or has been late for
 * `lateMaxMs`, each process counts for itself and asks Redis no more, until Redis answers in time again. No
 * call fails because of it. A single late answer is no outage: counting apart gives every key its limit once more.
 *
 * One script takes all windows of a call in one round trip. `rate-limiter-flexible` knows one window at a time and gives
 * back what it took for a denied call: four commands where this is one, with moments between them in which another
 * process sees points that will be given back.
 */

/** An answer later than this is none: it would cost the call more than the shared counter is worth. */
const answerDefaultMaxMs = 50
/** Late answers for this long, without one in time, are an outage. */
const lateMaxMs = 200
/** How often Redis is tried while it does not serve; recovery takes about this long. */
const probePauseMs = 250
/** The same while the process starts: connecting takes a moment, and the start waits for it. */
const firstProbePauseMs = 10
/** What a starting process gives Redis to answer before it counts for itself. */
const startMaxMs = 1_000
/** Calls that wait for Redis at once; one more counts for itself. As many as a host takes connections. */
const waitingMax = 10_000

/**
 * Takes one from every window, or from none when one of them is full; a window opens with the first call it takes.
 * KEYS: the windows. ARGV: limit and length in milliseconds of each. Answers whether the call is denied, then of each
 * window what is used and how long it lasts. Redis runs scripts one at a time, so no other call comes between.
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

/** What operations wants to know about shared counters; every member may be left out. */
export type RateLimiterObserver = {
  /** An outage began: from now on this process counts for itself. */
  degraded?(): void
}

export type SharedRateLimiter = RateLimiter & {
  /** Whether calls are counted in Redis at this moment, and not in this process. */
  shared(): boolean
  close(): Promise<void>
}

type SharedRateLimiterOptions = {
  /** `redis://` or `rediss://`. Holds a password: never logged. */
  readonly url: string
  /** Counts while Redis does not. */
  readonly local: RateLimiter
  readonly logger: Logger
  readonly observe?: RateLimiterObserver
  /** Milliseconds a call waits for its answer; 50 by default. */
  readonly answerMaxMs?: number
}

const connectionLost = 'the connection was lost'

type Waiting = { readonly sinceMs: number; giveUp(): void }

/** Resolves once Redis serves, or after a second without it: its absence never stops a start. */
export const openSharedRateLimiter = async ({
  url,
  local,
  logger,
  observe,
  answerMaxMs = answerDefaultMaxMs,
}: SharedRateLimiterOptions): Promise<SharedRateLimiter> => {
  const redis = await openRedis({ url, name: 'enrichment-rate-limits', script: takeScript })
  const waiting = new Set<Waiting>()
  let shared = false
  let outage = false
  /** When answers began to be late; undefined once one is in time. */
  let lateSinceMs: number | undefined
  let probing: Promise<void> | undefined
  let looking: NodeJS.Timeout | undefined
  let lastError = 'it does not answer'
  const closing = new AbortController()

  const announce = (reason: string): void => {
    outage = true
    logger.warn({ reason }, 'rate limits: Redis does not serve, this process counts for itself')
    observe?.degraded?.()
  }

  const degrade = (reason: string): void => {
    if (!shared || closing.signal.aborted) return
    shared = false
    announce(reason)
    for (const one of waiting) one.giveUp()
    waiting.clear()
    probing = probe()
  }

  const answersInTime = async (): Promise<boolean> => {
    const startedMs = performance.now()
    try {
      await redis.runScript(1, 'enrichment:rate:probe', Number.MAX_SAFE_INTEGER, 1_000)
      return performance.now() - startedMs <= answerMaxMs
    } catch (error) {
      lastError = reasonOf(error)
      return false
    }
  }

  /** Tries the script itself, so that a Redis that can be reached but not written to does not count as back. */
  const probe = async (): Promise<void> => {
    while (!closing.signal.aborted) {
      if (redis.status === 'ready' && (await answersInTime())) {
        shared = true
        lateSinceMs = undefined
        if (outage) logger.info('rate limits: Redis serves again, processes count together')
        outage = false
        return
      }
      await sleep(outage ? probePauseMs : firstProbePauseMs, undefined, {
        signal: closing.signal,
        ref: false,
      }).catch(() => undefined)
    }
  }

  /**
   * One timer for all that wait, for the one that waits longest. A timer per command, as the client's `commandTimeout`
   * would set, costs more than the command's own bookkeeping and lets each waiting call find out for itself.
   */
  const watch = (delayMs: number): void => {
    looking ??= setTimeout(() => {
      looking = undefined
      const [oldest] = waiting
      if (oldest === undefined) return
      const waitedMs = performance.now() - oldest.sinceMs
      if (waitedMs < answerMaxMs) return watch(answerMaxMs - waitedMs)
      // When this process itself was held up, the answers are there and not yet read: sockets come after timers.
      setImmediate(giveUpLate)
    }, delayMs)
  }

  const giveUpLate = (): void => {
    const nowMs = performance.now()
    let late = false
    for (const one of waiting) {
      if (nowMs - one.sinceMs < answerMaxMs) break
      late = true
      waiting.delete(one)
      one.giveUp()
    }
    if (late) {
      lateSinceMs ??= nowMs
      if (nowMs - lateSinceMs >= lateMaxMs) degrade(`no answer within ${answerMaxMs} ms`)
    }
    if (waiting.size > 0) watch(0)
  }

  /** A call whose answer came too late may be counted in both places. It passed, so that is no mistake. */
  const take = (
    key: DirectoryKey,
    windows: readonly Window[],
    instead: () => Promise<RateVerdict>,
  ): Promise<RateVerdict> => {
    if (!shared || waiting.size >= waitingMax) return instead()
    return new Promise((resolve) => {
      const one: Waiting = { sinceMs: performance.now(), giveUp: () => resolve(instead()) }
      waiting.add(one)
      watch(answerMaxMs)
      ask(redis, key, windows)
        .then((answer) => {
          const verdict = verdictOf(answer, windows)
          if (!waiting.delete(one)) return
          lateSinceMs = undefined
          resolve(verdict)
        })
        .catch((error: unknown) => {
          if (!waiting.delete(one)) return
          degrade(redis.status === 'ready' ? reasonOf(error) : connectionLost)
          one.giveUp()
        })
    })
  }

  redis.on('error', (error: unknown) => {
    lastError = reasonOf(error)
  })
  redis.on('close', () => degrade(connectionLost))
  probing = probe()
  await within(probing, { waitMs: startMaxMs }, () => undefined)
  if (!shared) announce(lastError)

  return {
    shared: () => shared,
    take: (key, perSecond) => take(key, windowsOf(key, perSecond), () => local.take(key, perSecond)),
    takeRefused: (key) => take(key, [refusedWindowOf(key)], () => local.takeRefused(key)),
    close: async () => {
      closing.abort()
      shared = false
      clearTimeout(looking)
      redis.disconnect()
      for (const one of waiting) one.giveUp()
      waiting.clear()
      await probing
    },
  }
}

const ask = (redis: Redis, key: DirectoryKey, windows: readonly Window[]): Promise<number[]> => {
  const args: (string | number)[] = []
  // The braces keep a key's windows together in a cluster.
  for (const { policy } of windows) args.push(`enrichment:rate:{${key.keyId}}:${policy}`)
  for (const { limit, windowSeconds } of windows) args.push(limit, windowSeconds * 1_000)
  return redis.runScript(windows.length, ...args).then((answer) => answer as number[])
}

const verdictOf = ([denied, ...counted]: readonly number[], windows: readonly Window[]): RateVerdict => {
  if (counted.length !== 2 * windows.length) throw new Error('Redis answered something else than was asked')
  let exceeded: RateVerdict['exceeded'] = null
  const states = windows.map((window, i) => {
    const used = counted[2 * i] ?? 0
    const state = windowState({ used, leftMs: counted[2 * i + 1] ?? 0 }, window)
    // Of several full windows the last and longest is named.
    if (denied === 1 && used >= window.limit) exceeded = state
    return state
  })
  return { exceeded, windows: states }
}
