import { type MicroCredits, parseCredits } from '../../billing/money.ts'
import type { DecodedEvent } from '../../event-log/stored-event.ts'
import type { Allocation } from '../../events/credits.ts'

/**
 * A balance as of one instant, as it was known at another: it counts events effective by the first and recorded by the second. Pure.
 *
 * It counts movements, and decides nothing: where clocks of several processes differ by a moment, a charge may have happened
 * before the grant it draws from, and a lot is below zero until then. The sum is right anyway.
 */
export type AsOf = {
  /** The latest effective time that counts. */
  readonly atMs: number
  /** The latest recording time that counts. */
  readonly knownAtMs: number
}

type BalanceFold = {
  /** The last event that was recorded in time; −1: none. */
  revision: number
  overdrawn: MicroCredits
  /** The rest of each lot, by its id. Lots with nothing left are not kept. */
  readonly lots: Map<string, { expiresAtMs: number; remaining: MicroCredits }>
}

export const newBalanceFold = (): BalanceFold => ({ revision: -1, overdrawn: 0n, lots: new Map() })

/** When an event was recorded, by its writer's clock. */
export const recordedMsOf = ({ metadata }: DecodedEvent): number => Date.parse(metadata.recorded_at)

/** Folds the ledger's next event, in place, where it counts. */
export const foldBalance = (fold: BalanceFold, event: DecodedEvent, { atMs, knownAtMs }: AsOf): void => {
  if (recordedMsOf(event) > knownAtMs) return
  fold.revision = event.recorded.revision
  if (Date.parse(event.metadata.effective_at) > atMs) return
  switch (event.type) {
    case 'CreditGranted': {
      const { grant_id, amount, overdraft_repaid, expires_at } = event.data
      const repaid = parseCredits(overdraft_repaid)
      fold.overdrawn -= repaid
      add(fold, grant_id, { amount: parseCredits(amount) - repaid, expiresAt: expires_at })
      return
    }
    case 'CreditExpired':
      take(fold, [event.data])
      return
    case 'CreditCharged':
      fold.overdrawn += parseCredits(event.data.amount) - take(fold, event.data.allocations)
      return
    case 'CreditAdjusted': {
      const { adjustment_id, allocations, overdraft_repaid, fills } = event.data
      const amount = parseCredits(event.data.amount)
      if (amount < 0n) {
        fold.overdrawn += -amount - take(fold, allocations)
        return
      }
      const repaid = parseCredits(overdraft_repaid)
      fold.overdrawn -= repaid
      let rest = amount - repaid
      for (const { grant_id, amount: part, expires_at } of fills) {
        rest -= parseCredits(part)
        add(fold, grant_id, { amount: parseCredits(part), expiresAt: expires_at })
      }
      add(fold, adjustment_id, { amount: rest, expiresAt: null })
    }
  }
}

/** The balance at that instant: lots that had expired by then do not count, written off or not. */
export const balanceOfFold = ({ lots, overdrawn }: BalanceFold, { atMs }: Pick<AsOf, 'atMs'>): MicroCredits =>
  [...lots.values()].reduce(
    (sum, { expiresAtMs, remaining }) => (expiresAtMs > atMs ? sum + remaining : sum),
    -overdrawn,
  )

const add = (
  { lots }: BalanceFold,
  grantId: string,
  { amount, expiresAt }: { amount: MicroCredits; expiresAt: string | null },
): void => {
  const remaining = (lots.get(grantId)?.remaining ?? 0n) + amount
  const expiresAtMs = expiresAt === null ? Number.POSITIVE_INFINITY : Date.parse(expiresAt)
  if (remaining === 0n) lots.delete(grantId)
  else lots.set(grantId, { expiresAtMs, remaining })
}

/** Takes from lots, and returns the total taken. */
const take = ({ lots }: BalanceFold, allocations: readonly Allocation[]): MicroCredits => {
  let taken = 0n
  for (const { grant_id, amount } of allocations) {
    const part = parseCredits(amount)
    taken += part
    const lot = lots.get(grant_id)
    const remaining = (lot?.remaining ?? 0n) - part
    if (remaining === 0n) lots.delete(grant_id)
    else lots.set(grant_id, { expiresAtMs: lot?.expiresAtMs ?? Number.POSITIVE_INFINITY, remaining })
  }
  return taken
}
