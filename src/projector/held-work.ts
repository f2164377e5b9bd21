import { setTimeout as sleep } from 'node:timers/promises'
import type pg from 'pg'
import type { Logger } from 'pino'
import { createOutage } from '../event-log/outage.ts'
import { acquireLease, type Lease, leaseRenewMs, releaseLease } from './lease.ts'

/** What one of the processes does, the one that holds a lease, again and again until it is stopped. */
export type HeldWork = {
  /** Runs until stopped; never throws. */
  run(): Promise<void>
  stop(): Promise<void>
}

type Held = {
  readonly epoch: bigint
  /** Aborts when the work is stopped, and when the lease is lost or cannot be renewed. */
  readonly signal: AbortSignal
  /** Says that it got somewhere: what fails after that is a new failure. */
  readonly works: () => void
  /** Resolves early when the work is stopped. */
  readonly pause: (ms: number) => Promise<void>
}

type Settings = {
  readonly lease: Lease
  readonly logger: Logger
  /** What fails, as the beginning of a sentence. */
  readonly what: string
  readonly leaseRetryMs: number
  readonly failurePauseMs: number
  /** Before the lease is asked for: the milliseconds to wait, where there is nothing to do. */
  readonly idleMs?: () => Promise<number | null>
}

export const failurePauseMaxMs = 10_000

/** Renews the lease while the work goes on, and releases it after. What the work throws is told, and tried again after longer and longer. */
export const createHeldWork = (
  pool: pg.Pool,
  { lease, logger, what, leaseRetryMs, failurePauseMs, idleMs = async () => null }: Settings,
  work: (held: Held) => Promise<void>,
): HeldWork => {
  const stopping = new AbortController()
  const outage = createOutage({ logger, what, level: 'error' })
  let failures = 0
  let running: Promise<void> | undefined
  const pause = (ms: number): Promise<void> =>
    sleep(ms, undefined, { signal: stopping.signal }).catch(() => undefined)
  const works = (): void => {
    failures = 0
    outage.works()
  }

  const workOnce = async (): Promise<void> => {
    const idle = await idleMs()
    if (idle !== null) return pause(idle)
    const epoch = await acquireLease(pool, lease)
    if (epoch === null) return pause(leaseRetryMs)
    const lost = new AbortController()
    const renew = async (): Promise<void> => {
      try {
        if ((await acquireLease(pool, lease)) !== epoch) lost.abort()
      } catch (error) {
        outage.failed(error)
        lost.abort()
      }
    }
    const renewing = setInterval(() => void renew(), leaseRenewMs)
    try {
      await work({ epoch, signal: AbortSignal.any([stopping.signal, lost.signal]), works, pause })
    } finally {
      clearInterval(renewing)
      await releaseLease(pool, lease).catch(() => undefined)
    }
  }

  const run = async (): Promise<void> => {
    while (!stopping.signal.aborted) {
      try {
        await workOnce()
      } catch (error) {
        if (stopping.signal.aborted) return
        outage.failed(error)
        await pause(Math.min(failurePauseMs * 2 ** failures++, failurePauseMaxMs))
      }
    }
  }

  return {
    run: () => (running ??= run()),
    stop: async () => {
      stopping.abort()
      await running
    },
  }
}
