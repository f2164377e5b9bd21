import { randomUUID } from 'node:crypto'
import {
  approveProposal,
  isOpen,
  type PriceDecision,
  proposeBook,
  withdrawBook,
  withdrawProposal,
} from '../../billing/price-decisions.ts'
import { type RuleChange, ruleChanges } from '../../billing/price-rules.ts'
import {
  type PriceProposal,
  type Prices,
  type PublishedBook,
  publishedAt,
  standingBooks,
} from '../../billing/prices.ts'
import { appendChained } from '../../event-log/append-chained.ts'
import { repeatConflicts } from '../../event-log/append-next.ts'
import { encodeEvent, eventIdOf } from '../../event-log/stored-event.ts'
import type { PriceBookProposed, PriceBookPublished, PriceBookRule } from '../../events/prices.ts'
import { priceBookStream } from '../../events/streams.ts'
import type { Foundation } from '../../foundation/foundation.ts'
import { readPrices } from '../../ledger/prices/price-stream.ts'
import { CommandRefused } from '../../ledger/write/commit.ts'
import { approvalRefusal } from '../approval.ts'
import { InputFault, type PriceName } from '../input.ts'
import { provedUserOf } from '../operator.ts'

/** Proposes, approves and withdraws price books. Earlier charges keep their price. */

type Log = Pick<Foundation, 'eventLog'>

/** The book in force at an instant, the later books, and the proposals waiting for approval. */
export const pricesAt = async (
  { eventLog }: Log,
  atMs: number,
): Promise<{ inForce: PublishedBook | null; upcoming: PublishedBook[]; open: PriceProposal[] }> => {
  const { prices } = await readPrices(eventLog)
  return {
    inForce: publishedAt(prices, atMs),
    upcoming: standingBooks(prices).filter(({ effective_from }) => Date.parse(effective_from) > atMs),
    open: prices.proposals.filter((one) => isOpen(one, Date.now())),
  }
}

/** The name in the form that `priceNameOf` parses. */
export const nameOfPrices = ({ kind, number }: PriceName): string =>
  `${kind === 'proposal' ? 'p' : ''}${number}`

/** The book or the proposal with this name. Throws `CommandRefused` if there is none. */
export const namedPrices = async (
  { eventLog }: Log,
  { kind, number }: PriceName,
): Promise<PublishedBook | PriceProposal> => {
  const { prices } = await readPrices(eventLog)
  const found =
    kind === 'book'
      ? prices.books.find(({ version }) => version === number)
      : prices.proposals.find(({ proposal }) => proposal === number)
  if (found === undefined)
    throw new CommandRefused(
      kind === 'book'
        ? `there is no price book ${number}; see "price show"`
        : `there is no proposal p${number}; see "price show"`,
    )
  return found
}

/** A proposal with its changes; null if there is none with this number. `gone` is the reason if it can no longer be approved. */
export const proposalAt = async (
  { eventLog }: Log,
  number: number,
  nowMs: number,
): Promise<{ proposal: PriceProposal; changes: RuleChange[]; gone: string | null } | null> => {
  const { prices } = await readPrices(eventLog)
  const proposal = prices.proposals.find((one) => one.proposal === number)
  if (proposal === undefined) return null
  const base = prices.books.find(({ version }) => version === proposal.base)
  const decision = approveProposal(prices, { proposal: number, approver: 'cli', nowMs })
  return {
    proposal,
    changes: ruleChanges(base?.rules ?? [], proposal.rules),
    gone: 'refused' in decision ? decision.refused : null,
  }
}

/**
 * Proposes a book. `rulesOver` derives the new rules from those of the book that would otherwise be in force when the new book
 * takes effect.
 */
export const proposePriceBook = async (
  { eventLog }: Log,
  {
    rulesOver,
    ...wanted
  }: {
    readonly rulesOver: (base: readonly PriceBookRule[]) => readonly PriceBookRule[]
    readonly effectiveFrom: string
    readonly reason: string | null
    readonly actor: string
  },
): Promise<PriceBookProposed> => {
  const { data } = await decideNext(eventLog, wanted.actor, (prices, nowMs) => {
    const base = publishedAt(prices, Date.parse(wanted.effectiveFrom))
    return proposeBook(prices, {
      ...wanted,
      rules: rulesOver(base?.rules ?? []),
      proposer: wanted.actor,
      nowMs,
    })
  })
  return data
}

/**
 * Publishes a proposal. The actor approves it. If two people are needed, the actor must be a verified user. Throws `CommandRefused`
 * if the actor may not approve the proposal, or it is too late.
 */
export const approvePriceBook = async (
  { eventLog }: Log,
  { proposal, actor, twoPerson }: { proposal: number; actor: string; twoPerson: boolean },
): Promise<PriceBookPublished> => {
  const { data } = await decideNext(eventLog, actor, (prices, nowMs) => {
    const decision = approveProposal(prices, { proposal, approver: actor, nowMs })
    const proposer = prices.proposals.find((one) => one.proposal === proposal)?.proposed.by
    if (proposer === undefined || 'refused' in decision) return decision
    const refused = approvalRefusal({ proposer, approver: actor, twoPerson })
    return refused === null ? decision : { refused }
  })
  return data
}

/** Withdraws a proposal, or a book that is not in force yet. Throws `CommandRefused` if that is no longer possible. */
export const withdrawPrices = async (
  { eventLog }: Log,
  {
    name: { kind, number },
    reason,
    actor,
    twoPerson,
  }: { name: PriceName; reason: string; actor: string; twoPerson: boolean },
): Promise<void> => {
  await decideNext(eventLog, actor, (prices, nowMs) => {
    if (kind === 'proposal') return withdrawProposal(prices, { proposal: number, reason })
    // An unverified name can be used by anyone, and must not undo the agreement of two people.
    if (twoPerson && provedUserOf(actor) === null)
      return {
        refused: `"${actor}" is an unverified name, and price book ${number} was approved by a verified user: set OPERATOR_TOKEN (see "user token")`,
      }
    return withdrawBook(prices, { version: number, reason, nowMs })
  })
}

/** Shorter than the notice that a price book needs, so that a late append cannot publish a book after its date. */
const patience = { unknownMs: 4_000, unavailableMs: 0, pauseMs: 50 }

/** Decides from the current stream, and appends the event at the next revision. Decides again if another process has appended first. */
const decideNext = async <Event extends Exclude<PriceDecision, { refused: string }>>(
  eventLog: Foundation['eventLog'],
  actor: string,
  decide: (prices: Prices, nowMs: number) => PriceDecision<Event>,
): Promise<Event> => {
  const once = randomUUID()
  return repeatConflicts(priceBookStream, async () => {
    const { prices, revision } = await readPrices(eventLog)
    const nowMs = Date.now()
    const decision = decide(prices, nowMs)
    if ('refused' in decision) {
      if (decision.field !== undefined) throw new InputFault(decision.field, decision.refused)
      throw new CommandRefused(decision.refused)
    }
    const event = encodeEvent(decision, {
      id: eventIdOf(priceBookStream, once, 0),
      actor,
      effectiveAt: new Date(nowMs).toISOString(),
    })
    await appendChained(eventLog, priceBookStream, revision === -1 ? 'none' : revision, [event], patience)
    return decision
  })
}
