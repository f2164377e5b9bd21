import { setTimeout as sleep } from 'node:timers/promises'
import type { Redis } from 'ioredis'
import type { Logger } from 'pino'
import { within } from '../concurrency/deadline.ts'
import { openRedis, reasonOf } from '../concurrency/redis.ts'
import type { DirectoryKey } from './key-directory.ts'
import { createLateAnswers, type LateAnswers, type Waiting } from './late-answers.ts'
import { type RateLimiter, type RateVerdict, refusedWindowOf, type Window, windowsOf } from './rate-limit.ts'
import { askRedis, probeRedis, takeScript, verdictOf } from './redis-script.ts'

/**
 * Rate-limit counters that every process of an installation shares, in Redis.
 *
 * Limits protect capacity, not money: the ledger alone decides what is charged. So a call waits for Redis only briefly.
 * A call whose answer is late is counted in its own process instead. When Redis is gone, refuses, or has been late for
 * `lateMaxMs`, each process counts for itself and asks Redis no more, until Redis answers in time again. No
 * call fails because of it. A single late answer is no outage: counting apart gives every key its limit once more.
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

type Counters = {
  readonly redis: Redis
  readonly answerMaxMs: number
  readonly logger: Logger
  readonly observe: RateLimiterObserver | undefined
  readonly late: LateAnswers
  readonly closing: AbortSignal
  /** Calls are counted in Redis. */
  shared: boolean
  /** It was announced that they are not. */
  outage: boolean
  /** When answers began to be late; undefined once one is in time. */
  lateSinceMs: number | undefined
  lastError: string
  probing: Promise<void>
}

/** Resolves once Redis serves, or after a second without it: its absence never stops a start. */
export const openSharedRateLimiter = async ({
  url,
  local,
  logger,
  observe,
  answerMaxMs = answerDefaultMaxMs,
}: SharedRateLimiterOptions): Promise<SharedRateLimiter> => {
  const redis = await openRedis({ url, name: 'enrichment-rate-limits', script: takeScript })
  const closing = new AbortController()
  const counters: Counters = {
    redis,
    answerMaxMs,
    logger,
    observe,
    late: createLateAnswers({ answerMaxMs, late: (nowMs) => noteLate(counters, nowMs) }),
    closing: closing.signal,
    shared: false,
    outage: false,
    lateSinceMs: undefined,
    lastError: 'it does not answer',
    probing: Promise.resolve(),
  }
  redis.on('error', (error: unknown) => {
    counters.lastError = reasonOf(error)
  })
  redis.on('close', () => degrade(counters, connectionLost))
  counters.probing = probe(counters)
  await within(counters.probing, { waitMs: startMaxMs }, () => undefined)
  if (!counters.shared) announce(counters, counters.lastError)

  return {
    shared: () => counters.shared,
    take: (key, perSecond) =>
      take(counters, { key, windows: windowsOf(key, perSecond), instead: () => local.take(key, perSecond) }),
    takeRefused: (key) =>
      take(counters, { key, windows: [refusedWindowOf(key)], instead: () => local.takeRefused(key) }),
    close: async () => {
      closing.abort()
      counters.shared = false
      redis.disconnect()
      counters.late.giveUpAll()
      await counters.probing
    },
  }
}

/** A call whose answer came too late may be counted in both places. It passed, so that is no mistake. */
const take = (
  counters: Counters,
  {
    key,
    windows,
    instead,
  }: { key: DirectoryKey; windows: readonly Window[]; instead: () => Promise<RateVerdict> },
): Promise<RateVerdict> => {
  const { redis, late } = counters
  if (!counters.shared || late.waiting() >= waitingMax) return instead()
  return new Promise((resolve) => {
    const one: Waiting = { sinceMs: performance.now(), giveUp: () => resolve(instead()) }
    late.add(one)
    askRedis(redis, key, windows)
      .then((answer) => {
        const verdict = verdictOf(answer, windows)
        if (!late.settle(one)) return
        counters.lateSinceMs = undefined
        resolve(verdict)
      })
      .catch((error: unknown) => {
        if (!late.settle(one)) return
        degrade(counters, redis.status === 'ready' ? reasonOf(error) : connectionLost)
        one.giveUp()
      })
  })
}

const noteLate = (counters: Counters, nowMs: number): void => {
  counters.lateSinceMs ??= nowMs
  if (nowMs - counters.lateSinceMs >= lateMaxMs)
    degrade(counters, `no answer within ${counters.answerMaxMs} ms`)
}

/** From now on this process counts for itself, until a probe is answered in time. */
const degrade = (counters: Counters, reason: string): void => {
  if (!counters.shared || counters.closing.aborted) return
  counters.shared = false
  announce(counters, reason)
  counters.late.giveUpAll()
  counters.probing = probe(counters)
}

const announce = (counters: Counters, reason: string): void => {
  counters.outage = true
  counters.logger.warn({ reason }, 'rate limits: Redis does not serve, this process counts for itself')
  counters.observe?.degraded?.()
}

/** Tries Redis until it answers in time, and counts there from then on. */
const probe = async (counters: Counters): Promise<void> => {
  const { redis, closing, logger } = counters
  while (!closing.aborted) {
    if (redis.status === 'ready' && (await answersInTime(counters))) {
      counters.shared = true
      counters.lateSinceMs = undefined
      if (counters.outage) logger.info('rate limits: Redis serves again, processes count together')
      counters.outage = false
      return
    }
    await sleep(counters.outage ? probePauseMs : firstProbePauseMs, undefined, {
      signal: closing,
      ref: false,
    }).catch(() => undefined)
  }
}

const answersInTime = async (counters: Counters): Promise<boolean> => {
  const startedMs = performance.now()
  try {
    await probeRedis(counters.redis)
    return performance.now() - startedMs <= counters.answerMaxMs
  } catch (error) {
    counters.lastError = reasonOf(error)
    return false
  }
}
