import type { LedgerEvent } from '../events/catalogue.ts'
import type { CreditAdjusted } from '../events/credits.ts'
import type { EventMetadata } from '../events/envelope.ts'
import { type MicroCredits, parseCredits } from './money.ts'
import type { Month } from './months.ts'
import { overrideAt, type PriceOverrideEntry, withOverride, withoutOverride } from './price-overrides.ts'

/** What an event of a ledger says on a statement: one line for each price of a call, and one for anything else. */

/** An event of a ledger with its envelope. */
export type LedgerRecord = LedgerEvent & {
  readonly revision: number
  readonly eventId: string
  readonly metadata: EventMetadata
}

/**
 * `call`: it cost nothing. `refused_calls` and `rate_limited`: calls that were counted together. The kinds between `charge` and
 * `expiry` are movements of credits.
 */
export type LineKind =
  | 'call'
  | 'refused_calls'
  | 'rate_limited'
  | 'charge'
  | 'grant'
  | CreditAdjusted['kind']
  | 'expiry'

/** `amount` is what the balance changed by: below zero for charges and expiries. */
export type MovementLine = {
  readonly kind: LineKind
  readonly revision: number
  readonly eventId: string
  readonly effectiveAt: string
  /** Null in what earlier releases wrote. */
  readonly recordedAt: string | null
  readonly requestId: string | null
  readonly actor: string
  readonly amount: MicroCredits
  /** How many calls the line is of; 0 for the second price of a call, and for what is no call. */
  readonly calls: number
  readonly keyId: string | null
  readonly capability: string | null
  readonly outcome: string | null
  readonly code: string | null
  readonly sku: string | null
  readonly rule: string | null
  readonly ruleVersion: number | null
  readonly priceBookVersion: number | null
  /** The organization's own price that the line was charged by: the event that set it. */
  readonly override: string | null
  readonly grantId: string | null
  readonly expiresAt: string | null
  /** The charge that an adjustment corrects. */
  readonly adjusts: string | null
  readonly rerateRun: string | null
  readonly reference: string | null
  readonly reason: string | null
  /** The closed month it would have counted in. */
  readonly corrects: Month | null
  /** The balance after it; 0 until it is on a statement. */
  balance: MicroCredits
}

type RecordOf<T extends LedgerEvent['type']> = Extract<LedgerRecord, { readonly type: T }>

/** Whether an event says something on a statement. */
export const hasLines = (type: LedgerEvent['type']): boolean =>
  type !== 'OrganizationRegistered' &&
  type !== 'PriceOverrideSet' &&
  type !== 'PriceOverrideWithdrawn' &&
  type !== 'BalanceThresholdSet' &&
  type !== 'MonthClosed'

type OwnPrice = PriceOverrideEntry & { readonly eventId: string }

/** The organization's own prices, as of the last event that was told. */
export const createOwnPrices = () => {
  const bySku = new Map<string, readonly OwnPrice[]>()
  return {
    tell: (record: LedgerRecord): void => {
      if (record.type === 'PriceOverrideSet') {
        const { sku, amount, effective_from } = record.data
        const entry = {
          revision: record.revision,
          eventId: record.eventId,
          amount: amount === null ? null : parseCredits(amount),
          fromMs: Date.parse(effective_from),
        }
        bySku.set(sku, withOverride(bySku.get(sku), entry))
      } else if (record.type === 'PriceOverrideWithdrawn') {
        const { sku, override_revision } = record.data
        bySku.set(sku, withoutOverride(bySku.get(sku), override_revision))
      }
    },
    /** The event that set the price which this one is; null: it is the price book's. */
    of: (sku: string, amount: MicroCredits, effectiveAt: string): string | null => {
      if (bySku.size === 0) return null
      const own = overrideAt(bySku.get(sku), Date.parse(effectiveAt))
      return own !== undefined && own.amount === amount ? own.eventId : null
    },
  }
}
export type OwnPrices = ReturnType<typeof createOwnPrices>

/** The lines of a charge, and of the call it was made for; `call` is null where that is not the event before it. */
export const chargeLines = (
  charge: RecordOf<'CreditCharged'>,
  call: RecordOf<'KeyUsed'> | null,
  { ownPrices, corrects }: { ownPrices: OwnPrices; corrects: Month | null },
): MovementLine[] => {
  const base = blank(charge, 'charge', corrects)
  let total = 0n
  const lines = charge.data.lines.map(({ sku, amount, rule, rule_version }, i) => {
    const micro = parseCredits(amount)
    total += micro
    return {
      ...base,
      amount: -micro,
      calls: i === 0 ? 1 : 0,
      keyId: call?.data.key_id ?? null,
      capability: call?.data.capability ?? null,
      outcome: call?.data.outcome ?? null,
      code: call?.data.code ?? null,
      sku,
      rule,
      ruleVersion: rule_version,
      priceBookVersion: charge.data.price_book_version,
      override: ownPrices.of(sku, micro, base.effectiveAt),
    }
  })
  if (total !== parseCredits(charge.data.amount))
    throw new Error(
      `the lines of charge ${charge.data.charge_id} at revision ${charge.revision} do not sum to its amount`,
    )
  return lines
}

/** The line of anything but a charge; null for what says nothing on a statement. */
export const lineOf = (record: LedgerRecord, corrects: Month | null): MovementLine | null => {
  switch (record.type) {
    case 'KeyUsed':
      return callLine(record, corrects)
    case 'CallsRefused':
      return {
        ...blank(record, 'refused_calls', corrects),
        calls: record.data.counts.reduce((sum, { count }) => sum + count, 0),
        keyId: record.data.key_id,
        outcome: record.data.outcome,
        code: record.data.code,
        rule: record.data.free_by.rule,
        ruleVersion: record.data.free_by.rule_version,
      }
    case 'RateLimitExceeded':
      return {
        ...blank(record, 'rate_limited', corrects),
        calls: record.data.count,
        keyId: record.data.key_id,
        reason: record.data.policy,
      }
    case 'CreditGranted':
      return {
        ...blank(record, 'grant', corrects),
        amount: parseCredits(record.data.amount),
        grantId: record.data.grant_id,
        expiresAt: record.data.expires_at,
        reference: record.data.reference,
        reason: record.data.reason,
      }
    case 'CreditExpired':
      return {
        ...blank(record, 'expiry', corrects),
        amount: -parseCredits(record.data.amount),
        grantId: record.data.grant_id,
      }
    case 'CreditAdjusted':
      return adjustmentLine(record, corrects)
    default:
      return null
  }
}

const callLine = (record: RecordOf<'KeyUsed'>, corrects: Month | null): MovementLine => ({
  ...blank(record, 'call', corrects),
  calls: 1,
  keyId: record.data.key_id,
  capability: record.data.capability,
  outcome: record.data.outcome,
  code: record.data.code ?? null,
  rule: record.data.free_by?.rule ?? null,
  ruleVersion: record.data.free_by?.rule_version ?? null,
})

const adjustmentLine = (record: RecordOf<'CreditAdjusted'>, corrects: Month | null): MovementLine => ({
  ...blank(record, record.data.kind, corrects),
  amount: parseCredits(record.data.amount),
  // A lot that was taken back is the one it drew from.
  grantId: record.data.kind === 'void' ? (record.data.allocations[0]?.grant_id ?? null) : null,
  adjusts: record.data.adjusts,
  rerateRun: record.data.rerate_run,
  reason: record.data.reason,
})

const blank = (
  { revision, eventId, metadata }: LedgerRecord,
  kind: LineKind,
  corrects: Month | null,
): MovementLine => ({
  kind,
  revision,
  eventId,
  effectiveAt: metadata.effective_at,
  recordedAt: metadata.recorded_at ?? null,
  requestId: metadata.request_id ?? null,
  actor: metadata.actor,
  amount: 0n,
  calls: 0,
  keyId: null,
  capability: null,
  outcome: null,
  code: null,
  sku: null,
  rule: null,
  ruleVersion: null,
  priceBookVersion: null,
  override: null,
  grantId: null,
  expiresAt: null,
  adjusts: null,
  rerateRun: null,
  reference: null,
  reason: null,
  corrects,
  balance: 0n,
})
