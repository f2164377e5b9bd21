import type { DomainEventOf } from '../events/catalogue.ts'
import type { PriceBookRule } from '../events/prices.ts'
import { priceBookOf } from './price-book.ts'
import { rulesDigest } from './price-rules.ts'
import { nextVersion, type PriceProposal, type Prices, publishedAt, standingBooks } from './prices.ts'

/** Decides whether a price book can be proposed, approved or withdrawn. */

type PriceAct = DomainEventOf<
  'PriceBookProposed' | 'PriceBookPublished' | 'PriceBookWithdrawn' | 'PriceProposalWithdrawn'
>
/** `field`: the input field that caused the refusal, if any. */
export type PriceDecision<Act extends PriceAct = PriceAct> =
  | Act
  | { readonly refused: string; readonly field?: string }

/** The minimum time between publishing a book and its effect. Every process receives the book well within this time. */
const priceNoticeMs = 5_000

/** Whether a proposal can still be approved. */
export const isOpen = ({ version, withdrawn, effective_from }: PriceProposal, nowMs: number): boolean =>
  version === null && withdrawn === null && Date.parse(effective_from) >= nowMs + priceNoticeMs

type ProposalWanted = {
  readonly rules: readonly PriceBookRule[]
  readonly effectiveFrom: string
  readonly reason: string | null
  readonly proposer: string
  readonly nowMs: number
}

export const proposeBook = (
  prices: Prices,
  { rules, effectiveFrom, reason, proposer, nowMs }: ProposalWanted,
): PriceDecision<DomainEventOf<'PriceBookProposed'>> => {
  const fromMs = Date.parse(effectiveFrom)
  if (fromMs < nowMs + priceNoticeMs)
    return {
      refused: `${effectiveFrom} must be at least ${priceNoticeMs / 1000} s in the future, because prices never change for the past`,
      field: 'from',
    }
  const digest = rulesDigest(rules)
  const base = publishedAt(prices, fromMs)
  if (base !== null && rulesDigest(base.rules) === digest)
    return { refused: `price book ${base.version}, which is in force then, already has exactly these rules` }
  const twin = prices.proposals.find((one) => isOpen(one, nowMs) && one.digest === digest)
  if (twin !== undefined)
    return { refused: `proposal p${twin.proposal} has exactly these rules and is still open` }
  return {
    type: 'PriceBookProposed',
    data: {
      proposal: Math.max(0, ...prices.proposals.map(({ proposal }) => proposal)) + 1,
      effective_from: effectiveFrom,
      rules: [...rules],
      digest,
      base: base?.version ?? null,
      reason,
      proposer,
    },
  }
}

export const approveProposal = (
  prices: Prices,
  { proposal: number, approver, nowMs }: { proposal: number; approver: string; nowMs: number },
): PriceDecision<DomainEventOf<'PriceBookPublished'>> => {
  const found = prices.proposals.find(({ proposal }) => proposal === number)
  const gone = whyGone(found, number)
  if (found === undefined || gone !== null) return { refused: gone ?? '' }
  const fromMs = Date.parse(found.effective_from)
  if (fromMs < nowMs + priceNoticeMs)
    return {
      refused: `p${number} takes effect at ${found.effective_from}, and it is too late to approve it: that is possible until ${priceNoticeMs / 1000} s before. Propose it again with a later --from`,
    }
  if (rulesDigest(found.rules) !== found.digest)
    return { refused: `the rules of p${number} were changed after it was proposed; run "event-log verify"` }
  const base = publishedAt(prices, fromMs)
  // A proposal contains all rules, so publishing it would undo the changes of a book that was published in the meantime.
  if ((base?.version ?? null) !== found.base)
    return {
      refused: `p${number} was proposed as a change to price book ${found.base ?? 'none'}, but another book (${base?.version ?? 'none'}) will be in force then. Propose it again`,
    }
  const later = standingBooks(prices).find(
    ({ version, effective_from }) =>
      version > (prices.newestBefore.get(number) ?? 0) && Date.parse(effective_from) > fromMs,
  )
  // The later book was proposed without this proposal's changes, so it would undo them.
  if (later !== undefined)
    return {
      refused: `price book ${later.version}, which takes effect at ${later.effective_from}, does not contain the changes of p${number} and would undo them. Withdraw p${number}, and propose it again`,
    }
  const book = {
    version: nextVersion(prices),
    effective_from: found.effective_from,
    rules: found.rules,
    approver,
    proposal: number,
  }
  return { type: 'PriceBookPublished', data: { ...book, digest: priceBookOf(book).digest } }
}

const whyGone = (found: PriceProposal | undefined, number: number): string | null => {
  if (found === undefined) return `there is no proposal p${number}; see "price show"`
  if (found.withdrawn !== null) return `p${number} was withdrawn at ${found.withdrawn.at}`
  if (found.version !== null) return `p${number} is already approved: it is price book ${found.version}`
  return null
}

export const withdrawProposal = (
  prices: Prices,
  { proposal: number, reason }: { proposal: number; reason: string },
): PriceDecision<DomainEventOf<'PriceProposalWithdrawn'>> => {
  const gone = whyGone(
    prices.proposals.find(({ proposal }) => proposal === number),
    number,
  )
  if (gone !== null) return { refused: gone }
  return { type: 'PriceProposalWithdrawn', data: { proposal: number, reason } }
}

export const withdrawBook = (
  prices: Prices,
  { version, reason, nowMs }: { version: number; reason: string; nowMs: number },
): PriceDecision<DomainEventOf<'PriceBookWithdrawn'>> => {
  const book = prices.books.find((one) => one.version === version)
  if (book === undefined) return { refused: `there is no price book ${version}; see "price show"` }
  if (book.withdrawn !== null)
    return { refused: `price book ${version} was withdrawn at ${book.withdrawn.at}` }
  const leftMs = Date.parse(book.effective_from) - nowMs
  if (leftMs <= 0)
    return {
      refused: `price book ${version} has been in force since ${book.effective_from} and can no longer be withdrawn. Propose another one`,
    }
  if (leftMs < priceNoticeMs)
    return {
      refused: `price book ${version} takes effect in less than ${priceNoticeMs / 1000} s, and some processes would not receive a withdrawal in time. Propose another one`,
    }
  return { type: 'PriceBookWithdrawn', data: { version, reason } }
}
