import type { MicroCredits } from '../../billing/money.ts'
import type { PriceBook } from '../../billing/price-book.ts'
import type { CallFacts } from '../../events/calls.ts'
import type { Account } from '../account.ts'
import { affordabilityOf, ratingOf } from '../decide.ts'

/**
 * Credits that calls in progress may come to cost. Work that is paid for upstream, or whose refusal would reveal what it
 * found, starts only when the balance can pay it in addition to those (ledger protocol rule 8). It is an estimate that saves
 * money and keeps secrets; only the append prevents an overdraft.
 */
type Reservations = {
  /** What calls in progress may cost the organization. */
  held(organizationId: string): MicroCredits
  /** Holds an amount until the returned function is called, once. */
  hold(organizationId: string, amount: MicroCredits): () => void
}

/** The most that may be held, and for which organization. */
export type ReservationRequest = {
  /** The dearest the call may come to. */
  readonly facts: CallFacts
  readonly book: PriceBook
  readonly atMs: number
}

/** `not_enough`: the balance does not pay it in addition to what calls in progress hold. */
export type ReservationMade =
  | { readonly kind: 'held'; readonly release: () => void }
  | { readonly kind: 'not_enough'; readonly held: MicroCredits }

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

/** Reads and adds without an await between: two concurrent calls do not hold the same credits. */
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
