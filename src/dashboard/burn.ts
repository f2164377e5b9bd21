/** When credits will be used up at the current rate. An estimate for people: no decision depends on it. Pure. */

type Lot = { readonly remainingMicro: bigint; readonly expiresAtMs: number | null }

const dayMs = 86_400_000
/** Ten years: beyond that, an estimate is useless. */
const daysMax = 3_650

/**
 * The first instant, to the day, at which the remaining credits do not pay for a day. Lots are drawn in their order and are worth nothing
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
