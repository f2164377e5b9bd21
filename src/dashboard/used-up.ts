import type pg from 'pg'
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

/** Credits that can be drawn. */
type Lot = { readonly remainingMicro: bigint; readonly expiresAtMs: number | null }

const dayMs = 86_400_000
/** Ten years: beyond that, an estimate is useless. */
const daysMax = 3_650

/**
 * An estimate for people: no decision depends on it. The first instant, to the day, at which the remaining credits do not pay for a day. Lots are drawn in their order and are worth nothing
 * after they expire. Null: not within ten years.
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
