import { RateLimiterPostgres, RateLimiterRes } from 'rate-limiter-flexible'
import type { Foundation } from '../foundation/foundation.ts'

/** Resolves with null if the attempt is allowed, otherwise with the number of seconds to wait. Rejects if the database is unavailable. */
export type Attempts = (key: string) => Promise<number | null>

const windowSeconds = 60

/**
 * Counts attempts by key in the database, so that all dashboard processes share the counts and a restart does not reset them.
 * Keys are stored as HMACs.
 */
export const createAttempts = (
  { pool, secrets }: Pick<Foundation, 'pool' | 'secrets'>,
  { what, perMinute }: { readonly what: string; readonly perMinute: number },
): Attempts => {
  const limiter = new RateLimiterPostgres({
    storeClient: pool,
    tableName: 'dashboard_attempts',
    tableCreated: true,
    keyPrefix: what,
    points: perMinute,
    duration: windowSeconds,
  })
  return async (key) => {
    try {
      await limiter.consume(secrets.requestHmac(`dashboard attempt/${key}`).toString('base64url'))
      return null
    } catch (error) {
      if (error instanceof RateLimiterRes) return Math.max(1, Math.ceil(error.msBeforeNext / 1_000))
      throw error
    }
  }
}
