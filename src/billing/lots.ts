import type { Allocation } from '../events/credits.ts'
import { formatCredits, type MicroCredits } from './money.ts'

/** One grant of credits, and what is left of it. */
export type Lot = {
  readonly grantId: string
  readonly priority: number
  /** Milliseconds since the epoch; Infinity for a lot that never expires. */
  readonly expiresAtMs: number
  /** The ledger revision of the grant, by which lots are ordered by age. */
  readonly revision: number
  readonly granted: MicroCredits
  remaining: MicroCredits
}

/** The order in which lots are drawn: priority, then expiry, then age. No two lots are equal, so two processes always agree. */
export const drawOrder = (a: Lot, b: Lot): number =>
  a.priority - b.priority || compare(a.expiresAtMs, b.expiresAtMs) || a.revision - b.revision

// Infinity - Infinity is NaN, and a sort by NaN has no defined order.
const compare = (a: number, b: number): number => (a < b ? -1 : a > b ? 1 : 0)

/** The credits that can be drawn at an instant. An expired lot does not count, even if it was not written off yet. */
export const drawable = (lots: readonly Lot[], atMs: number): MicroCredits => {
  let sum = 0n
  for (const lot of lots) if (lot.expiresAtMs > atMs) sum += lot.remaining
  return sum
}

/**
 * The lots that pay an amount at an instant. `lots` must be in draw order. `uncovered` is the part that no lot can pay:
 * overdraft, if the organization may have one.
 */
export const draw = (
  lots: readonly Lot[],
  amount: MicroCredits,
  atMs: number,
): { allocations: Allocation[]; uncovered: MicroCredits } => {
  const allocations: Allocation[] = []
  let uncovered = amount
  for (const lot of lots) {
    if (uncovered === 0n) break
    if (lot.remaining === 0n || lot.expiresAtMs <= atMs) continue
    const part = lot.remaining < uncovered ? lot.remaining : uncovered
    allocations.push({ grant_id: lot.grantId, amount: formatCredits(part) })
    uncovered -= part
  }
  return { allocations, uncovered }
}
