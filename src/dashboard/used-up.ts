import type pg from 'pg'
import { rowsOf } from '../concurrency/query.ts'
import { type AccountRow, lotsOf } from './queries.ts'
import { burned } from './usage-queries.ts'

const lotsMax = 1_000

export type UsedUp = {
  /** The mean of the last whole days; null before the first has ended. */
  readonly perDayMicro: bigint | null
  /** The instant at which the credits will be used up; null if it is not within ten years, or not known yet. */
  readonly usedUpAtMs: number | null
}

/** Estimates when an organization's credits will be used up at the current rate. */
export const usedUpOf = async (pool: pg.Pool, account: AccountRow, nowMs: number): Promise<UsedUp> => {
  const [lots, [rate]] = await Promise.all([
    rowsOf(pool, lotsOf(account.organization_id, { max: lotsMax, nowMs })),
    rowsOf(pool, burned(account.organization_id, nowMs)),
  ])
  if (rate === undefined) return { perDayMicro: null, usedUpAtMs: null }
  const perDayMicro = BigInt(rate.charged_micro) / BigInt(Math.max(1, rate.days))
  const drawable = lots
    .filter(({ past_expiry }) => !past_expiry)
    .map(({ remaining_micro, expires_at }) => ({
      remainingMicro: BigInt(remaining_micro),
      expiresAtMs: expires_at?.getTime() ?? null,
    }))
  const left = drawable.reduce((all, lot) => all + lot.remainingMicro, 0n)
  const overdrawnMicro = left - BigInt(account.balance_micro)
  return { perDayMicro, usedUpAtMs: usedUpAtMs(drawable, { perDayMicro, overdrawnMicro, nowMs }) }
}

type Lot = { readonly remainingMicro: bigint; readonly expiresAtMs: number | null }

const dayMs = 86_400_000
/** Ten years. A longer estimate would be useless. */
const daysMax = 3_650

/**
 * Estimates the day on which the remaining credits no longer pay for a whole day; null if it is not within ten years. Lots are used in their
 * order, until they expire. No decision depends on the estimate.
 */
export const usedUpAtMs = (
  lots: readonly Lot[],
  { perDayMicro, overdrawnMicro, nowMs }: { perDayMicro: bigint; overdrawnMicro: bigint; nowMs: number },
): number | null => {
  if (perDayMicro <= 0n) return null
  const left = lots.map((lot) => ({ ...lot }))
  let owed = overdrawnMicro
  for (let day = 0; day < daysMax; day++) {
    const atMs = nowMs + day * dayMs
    owed += perDayMicro
    for (const lot of left) {
      if (lot.expiresAtMs !== null && lot.expiresAtMs <= atMs) continue
      const drawn = lot.remainingMicro < owed ? lot.remainingMicro : owed
      lot.remainingMicro -= drawn
      owed -= drawn
    }
    if (owed > 0n) return atMs
  }
  return null
}
