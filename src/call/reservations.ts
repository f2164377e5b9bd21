import type { MicroCredits } from '../billing/money.ts'

/**
 * Credits that calls in progress in this process may come to cost. Work that is paid for upstream, or whose refusal
 * would tell what it found, starts only when the balance can pay it beside those (ledger protocol rule 8). It is an
 * estimate that saves money and keeps secrets; only the append prevents an overdraft.
 */
export type Reservations = {
  /** What calls in progress may cost the organization. */
  held(organizationId: string): MicroCredits
  /** Holds an amount until the returned function is called, once. */
  hold(organizationId: string, amount: MicroCredits): () => void
}

/** As large as the number of calls in progress: an organization without any takes no room. */
export const createReservations = (): Reservations => {
  const heldBy = new Map<string, MicroCredits>()
  const change = (organizationId: string, by: MicroCredits): void => {
    const held = (heldBy.get(organizationId) ?? 0n) + by
    if (held === 0n) heldBy.delete(organizationId)
    else heldBy.set(organizationId, held)
  }
  return {
    held: (organizationId) => heldBy.get(organizationId) ?? 0n,
    hold: (organizationId, amount) => {
      change(organizationId, amount)
      let holding = true
      return () => {
        if (holding) change(organizationId, -amount)
        holding = false
      }
    },
  }
}
