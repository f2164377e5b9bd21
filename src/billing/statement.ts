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
 * A month's statement: the opening balance, all lines in ledger order, and their sums. It contains exactly the events
 * that count in the month (`months.ts`), so its closing balance is the opening balance of the next month. An expired
 * lot counts in the balance until it is written off.
 */

export type StatementLine = {
  readonly record: LedgerRecord
  readonly content: LineContent
  /** The earlier month that the line corrects (a closed month, or the month of a refunded call), or null. */
  readonly corrects: Month | null
  readonly balance: MicroCredits
}

/** The total charged at one price, or the calls that one rule made free. */
type CallGroup = {
  readonly capability: string | null
  readonly sku: string | null
  readonly rule: string | null
  readonly ruleVersion: number | null
  /** Distinguishes the organization's own prices from those of the price book. */
  readonly override: boolean
  /** The number of lines. A line of calls that were counted together adds its number of calls. */
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
  /** The parts of these sums that correct earlier months. */
  readonly corrections: readonly CorrectionGroup[]
}

/** The amount by which an event changes the balance. */
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

/** A refund or reversal belongs to the month of its call, even if it is made later. */
const belongsAt = (record: LedgerRecord): string => {
  const chargedAt = record.type === 'CreditAdjusted' ? record.data.charged_at : null
  return chargedAt ?? record.metadata.effective_at
}

/**
 * Creates the statement of one month. The caller must pass the events that count in the month to `add`, in ledger
 * order.
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
  /** Writes the line of a call that is not followed by a charge. */
  const end = (into: StatementLine[]): void => {
    if (waiting !== null) tell(waiting, into)
    waiting = null
  }

  return {
    /** Appends the lines that are complete. The lines of a call are complete only when the next event shows whether it was charged. */
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
    /** Must be called after the last event. Appends its line if it is a free call. */
    end,
    summary: (): StatementSummary => ({ opening, closing: balance, lines, ...totals.summary() }),
  }
}

type Group<Key> = { readonly key: Key; count: number; amount: MicroCredits }

/** Keeps one sum for each key. */
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

/** The sums that a `MonthClosed` event records. */
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
