import type { Allocation } from '../events/credits.ts'
import { formatCredits, type MicroCredits } from './money.ts'

/** One grant of credits, with its remaining credits. */
export type Lot = {
  readonly grantId: string
  readonly priority: number
  /** Milliseconds since the epoch; Infinity for a lot that never expires. */
  readonly expiresAtMs: number
  /** The ledger revision of the grant. It determines which of two lots is older. */
  readonly revision: number
  readonly granted: MicroCredits
  remaining: MicroCredits
}

/** The order in which lots are drawn: priority, then expiry, then age. No two lots are equal, so all processes use the same order. */
export const drawOrder = (a: Lot, b: Lot): number =>
  a.priority - b.priority || compare(a.expiresAtMs, b.expiresAtMs) || a.revision - b.revision

// A subtraction would not work: Infinity - Infinity is NaN, for which the order of a sort is undefined.
const compare = (a: number, b: number): number => (a < b ? -1 : a > b ? 1 : 0)

/** The credits that can be drawn at an instant. An expired lot does not count, even before it is written off. */
export const drawable = (lots: readonly Lot[], atMs: number): MicroCredits => {
  let sum = 0n
  for (const lot of lots) if (lot.expiresAtMs > atMs) sum += lot.remaining
  return sum
}

/**
 * The lots that pay an amount at an instant. `lots` must be in draw order. `uncovered` is the part that no lot can pay,
 * which becomes overdraft if the organization is allowed one.
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
