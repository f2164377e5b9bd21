import type { MicroCredits } from '../../billing/money.ts'
import type { PriceBook } from '../../billing/price-book.ts'
import type { CallFacts } from '../../events/calls.ts'
import type { Account } from '../account.ts'
import { affordabilityOf, ratingOf } from '../decide.ts'

/**
 * Reservations for the highest possible cost of calls in progress. If a call causes costs for this service, or if refusing it later would
 * reveal its result, it starts only if the balance also covers the reservations (ledger protocol rule 8). Reservations are only an
 * estimate: the append prevents an overdraft.
 */
type Reservations = {
  held(organizationId: string): MicroCredits
  /** Reserves an amount. Returns a function that ends the reservation, which must be called once. */
  hold(organizationId: string, amount: MicroCredits): () => void
}

export type ReservationRequest = {
  /** The most expensive facts that the call can have. */
  readonly facts: CallFacts
  readonly book: PriceBook
  readonly atMs: number
}

/** `not_enough`: the balance does not cover this call and the calls in progress. */
export type ReservationMade =
  | { readonly kind: 'held'; readonly release: () => void }
  | { readonly kind: 'not_enough'; readonly held: MicroCredits }

/** Keeps reservations in memory. */
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

/** Checks the balance and makes the reservation without an await in between, so that concurrent calls cannot reserve the same credits. */
export const reserveOn = (
  reservations: Reservations,
  account: Account,
  { facts, book, atMs }: ReservationRequest,
): ReservationMade => {
  const { organizationId } = account
  const held = reservations.held(organizationId)
  if (affordabilityOf(account, facts, { book, atMs, held }) === 'unpaid') return { kind: 'not_enough', held }
  const { total } = ratingOf(account, facts, book, atMs)
  return { kind: 'held', release: reservations.hold(organizationId, total) }
}
