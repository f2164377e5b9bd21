import { type MicroCredits, parseCredits } from '../../billing/money.ts'
import type { DecodedEvent } from '../../event-log/stored-event.ts'
import type { Allocation } from '../../events/credits.ts'

/**
 * Selects the balance at one instant (`atMs`), as it was known at another instant (`knownAtMs`).
 *
 * If the clocks of two processes differ, a charge can take effect just before the grant that pays for it. In the meantime, the grant's lot is below
 * zero, but the total balance is correct.
 */
export type AsOf = {
  /** The latest effective time that counts. */
  readonly atMs: number
  /** The latest recording time that counts. */
  readonly knownAtMs: number
}

type BalanceFold = {
  /** The revision of the last event that was recorded at or before `knownAtMs`, or −1 if there is none. */
  revision: number
  overdrawn: MicroCredits
  /** The remainder of each lot, by its id. Empty lots are removed. */
  readonly lots: Map<string, { expiresAtMs: number; remaining: MicroCredits }>
}

export const newBalanceFold = (): BalanceFold => ({ revision: -1, overdrawn: 0n, lots: new Map() })

/** The time at which an event was recorded, from the clock of its writer. */
export const recordedMsOf = ({ metadata }: DecodedEvent): number => Date.parse(metadata.recorded_at)

/** Folds the ledger's next event in place, unless it was recorded after `knownAtMs` or takes effect after `atMs`. */
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

/** The balance at `atMs`. Expired lots do not count, even before they are written off. */
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

/** Takes amounts from lots. Returns the total. */
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
