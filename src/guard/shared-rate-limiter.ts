import { setTimeout as sleep } from 'node:timers/promises'
import type { Logger } from 'pino'
import { within } from '../concurrency/deadline.ts'
import { reasonOf } from '../concurrency/redis.ts'
import type { DirectoryKey } from './key-directory.ts'
import { createLateAnswers, type LateAnswers, type Waiting } from './late-answers.ts'
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
 * Rate limits whose counters processes share, in Redis.
 *
 * Limits protect capacity, not money: the ledger alone decides what is charged. So a call waits for the store only briefly.
 * A call whose answer is late is counted in its own process instead. When the store is gone, refuses, or has been late for
 * `lateMaxMs`, each process counts for itself and asks no more, until the store answers in time again. No
 * call fails because of it. A single late answer is no outage: counting apart gives every key its limit once more.
 */

/** An answer later than this is none: it would cost the call more than the shared counter is worth. */
const answerDefaultMaxMs = 50
/** Late answers for this long, without one in time, are an outage. */
const lateMaxMs = 200
/** How often the store is tried while it does not serve; recovery takes about this long. */
const probePauseMs = 250
/** The same while the process starts: connecting takes a moment, and the start waits for it. */
const firstProbePauseMs = 10
/** What a starting process gives the store to answer before it counts for itself. */
const startMaxMs = 1_000
/** Calls that wait for an answer at once; one more counts for itself. As many as a host takes connections. */
const waitingMax = 10_000

/** Where shared counters are kept. Its errors hold no secret: they are logged. */
export type CounterStore = {
  /** For people. */
  readonly name: string
  isConnected(): boolean
  ask(key: DirectoryKey, windows: readonly Window[]): Promise<Counted>
  /** Resolves when it counts; changes nothing. */
  probe(): Promise<void>
  /** A connection that ends by itself, and faults that are no answer to anything asked. */
  watch(told: { lost(): void; fault(reason: string): void }): void
  disconnect(): void
}

/** What operations wants to know about shared counters; every member may be left out. */
export type RateLimiterObserver = {
  /** An outage began: from now on this process counts for itself. */
  degraded?(): void
}

export type SharedRateLimiter = RateLimiter & {
  /** Whether calls are counted in the store at this moment, and not in this process. */
  shared(): boolean
  close(): Promise<void>
}

type SharedRateLimiterOptions = {
  /** Counts while the store does not. */
  readonly local: RateLimiter
  readonly logger: Logger
  readonly observe?: RateLimiterObserver
  /** Milliseconds a call waits for its answer; 50 by default. */
  readonly answerMaxMs?: number
}

const connectionLost = 'the connection was lost'

type Shared = {
  readonly store: CounterStore
  readonly answerMaxMs: number
  readonly logger: Logger
  readonly observe: RateLimiterObserver | undefined
  readonly late: LateAnswers
  readonly closing: AbortSignal
  /** Calls are counted in the store. */
  shared: boolean
  /** It was announced that they are not. */
  outage: boolean
  /** When answers began to be late; undefined once one is in time. */
  lateSinceMs: number | undefined
  lastFault: string
  probing: Promise<void>
}

/** Resolves once the store serves, or after a second without it: its absence never stops a start. */
export const shareRateLimiter = async (
  store: CounterStore,
  { local, logger, observe, answerMaxMs = answerDefaultMaxMs }: SharedRateLimiterOptions,
): Promise<SharedRateLimiter> => {
  const closing = new AbortController()
  const shared: Shared = {
    store,
    answerMaxMs,
    logger,
    observe,
    late: createLateAnswers({ answerMaxMs, late: (nowMs) => noteLate(shared, nowMs) }),
    closing: closing.signal,
    shared: false,
    outage: false,
    lateSinceMs: undefined,
    lastFault: 'it does not answer',
    probing: Promise.resolve(),
  }
  store.watch({
    lost: () => degrade(shared, connectionLost),
    fault: (reason) => {
      shared.lastFault = reason
    },
  })
  shared.probing = probe(shared)
  await within(shared.probing, { waitMs: startMaxMs }, () => undefined)
  if (!shared.shared) announce(shared, shared.lastFault)

  return {
    shared: () => shared.shared,
    take: (key, perSecond) =>
      take(shared, { key, windows: windowsOf(key, perSecond), instead: () => local.take(key, perSecond) }),
    takeRefused: (key) =>
      take(shared, { key, windows: [refusedWindowOf(key)], instead: () => local.takeRefused(key) }),
    close: async () => {
      closing.abort()
      shared.shared = false
      store.disconnect()
      shared.late.giveUpAll()
      await shared.probing
    },
  }
}

/** A call whose answer came too late may be counted in both places. It passed, so that is no mistake. */
const take = (
  shared: Shared,
  {
    key,
    windows,
    instead,
  }: { key: DirectoryKey; windows: readonly Window[]; instead: () => Promise<RateVerdict> },
): Promise<RateVerdict> => {
  const { store, late } = shared
  if (!shared.shared || late.waiting() >= waitingMax) return instead()
  return new Promise((resolve) => {
    const one: Waiting = { sinceMs: performance.now(), giveUp: () => resolve(instead()) }
    late.add(one)
    store
      .ask(key, windows)
      .then((answer) => {
        const verdict = verdictOf(answer, windows)
        if (!late.settle(one)) return
        shared.lateSinceMs = undefined
        resolve(verdict)
      })
      .catch((error: unknown) => {
        if (!late.settle(one)) return
        degrade(shared, store.isConnected() ? reasonOf(error) : connectionLost)
        one.giveUp()
      })
  })
}

const noteLate = (shared: Shared, nowMs: number): void => {
  shared.lateSinceMs ??= nowMs
  if (nowMs - shared.lateSinceMs >= lateMaxMs) degrade(shared, `no answer within ${shared.answerMaxMs} ms`)
}

/** From now on this process counts for itself, until a probe is answered in time. */
const degrade = (shared: Shared, reason: string): void => {
  if (!shared.shared || shared.closing.aborted) return
  shared.shared = false
  announce(shared, reason)
  shared.late.giveUpAll()
  shared.probing = probe(shared)
}

const announce = (shared: Shared, reason: string): void => {
  shared.outage = true
  shared.logger.warn(
    { reason },
    `rate limits: ${shared.store.name} does not serve, this process counts for itself`,
  )
  shared.observe?.degraded?.()
}

/** Tries the store until it answers in time, and counts there from then on. */
const probe = async (shared: Shared): Promise<void> => {
  const { store, closing, logger } = shared
  while (!closing.aborted) {
    if (store.isConnected() && (await answersInTime(shared))) {
      shared.shared = true
      shared.lateSinceMs = undefined
      if (shared.outage) logger.info(`rate limits: ${store.name} serves again, processes count together`)
      shared.outage = false
      return
    }
    await sleep(shared.outage ? probePauseMs : firstProbePauseMs, undefined, {
      signal: closing,
      ref: false,
    }).catch(() => undefined)
  }
}

const answersInTime = async (shared: Shared): Promise<boolean> => {
  const startedMs = performance.now()
  try {
    await shared.store.probe()
    return performance.now() - startedMs <= shared.answerMaxMs
  } catch (error) {
    shared.lastFault = reasonOf(error)
    return false
  }
}
