import type pg from 'pg'
import { usedUpAtMs } from './burn.ts'
import { type AccountRow, lotsOf, rowsOf } from './queries.ts'
import { burned } from './usage-queries.ts'

const lotsMax = 1_000

export type UsedUp = {
  /** Mean of the last whole days; null before there was one. */
  readonly perDayMicro: bigint | null
  /** Null: not in ten years, or not yet known. */
  readonly usedUpAtMs: number | null
}

/** When an organization's credits will be used up at its current rate. */
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
