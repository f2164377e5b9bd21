import type { LedgerEvent } from '../events/catalogue.ts'
import type { MonthClosed } from '../events/credits.ts'
import { formatCredits, type MicroCredits, parseCredits } from './money.ts'
import type { Month } from './months.ts'
import {
  chargeContents,
  type LedgerRecord,
  type LineContent,
  type LineKind,
  lineContent,
  type OwnPrices,
} from './statement-line.ts'

/**
 * A month's statement: the opening balance, all lines in ledger order, and their sums. It is folded from the events
 * that count in the month (`months.ts`), so the closing balance is the opening balance of the next month. An expired
 * lot counts in the balance until it is written off.
 */

export type StatementLine = {
  readonly record: LedgerRecord
  readonly content: LineContent
  /** The earlier month that the line corrects: a closed month, or the month of a refunded call. */
  readonly corrects: Month | null
  readonly balance: MicroCredits
}

/** The amount charged at one price, or the number of calls that one rule made free. */
type CallGroup = {
  readonly capability: string | null
  readonly sku: string | null
  readonly rule: string | null
  readonly ruleVersion: number | null
  /** Distinguishes the organization's own prices from those of the price book. */
  readonly override: boolean
  /** The number of lines. For calls that were counted together, the number of calls. */
  readonly count: number
  readonly amount: MicroCredits
}

type KindGroup = { readonly kind: LineKind; readonly count: number; readonly amount: MicroCredits }
type CorrectionGroup = { readonly month: Month; readonly count: number; readonly amount: MicroCredits }

export type StatementSummary = {
  readonly opening: MicroCredits
  readonly closing: MicroCredits
  readonly lines: number
  /** Recorded calls, free or charged, except those that a rate limit refused. */
  readonly calls: number
  /** Charges and free calls, grouped by capability, SKU, rule and rule version. */
  readonly charges: readonly CallGroup[]
  readonly freeCalls: readonly CallGroup[]
  /** Movements of credits by kind, including charges. */
  readonly movements: readonly KindGroup[]
  /** The part of these sums that belongs to earlier months. */
  readonly corrections: readonly CorrectionGroup[]
}

/** The change in the balance by an event; 0 for most events. */
export const movementOf = (event: LedgerEvent): MicroCredits => {
  switch (event.type) {
    case 'CreditGranted':
    case 'CreditAdjusted':
      return parseCredits(event.data.amount)
    case 'CreditCharged':
    case 'CreditExpired':
      return -parseCredits(event.data.amount)
    default:
      return 0n
  }
}

/** A refund belongs to the month of its call, even if it is made later. */
const belongsAt = (record: LedgerRecord): string => {
  const chargedAt = record.type === 'CreditAdjusted' ? record.data.charged_at : null
  return chargedAt ?? record.metadata.effective_at
}

/**
 * Folds the events that count in one month. All events of the ledger must be passed in order, up to the end of the
 * month, because earlier events can set prices. Only those that count in the month are added.
 */
export const createStatement = (month: Month, opening: MicroCredits, ownPrices: OwnPrices) => {
  let balance = opening
  let lines = 0
  let waiting: Extract<LedgerRecord, { type: 'KeyUsed' }> | null = null
  const totals = createTotals()

  const lineOf = (record: LedgerRecord, content: LineContent): StatementLine => {
    const at = belongsAt(record)
    const corrects = at.startsWith(month) ? null : at.slice(0, 7)
    balance += content.amount
    lines++
    totals.add(content, corrects)
    return { record, content, corrects, balance }
  }
  const tell = (record: LedgerRecord, into: StatementLine[]): void => {
    const content = lineContent(record)
    if (content !== null) into.push(lineOf(record, content))
  }
  /** Completes the line of a call that no charge follows. */
  const end = (into: StatementLine[]): void => {
    if (waiting !== null) tell(waiting, into)
    waiting = null
  }

  return {
    /** Appends complete lines. A call's lines are complete when it is known whether a charge follows. */
    add: (record: LedgerRecord, into: StatementLine[]): void => {
      const call =
        record.type === 'CreditCharged' && record.metadata.causation_id === waiting?.eventId ? waiting : null
      if (call === null) end(into)
      waiting = null
      if (record.type === 'CreditCharged')
        for (const content of chargeContents(record, call, ownPrices)) into.push(lineOf(record, content))
      else if (record.type === 'KeyUsed') waiting = record
      else tell(record, into)
    },
    /** Appends the line for the last event, if that is a call. */
    end,
    summary: (): StatementSummary => ({ opening, closing: balance, lines, ...totals.summary() }),
  }
}

type Group<Key> = { readonly key: Key; count: number; amount: MicroCredits }

/** One sum for each key. There are few keys. */
const createGroups = <Key extends object>() => {
  const groups = new Map<string, Group<Key>>()
  return {
    of: (name: string, key: Key): Group<Key> => {
      const group = groups.get(name) ?? { key, count: 0, amount: 0n }
      groups.set(name, group)
      return group
    },
    list: (): (Key & { count: number; amount: MicroCredits })[] =>
      [...groups]
        .sort(([a], [b]) => (a < b ? -1 : 1))
        .map(([, { key, count, amount }]) => ({ ...key, count, amount })),
  }
}

type Counted = { readonly calls: number; readonly in: readonly { group: Group<object>; count: number }[] }

const createTotals = () => {
  const charges = createGroups<Omit<CallGroup, 'count' | 'amount'>>()
  const freeCalls = createGroups<Omit<CallGroup, 'count' | 'amount'>>()
  const movements = createGroups<{ kind: LineKind }>()
  const corrections = createGroups<{ month: Month }>()
  const counted = new WeakMap<LineContent, Counted>()
  let calls = 0
  const countedOf = (content: LineContent): Counted => {
    const { kind, capability, sku, rule, ruleVersion } = content
    const isCall = kind === 'call' || kind === 'refused_calls' || kind === 'rate_limited'
    const groups: { group: Group<object>; count: number }[] = []
    if (isCall || kind === 'charge') {
      const override = content.override !== null
      const name = `${capability}\n${sku}\n${rule}\n${ruleVersion}\n${override}`
      const group = (isCall ? freeCalls : charges).of(name, { capability, sku, rule, ruleVersion, override })
      groups.push({ group, count: isCall ? content.calls : 1 })
    }
    if (!isCall) groups.push({ group: movements.of(kind, { kind }), count: 1 })
    return { calls: kind === 'rate_limited' ? 0 : content.calls, in: groups }
  }
  return {
    add: (content: LineContent, corrects: Month | null): void => {
      const { amount } = content
      const known = counted.get(content) ?? countedOf(content)
      counted.set(content, known)
      calls += known.calls
      for (const { group, count } of known.in) {
        group.count += count
        group.amount += amount
      }
      if (corrects === null) return
      const group = corrections.of(corrects, { month: corrects })
      group.count++
      group.amount += amount
    },
    summary: () => ({
      calls,
      charges: charges.list(),
      freeCalls: freeCalls.list(),
      movements: movements.list(),
      corrections: corrections.list(),
    }),
  }
}

/** The sums that `MonthClosed` records. */
export const closedTotals = ({
  opening,
  closing,
  calls,
  movements,
}: StatementSummary): MonthClosed['totals'] => {
  const sumOf = (isWanted: (kind: LineKind) => boolean): string =>
    formatCredits(
      movements.filter(({ kind }) => isWanted(kind)).reduce((sum, { amount }) => sum + amount, 0n),
    )
  const others = ['grant', 'charge', 'expiry']
  return {
    opening: formatCredits(opening),
    granted: sumOf((kind) => kind === 'grant'),
    charged: sumOf((kind) => kind === 'charge'),
    adjusted: sumOf((kind) => !others.includes(kind)),
    expired: sumOf((kind) => kind === 'expiry'),
    closing: formatCredits(closing),
    calls,
  }
}
