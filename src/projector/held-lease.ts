import type pg from 'pg'
import { acquireLease, type Lease, leaseRenewMs, releaseLease } from './lease.ts'

/**
 * Renews the lease of this epoch while `work` runs, and releases it after. The signal of `work` aborts when the lease is
 * lost or cannot be renewed; `failed` hears why it cannot.
 */
export const whileRenewed = async (
  pool: pg.Pool,
  {
    lease,
    epoch,
    failed,
  }: {
    lease: Lease
    epoch: bigint
    failed: (error: unknown) => void
  },
  work: (lost: AbortSignal) => Promise<void>,
): Promise<void> => {
  const lost = new AbortController()
  const renew = async (): Promise<void> => {
    try {
      if ((await acquireLease(pool, lease)) !== epoch) lost.abort()
    } catch (error) {
      failed(error)
      lost.abort()
    }
  }
  const renewing = setInterval(() => void renew(), leaseRenewMs)
  try {
    await work(lost.signal)
  } finally {
    clearInterval(renewing)
    await releaseLease(pool, lease).catch(() => undefined)
  }
}
