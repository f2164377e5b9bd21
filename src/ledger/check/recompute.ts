import { formatCredits, parseCredits } from '../../billing/money.ts'
import { type PriceBook, priceBookAt } from '../../billing/price-book.ts'
import { NoRule, type Rating } from '../../billing/tariff.ts'
import type { DecodedEvent } from '../../event-log/stored-event.ts'
import type { CallFacts } from '../../events/calls.ts'
import type { DomainEventOf } from '../../events/catalogue.ts'
import type { Account } from '../account.ts'
import { ratingOf } from '../decide.ts'

/** Checks a ledger's charges against their facts, the tariff and the price book in force. Pure. */

/** Charges whose price book was changed after they were made. */
export type Contradicted = {
  readonly priceBookVersion: number
  charges: number
  readonly first: { readonly revision: number; readonly requestId: string | null; readonly chargeId: string }
}

type Charge = DomainEventOf<'CreditCharged'>['data']
type Fact = {
  readonly id: string
  readonly facts: CallFacts
  readonly atMs: number
  readonly free: { readonly rule: string; readonly rule_version: number } | undefined
}

export type Recomputing = {
  /** Returns the fault of an event, or null. Must be called before the event is folded into the account. */
  faultOf(account: Account, event: DecodedEvent): string | null
  readonly contradicted: readonly Contradicted[]
}

type Held = {
  readonly books: readonly PriceBook[]
  readonly contradicted: Map<number, Contradicted>
  /** The call that the next event may charge. */
  call: Fact | null
}

/**
 * Returns a checker whose `faultOf` must be called for every event, in order. `books` are all price books that were published and not
 * withdrawn.
 */
export const recomputing = (books: readonly PriceBook[]): Recomputing => {
  const held: Held = { books, contradicted: new Map(), call: null }
  return {
    faultOf: (account, event) => {
      const { call } = held
      held.call = null
      try {
        if (event.type === 'CreditCharged') return chargeFault(held, { account, call, event })
        if (call !== null && call.free === undefined)
          return `the previous event is the call ${call.id}, which is neither charged nor free`
        if (event.type !== 'KeyUsed') return null
        held.call = {
          id: event.recorded.id,
          facts: event.data.facts,
          atMs: Date.parse(event.metadata.effective_at),
          free: event.data.free_by,
        }
        return freeFault(books, account, held.call)
      } catch (error) {
        if (error instanceof NoRule) return error.message
        throw error
      }
    },
    get contradicted() {
      return [...held.contradicted.values()]
    },
  }
}

type Charging = {
  readonly account: Account
  readonly call: Fact | null
  readonly event: DecodedEvent & DomainEventOf<'CreditCharged'>
}

const chargeFault = ({ books, contradicted }: Held, { account, call, event }: Charging): string | null => {
  const { data: charge, metadata } = event
  if (call === null || metadata.causation_id !== call.id)
    return 'the previous event is not the call that this event charges'
  if (call.free !== undefined) return `charges a call that the rule ${call.free.rule} made free`
  const book = books.find(({ version }) => version === charge.price_book_version)
  if (book === undefined) return `was priced by price book ${charge.price_book_version}, which does not exist`
  if (charge.price_book_digest !== book.digest) {
    contradict(contradicted, book, event)
    return null
  }
  const inForce = priceBookAt(books, call.atMs)
  if (inForce === undefined || inForce.effectiveFromMs !== book.effectiveFromMs)
    return `was priced by price book ${book.version}, but ${inForce === undefined ? 'none' : `price book ${inForce.version}`} was in force`
  const rating = ratingOf(account, call.facts, book, call.atMs)
  return sayingOf(rating) === saidBy(charge)
    ? null
    : `charges ${saidBy(charge)}, but its facts, the tariff and price book ${book.version} result in ${sayingOf(rating)}`
}

const contradict = (
  contradicted: Map<number, Contradicted>,
  { version }: PriceBook,
  { data, metadata, recorded }: Charging['event'],
): void => {
  const known = contradicted.get(version)
  if (known !== undefined) known.charges++
  else
    contradicted.set(version, {
      priceBookVersion: version,
      charges: 1,
      first: {
        revision: recorded.revision,
        requestId: metadata.request_id ?? null,
        chargeId: data.charge_id,
      },
    })
}

/**
 * The event of a free call does not contain its price book. If several books took effect at the same time, the call can have been free
 * under any of them.
 */
const freeFault = (
  books: readonly PriceBook[],
  account: Account,
  { facts, atMs, free }: Fact,
): string | null => {
  if (free === undefined) return null
  const inForce = priceBookAt(books, atMs)
  const candidates = books.filter(({ effectiveFromMs }) => effectiveFromMs === inForce?.effectiveFromMs)
  const given = candidates.map((book) => freeBy(account, facts, book, atMs))
  const stated = `free by ${free.rule} version ${free.rule_version}`
  return given.includes(stated)
    ? null
    : `is ${stated}, but its facts, the tariff and the prices result in ${given.join(' or ') || 'nothing'}`
}

const freeBy = (account: Account, facts: CallFacts, book: PriceBook, atMs: number): string => {
  const rating = ratingOf(account, facts, book, atMs)
  return rating.total === 0n ? `free by ${rating.rule} version ${rating.ruleVersion}` : sayingOf(rating)
}

const sayingOf = ({ total, lines }: Rating): string =>
  said(
    formatCredits(total),
    lines.map(({ amount, ruleVersion, ...line }) => ({
      ...line,
      amount: formatCredits(amount),
      rule_version: ruleVersion,
    })),
  )

const saidBy = ({ amount, lines }: Charge): string => said(formatCredits(parseCredits(amount)), lines)

const said = (total: string, lines: Charge['lines']): string =>
  `${total} (${lines.map(({ sku, amount, rule, rule_version }) => `${sku} ${amount} by ${rule} version ${rule_version}`).join(', ')})`
