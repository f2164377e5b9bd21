import { formatCredits, type MicroCredits, parseCredits } from '../billing/money.ts'
import type { PriceBook } from '../billing/price-book.ts'
import { type Rating, rate } from '../billing/tariff.ts'
import type { CallFacts, CallsRefused, RateLimitExceeded } from '../events/calls.ts'
import type { LedgerEvent } from '../events/catalogue.ts'
import type { CreditGranted, PriceOverrideSet } from '../events/credits.ts'
import { type Account, allocationsFor, availableOf, overrideOf, repaidBy } from './account.ts'
import type { Affordability, CallToRecord, Instruction, LedgerCommand } from './command.ts'
import { adjustCredits, closeMonth, expireLot, voidLot } from './corrections.ts'

/** The reason why the ledger's rules do not allow a command, for the operator who sent it. `changed` means `LedgerChanged`. */
type LedgerRefusal = { readonly refused: string; readonly changed?: true }
/** The events to write, or the reason why the command is refused. */
export type Decision = readonly LedgerEvent[] | LedgerRefusal

export const isRefusal = (decision: Decision): decision is LedgerRefusal => 'refused' in decision

export const ifRegistered = (account: Account, event: () => LedgerEvent): Decision =>
  account.registered
    ? [event()]
    : { refused: `organization ${account.organizationId} is not registered; see "org list"` }

/**
 * Decides which events a command adds to a ledger. `idOf(n)` is the id of the command's nth event. `nowMs` is the current time in the
 * appending process.
 */
export const decideCommand = (
  account: Account,
  command: LedgerCommand,
  idOf: (index: number) => string,
  nowMs: number,
): Decision => {
  const { atMs } = command
  switch (command.kind) {
    case 'register':
      return registerOrganization(account, command)
    case 'grant':
      return grantCredits(account, { ...command, grantId: idOf(0) })
    case 'override_price':
      return overridePrice(account, { ...command, overrideId: idOf(0) })
    case 'withdraw_override':
      return withdrawOverride(account, command)
    case 'set_threshold':
      return setThreshold(account, command.amount)
    case 'close_month':
      return closeMonth(account, command.closed)
    case 'void':
      return voidLot(account, { ...command, adjustmentId: idOf(0) })
    case 'expire':
      return expireLot(account, { ...command, nowMs })
    case 'adjust':
      return adjustCredits(account, { ...command, adjustmentId: idOf(0) })
    case 'record': {
      const { call, book, only } = command
      if (only !== undefined && only !== affordabilityOf(account, call.facts, { book, atMs })) return []
      return recordCall(account, call, { book, chargeId: () => idOf(1), atMs })
    }
    case 'refuse': {
      const { call, book, dearest, held } = command
      if (affordabilityOf(account, dearest, { book, atMs, held }) !== 'unpaid') return []
      return recordCall(account, call, { book, chargeId: () => idOf(1), atMs })
    }
    case 'count_rate_limited':
      return recordRateLimit(account, command.exceeded)
    case 'count_refused':
      return recordCallsRefused(account, command.refused, command)
  }
}

/** Whether the balance covers the price of a call and the reservations of calls in progress (`held`). */
export const affordabilityOf = (
  account: Account,
  facts: CallFacts,
  { book, atMs, held = 0n }: { book: PriceBook; atMs: number; held?: MicroCredits },
): Affordability => {
  const { total } = ratingOf(account, facts, book, atMs)
  if (total === 0n) return 'free'
  return total <= availableOf(account, atMs) - held ? 'paid' : 'unpaid'
}

/**
 * Records a call and, if its facts cost something, the charge right after it. If the balance does not cover the call, the call is
 * recorded as refused with CREDIT_001, and is free (ledger protocol rule 5).
 */
export const recordCall = (
  account: Account,
  call: CallToRecord,
  { book, chargeId, atMs }: { book: PriceBook; chargeId: () => string; atMs: number },
): readonly LedgerEvent[] => {
  const rating = ratingOf(account, call.facts, book, atMs)
  if (rating.total === 0n) return [keyUsed(call, rating)]
  if (rating.total > availableOf(account, atMs)) {
    const facts = { kind: 'refusal', code: 'CREDIT_001' } as const
    return [
      keyUsed({ ...call, outcome: 'refused', code: facts.code, facts }, ratingOf(account, facts, book, atMs)),
    ]
  }
  return [
    keyUsed(call),
    {
      type: 'CreditCharged',
      data: {
        charge_id: chargeId(),
        sku: rating.lines[0]?.sku ?? call.capability,
        amount: formatCredits(rating.total),
        lines: rating.lines.map(({ sku, amount, rule, ruleVersion }) => ({
          sku,
          amount: formatCredits(amount),
          rule,
          rule_version: ruleVersion,
        })),
        rule: rating.rule,
        rule_version: rating.ruleVersion,
        price_book_version: rating.priceBookVersion,
        allocations: allocationsFor(account, rating.total, atMs),
        price_book_digest: book.digest,
      },
    },
  ]
}

/** Rates a call's facts at the organization's prices at an instant. */
export const ratingOf = (account: Account, facts: CallFacts, book: PriceBook, atMs: number): Rating =>
  rate(facts, book, (sku) => overrideOf(account, sku, atMs))

const keyUsed = (call: CallToRecord, free?: Rating): LedgerEvent => ({
  type: 'KeyUsed',
  data: {
    key_id: call.keyId,
    capability: call.capability,
    outcome: call.outcome,
    ...(call.code === undefined ? {} : { code: call.code }),
    facts: call.facts,
    ...(free === undefined ? {} : { free_by: { rule: free.rule, rule_version: free.ruleVersion } }),
    ...(call.idempotent === true ? { idempotent: true } : {}),
    ...(call.requestFingerprint === undefined ? {} : { request_fingerprint: call.requestFingerprint }),
  },
})

/** The outcome of a call. `events` are the call's events, either just decided or read from the ledger. */
export const outcomeOfCall = (events: readonly LedgerEvent[]): { charged: MicroCredits; unpaid: boolean } => {
  let charged = 0n
  let unpaid = false
  for (const event of events) {
    if (event.type === 'CreditCharged') charged += parseCredits(event.data.amount)
    if (event.type === 'KeyUsed') unpaid = event.data.code === 'CREDIT_001'
  }
  return { charged, unpaid }
}

/** The lines of a call's charge, or none if the call was free. */
export const chargeLinesOf = (events: readonly LedgerEvent[]): readonly { sku: string; amount: string }[] =>
  events.flatMap((event) => (event.type === 'CreditCharged' ? event.data.lines : []))

type Given<Kind extends Instruction['kind']> = Omit<Extract<Instruction, { kind: Kind }>, 'kind'>

export const registerOrganization = (
  account: Account,
  { name, overdraftLimit }: Given<'register'>,
): Decision =>
  account.registered
    ? { refused: `organization ${account.organizationId} is already registered` }
    : [
        {
          type: 'OrganizationRegistered',
          data: {
            organization_id: account.organizationId,
            name,
            overdraft_limit: formatCredits(overdraftLimit),
          },
        },
      ]

/** Grants a lot, which first repays the overdraft. */
export const grantCredits = (account: Account, grant: Given<'grant'> & { grantId: string }): Decision =>
  ifRegistered(account, () => ({
    type: 'CreditGranted',
    data: {
      grant_id: grant.grantId,
      amount: formatCredits(grant.amount),
      priority: grant.priority,
      expires_at: grant.expiresAt,
      reason: grant.reason,
      overdraft_repaid: repaidBy(account, grant.amount),
      reference: grant.reference ?? null,
    } satisfies CreditGranted,
  }))

export const overridePrice = (
  account: Account,
  {
    overrideId,
    sku,
    amount,
    effectiveFrom,
    reason = null,
  }: Omit<Given<'override_price'>, 'reason'> & { overrideId: string; reason?: string | null },
): Decision =>
  ifRegistered(account, () => ({
    type: 'PriceOverrideSet',
    data: {
      sku,
      amount: amount === null ? null : formatCredits(amount),
      effective_from: effectiveFrom,
      override_id: overrideId,
      reason,
    } satisfies PriceOverrideSet,
  }))

const withdrawOverride = (
  account: Account,
  { overrideId, overrideRevision, sku, reason }: Given<'withdraw_override'>,
): Decision =>
  account.overrides.get(sku)?.some(({ revision }) => revision === overrideRevision) === true
    ? [
        {
          type: 'PriceOverrideWithdrawn',
          data: { override_id: overrideId, override_revision: overrideRevision, sku, reason },
        },
      ]
    : {
        refused: `no override of ${sku} was set at revision ${overrideRevision}, or it was already withdrawn`,
      }

const setThreshold = (account: Account, amount: MicroCredits | null): Decision =>
  ifRegistered(account, () => ({
    type: 'BalanceThresholdSet',
    data: { amount: amount === null ? null : formatCredits(amount) },
  }))

export const recordRateLimit = (account: Account, exceeded: RateLimitExceeded): Decision =>
  ifRegistered(account, () => ({ type: 'RateLimitExceeded', data: exceeded }))

/** Records a number of refused calls, with the rule that makes them free. */
const recordCallsRefused = (
  account: Account,
  refused: Omit<CallsRefused, 'free_by'>,
  { book, atMs }: { book: PriceBook; atMs: number },
): Decision =>
  ifRegistered(account, () => {
    const { rule, ruleVersion } = ratingOf(account, { kind: 'refusal', code: refused.code }, book, atMs)
    return {
      type: 'CallsRefused',
      data: { ...refused, free_by: { rule, rule_version: ruleVersion } },
    }
  })
