import type { LedgerEvent } from '../events/catalogue.ts'
import type { CreditAdjusted } from '../events/credits.ts'
import type { EventMetadata } from '../events/envelope.ts'
import { type MicroCredits, parseCredits } from './money.ts'
import { overrideAt, type PriceOverrideEntry, withOverride, withoutOverride } from './tariff.ts'

/** The statement lines of a ledger event. A charge has one line for each price; any other event has one line. */

export type LedgerRecord = LedgerEvent & {
  readonly revision: number
  readonly eventId: string
  readonly metadata: EventMetadata
}

/**
 * `call`: a free call. `refused_calls` and `rate_limited`: calls that were counted instead of recorded one by one. The
 * kinds from `charge` to `expiry` are movements of credits.
 */
export type LineKind =
  | 'call'
  | 'refused_calls'
  | 'rate_limited'
  | 'charge'
  | 'grant'
  | CreditAdjusted['kind']
  | 'expiry'

/**
 * A line without its time, organization and event. Lines with equal content share one object, because a month has
 * millions of lines and few of them differ. `amount` is the change in the balance: negative for charges and expiries.
 */
export type LineContent = {
  readonly kind: LineKind
  readonly amount: MicroCredits
  /** The number of calls in the line. It is 0 for the second price of a call, and for lines that are not calls. */
  readonly calls: number
  readonly keyId: string | null
  readonly capability: string | null
  readonly outcome: string | null
  readonly code: string | null
  readonly sku: string | null
  readonly rule: string | null
  readonly ruleVersion: number | null
  readonly priceBookVersion: number | null
  /** The id of the event that set the organization's own price for the line, or null. */
  readonly override: string | null
  readonly grantId: string | null
  readonly expiresAt: string | null
  /** The id of the charge that an adjustment corrects. */
  readonly adjusts: string | null
  readonly rerateRun: string | null
  readonly reference: string | null
  readonly reason: string | null
}

type RecordOf<T extends LedgerEvent['type']> = Extract<LedgerRecord, { readonly type: T }>

/** Whether an event has a line on a statement. */
export const hasLines = (type: LedgerEvent['type']): boolean =>
  type !== 'OrganizationRegistered' &&
  type !== 'PriceOverrideSet' &&
  type !== 'PriceOverrideWithdrawn' &&
  type !== 'BalanceThresholdSet' &&
  type !== 'MonthClosed'

type OwnPrice = PriceOverrideEntry & { readonly eventId: string }

/** The organization's own prices as of the last event added. */
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
    /** `of` returns the id of the event that set this price, or null if the price is from the price book. */
    none: () => bySku.size === 0,
    of: (sku: string, amount: MicroCredits, effectiveAt: string): string | null => {
      const own = overrideAt(bySku.get(sku), Date.parse(effectiveAt))
      return own !== undefined && own.amount === amount ? own.eventId : null
    },
  }
}
export type OwnPrices = ReturnType<typeof createOwnPrices>

type Charge = RecordOf<'CreditCharged'>
type Call = RecordOf<'KeyUsed'>

/** Line contents by the values that determine them, one level for each value, which is faster than one key for all values. */
type Level = { contents: readonly LineContent[] | null; readonly next: Map<unknown, Level> }
const newLevel = (): Level => ({ contents: null, next: new Map() })

/** A cache of line contents, so that lines with equal content share one object. */
let known = newLevel()
const knownMax = 4_096
let knownLeft = knownMax
const overridden = new WeakMap<LineContent, Map<string, LineContent>>()

const once = (values: readonly unknown[], make: () => readonly LineContent[]): readonly LineContent[] => {
  let level = known
  for (const value of values) {
    let next = level.next.get(value)
    if (next === undefined) {
      next = newLevel()
      level.next.set(value, next)
    }
    level = next
  }
  if (level.contents !== null) return level.contents
  level.contents = make()
  knownLeft--
  if (knownLeft === 0) {
    known = newLevel()
    knownLeft = knownMax
  }
  return level.contents
}

/** The line contents of a charge and its call. `call` is null if the previous event is not the call. */
export const chargeContents = (
  charge: Charge,
  call: Call | null,
  ownPrices: OwnPrices,
): readonly LineContent[] => {
  const { lines, amount, price_book_version } = charge.data
  const values: unknown[] = [lines.length, amount, price_book_version]
  for (const line of lines) values.push(line.sku, line.amount, line.rule, line.rule_version)
  if (call !== null) values.push(...Object.values(calledAs(call)))
  const contents = once(values, () => chargedFor(charge, call))
  return ownPrices.none()
    ? contents
    : contents.map((content) => {
        const own = ownPrices.of(content.sku ?? '', -content.amount, charge.metadata.effective_at)
        return own === null ? content : withOwnPrice(content, own)
      })
}

const withOwnPrice = (content: LineContent, override: string): LineContent => {
  const priced = overridden.get(content) ?? new Map<string, LineContent>()
  overridden.set(content, priced)
  const one = priced.get(override) ?? { ...content, override }
  priced.set(override, one)
  return one
}

const chargedFor = (charge: Charge, call: Call | null): LineContent[] => {
  let total = 0n
  const contents = charge.data.lines.map(({ sku, amount, rule, rule_version }, i) => {
    const micro = parseCredits(amount)
    total += micro
    return contentOf('charge', {
      amount: -micro,
      calls: i === 0 ? 1 : 0,
      sku,
      rule,
      ruleVersion: rule_version,
      ...(call === null ? {} : calledAs(call)),
      priceBookVersion: charge.data.price_book_version,
    })
  })
  if (total !== parseCredits(charge.data.amount))
    throw new Error(
      `the lines of charge ${charge.data.charge_id} at revision ${charge.revision} do not add up to its amount; run "event-log verify"`,
    )
  return contents
}

const calledAs = ({ data }: Call) => ({
  keyId: data.key_id,
  capability: data.capability,
  outcome: data.outcome,
  code: data.code ?? null,
})

/** The line content of an event other than a charge, or null. */
export const lineContent = (record: LedgerRecord): LineContent | null => {
  switch (record.type) {
    case 'KeyUsed':
      return freeCall(record)
    case 'CallsRefused':
      return contentOf('refused_calls', {
        calls: record.data.counts.reduce((sum, { count }) => sum + count, 0),
        keyId: record.data.key_id,
        outcome: record.data.outcome,
        code: record.data.code,
        rule: record.data.free_by.rule,
        ruleVersion: record.data.free_by.rule_version,
      })
    case 'RateLimitExceeded':
      return contentOf('rate_limited', {
        calls: record.data.count,
        keyId: record.data.key_id,
        reason: record.data.policy,
      })
    case 'CreditGranted':
      return contentOf('grant', {
        amount: parseCredits(record.data.amount),
        grantId: record.data.grant_id,
        expiresAt: record.data.expires_at,
        reference: record.data.reference,
        reason: record.data.reason,
      })
    case 'CreditExpired':
      return contentOf('expiry', {
        amount: -parseCredits(record.data.amount),
        grantId: record.data.grant_id,
      })
    case 'CreditAdjusted':
      return adjustment(record)
    default:
      return null
  }
}

const freeCall = (call: Call): LineContent | null => {
  const { free_by } = call.data
  const of = calledAs(call)
  const make = (): LineContent[] => [
    contentOf('call', {
      ...of,
      calls: 1,
      rule: free_by?.rule ?? null,
      ruleVersion: free_by?.rule_version ?? null,
    }),
  ]
  return once(['call', ...Object.values(of), free_by?.rule, free_by?.rule_version], make)[0] ?? null
}

const adjustment = ({ data }: RecordOf<'CreditAdjusted'>): LineContent =>
  contentOf(data.kind, {
    amount: parseCredits(data.amount),
    // For a void, this is the lot from which the adjustment took credits.
    grantId: data.kind === 'void' ? (data.allocations[0]?.grant_id ?? null) : null,
    adjusts: data.adjusts,
    rerateRun: data.rerate_run,
    reference: data.reference,
    reason: data.reason,
  })

const contentOf = (kind: LineKind, says: Partial<LineContent>): LineContent => ({
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
  ...says,
  kind,
})
