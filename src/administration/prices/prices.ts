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
import { CommandRefused } from '../../ledger/command.ts'
import { readPrices } from '../../ledger/prices/price-stream.ts'
import { approvalRefusal, readOperators } from '../approval.ts'
import { InputFault, type PriceName } from '../input.ts'
import { provedUserOf } from '../operator.ts'

/** Proposes, approves and withdraws price books. Earlier charges keep their price. */

type Log = Pick<Foundation, 'eventLog'>

/** The book in force at an instant, the later books, and the proposals waiting for approval; `changesOf` returns the changes of a proposal. */
export const pricesAt = async (
  { eventLog }: Log,
  atMs: number,
): Promise<{
  inForce: PublishedBook | null
  upcoming: PublishedBook[]
  open: PriceProposal[]
  changesOf: (proposal: PriceProposal) => RuleChange[]
}> => {
  const { prices } = await readPrices(eventLog)
  return {
    inForce: publishedAt(prices, atMs),
    upcoming: standingBooks(prices).filter(({ effective_from }) => Date.parse(effective_from) > atMs),
    open: prices.proposals.filter((one) => isOpen(one, Date.now())),
    changesOf: (proposal) => changesOf(prices, proposal),
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
  if (kind === 'proposal') return proposalIn(prices, number)
  const found = prices.books.find(({ version }) => version === number)
  if (found === undefined) throw new CommandRefused(`there is no price book ${number}; see "price show"`)
  return found
}

const proposalIn = ({ proposals }: Prices, number: number): PriceProposal => {
  const found = proposals.find(({ proposal }) => proposal === number)
  if (found === undefined) throw new CommandRefused(`there is no proposal p${number}; see "price show"`)
  return found
}

/** A proposal with its changes. `gone` is the reason if it can no longer be approved. Throws `CommandRefused` if the proposal does not exist. */
export const proposalAt = async (
  { eventLog }: Log,
  number: number,
  nowMs: number,
): Promise<{ proposal: PriceProposal; changes: RuleChange[]; gone: string | null }> => {
  const { prices } = await readPrices(eventLog)
  const proposal = proposalIn(prices, number)
  const decision = approveProposal(prices, { proposal: number, approver: 'cli', nowMs })
  return {
    proposal,
    changes: changesOf(prices, proposal),
    gone: 'refused' in decision ? decision.refused : null,
  }
}

/** The rules that a proposal changes, compared with the book for which it was made. */
const changesOf = ({ books }: Prices, { base, rules }: Pick<PriceProposal, 'base' | 'rules'>): RuleChange[] =>
  ruleChanges(books.find(({ version }) => version === base)?.rules ?? [], rules)

type ProposalWanted = {
  /**
   * Derives the new rules from those of the book that would otherwise be in force when the new book takes effect. `version` is the
   * version of that book.
   */
  readonly rulesOver: (base: readonly PriceBookRule[], version: number | null) => readonly PriceBookRule[]
  readonly effectiveFrom: string
  readonly reason: string | null
  readonly actor: string
}

const proposalOf = (prices: Prices, { rulesOver, ...wanted }: ProposalWanted, nowMs: number) => {
  // A date in the past is refused below. Until then, the base is the book in force now.
  const base = publishedAt(prices, Math.max(Date.parse(wanted.effectiveFrom), nowMs))
  const rules = rulesOver(base?.rules ?? [], base?.version ?? null)
  return proposeBook(prices, { ...wanted, rules, proposer: wanted.actor, nowMs })
}

/** The rules that a proposal would change now. Writes nothing, and throws if `proposePriceBook` would throw. */
export const plannedChanges = async ({ eventLog }: Log, wanted: ProposalWanted): Promise<RuleChange[]> => {
  const { prices } = await readPrices(eventLog)
  return changesOf(prices, accepted(proposalOf(prices, wanted, Date.now())).data)
}

/** Proposes a book, which takes effect only after approval. */
export const proposePriceBook = async (
  { eventLog }: Log,
  wanted: ProposalWanted,
): Promise<PriceBookProposed> => {
  const { data } = await decideNext(eventLog, wanted.actor, (prices, nowMs) =>
    proposalOf(prices, wanted, nowMs),
  )
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
  const operators = await readOperators(eventLog, twoPerson)
  const { data } = await decideNext(eventLog, actor, (prices, nowMs) => {
    const decision = approveProposal(prices, { proposal, approver: actor, nowMs })
    const proposer = prices.proposals.find((one) => one.proposal === proposal)?.proposed.by
    if (proposer === undefined || 'refused' in decision) return decision
    const refused = approvalRefusal({ proposer, approver: actor, twoPerson, operators })
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

/** Throws if the decision is a refusal. */
const accepted = <Event extends Exclude<PriceDecision, { refused: string }>>(
  decision: PriceDecision<Event>,
): Event => {
  if (!('refused' in decision)) return decision
  if (decision.field !== undefined) throw new InputFault(decision.field, decision.refused)
  throw new CommandRefused(decision.refused)
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
    const decision = accepted(decide(prices, nowMs))
    const event = encodeEvent(decision, {
      id: eventIdOf(priceBookStream, once, 0),
      actor,
      effectiveAt: new Date(nowMs).toISOString(),
    })
    await appendChained(eventLog, priceBookStream, revision === -1 ? 'none' : revision, [event], patience)
    return decision
  })
}
