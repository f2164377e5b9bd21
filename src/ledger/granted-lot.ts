import { formatCredits, parseCredits } from '../billing/money.ts'
import type { LedgerEvent } from '../events/catalogue.ts'
import type { Allocation, LotFill } from '../events/credits.ts'

/** The lots that events open, and the amounts that charges take from them. Pure. */

export type GrantedLot = Omit<LotFill, 'amount'> & {
  readonly reason: string
  readonly reference: string | null
}

/** The lot that an event opened, or null. */
export const grantedLotOf = (event: LedgerEvent, revision: number): GrantedLot | null => {
  if (event.type === 'CreditGranted') {
    const { grant_id, priority, expires_at, amount, reason, reference } = event.data
    return { grant_id, priority, expires_at, granted: amount, revision, reason, reference }
  }
  if (event.type !== 'CreditAdjusted') return null
  const { adjustment_id, amount, fills, reason, reference } = event.data
  const own = fills.reduce((rest, fill) => rest - parseCredits(fill.amount), parseCredits(amount))
  if (own <= 0n) return null
  const granted = formatCredits(own)
  return { grant_id: adjustment_id, priority: 0, expires_at: null, granted, revision, reason, reference }
}

/**
 * The amounts of a charge that were taken from lots and not refunded. The last drawn lot comes first, as in a refund. `fills` are the
 * previous refunds of the charge.
 */
export const drawnStill = (allocations: readonly Allocation[], fills: readonly LotFill[]): Allocation[] => {
  const back = new Map<string, bigint>()
  for (const { grant_id, amount } of fills)
    back.set(grant_id, (back.get(grant_id) ?? 0n) + parseCredits(amount))
  return allocations
    .map(({ grant_id, amount }) => ({ grant_id, left: parseCredits(amount) - (back.get(grant_id) ?? 0n) }))
    .filter(({ left }) => left > 0n)
    .map(({ grant_id, left }) => ({ grant_id, amount: formatCredits(left) }))
    .reverse()
}
