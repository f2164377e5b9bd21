import { setTimeout as sleep } from 'node:timers/promises'
import type pg from 'pg'
import type { Logger } from 'pino'
import { createOutage } from '../concurrency/outage.ts'

/** Work that only the process with the lease does, and that is repeated until it is stopped. */
export type HeldWork = {
  /** Runs until it is stopped. Never throws. */
  run(): Promise<void>
  stop(): Promise<void>
}

type Held = {
  readonly epoch: bigint
  /** Aborts when the work is stopped, or when the lease is lost. */
  readonly signal: AbortSignal
  /** Must be called after progress, so that a later failure is logged as a new one. */
  readonly works: () => void
  /** Waits, but resolves early if the work is stopped. */
  readonly pause: (ms: number) => Promise<void>
}

type Settings = {
  readonly lease: Lease
  readonly logger: Logger
  readonly what: string
  readonly leaseRetryMs: number
  readonly failurePauseMs: number
  /** Called before the lease is requested. Returns how long to wait until the next look for work, or null if there is work now. */
  readonly idleMs?: () => Promise<number | null>
}

export const failurePauseMaxMs = 10_000

/** Renews the lease during the work, and releases it afterwards. If the work fails, logs the error and retries after increasing pauses. */
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

/**
 * The right to do some work: a row with an owner, an epoch, and an expiry time by the database's clock. Unlike a session advisory lock, a row
 * also works with a transaction pooler. Every write by the holder checks the epoch.
 */
type Lease = { readonly name: string; readonly owner: string }

export const leaseTtlMs = 10_000
const leaseRenewMs = 3_000

/**
 * Takes the lease if it is free, expired, or already held by this owner. Returns the epoch, which changes with the holder, or null if
 * another process has the lease.
 */
export const acquireLease = async (
  client: pg.ClientBase | pg.Pool,
  { name, owner }: Lease,
): Promise<bigint | null> => {
  const { rows } = await client.query<{ epoch: string }>(
    `insert into leases as l (name, owner, epoch, expires_at)
     values ($1, $2, 1, now() + $3 * interval '1 ms')
     on conflict (name) do update
        set owner = excluded.owner, expires_at = excluded.expires_at,
            epoch = l.epoch + (l.owner <> excluded.owner)::int
      where l.owner = excluded.owner or l.expires_at < now()
     returning epoch`,
    [name, owner, leaseTtlMs],
  )
  return rows[0] === undefined ? null : BigInt(rows[0].epoch)
}

/** Releases the lease, so that the next holder can start immediately. */
export const releaseLease = async (
  client: pg.ClientBase | pg.Pool,
  { name, owner }: Lease,
): Promise<void> => {
  await client.query("update leases set expires_at = now() - interval '1 s' where name = $1 and owner = $2", [
    name,
    owner,
  ])
}
