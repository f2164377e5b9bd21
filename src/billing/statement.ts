import type { LedgerEvent } from '../events/catalogue.ts'
import type { MonthClosed } from '../events/credits.ts'
import { formatCredits, type MicroCredits, parseCredits } from './money.ts'
import type { Month } from './months.ts'
import {
  chargeLines,
  type LedgerRecord,
  type LineKind,
  lineOf,
  type MovementLine,
  type OwnPrices,
} from './statement-line.ts'

/**
 * The statement of a month: what the balance was when it began, every line of it in ledger order, and what they sum to. It is folded
 * from the events that count in the month (`months.ts`), so opening and movements are the closing balance, and that is the
 * opening balance of the next month. The balance is that of the movements: a lot that has expired is in it until it is
 * written off.
 */

export type StatementLine = Readonly<MovementLine>

/** What was charged by one price, or how many calls one rule made free. */
type CallGroup = {
  readonly capability: string | null
  readonly sku: string | null
  readonly rule: string | null
  readonly ruleVersion: number | null
  /** Prices by an override are told apart from the price book's. */
  readonly override: boolean
  /** Lines; of calls that were counted together, calls. */
  readonly count: number
  readonly amount: MicroCredits
}

type KindGroup = { readonly kind: LineKind; readonly count: number; readonly amount: MicroCredits }
type CorrectionGroup = { readonly month: Month; readonly count: number; readonly amount: MicroCredits }

export type StatementSummary = {
  readonly opening: MicroCredits
  readonly closing: MicroCredits
  readonly lines: number
  /** Recorded calls, whatever they cost; not those that a rate limit refused. */
  readonly calls: number
  /** By capability, SKU, rule and its version. */
  readonly charges: readonly CallGroup[]
  readonly freeCalls: readonly CallGroup[]
  /** Movements of credits by kind, charges as well. */
  readonly movements: readonly KindGroup[]
  /** Of all that, what belongs to months that were closed before it was recorded. */
  readonly corrections: readonly CorrectionGroup[]
}

/** What an event changes the balance by; 0 for most. */
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

/**
 * Folds the events that count in one month. All events of the ledger have to be told in order, up to the end of the month, for
 * the prices they set; those that count in the month are added as well.
 */
export const createStatement = (month: Month, opening: MicroCredits, ownPrices: OwnPrices) => {
  let balance = opening
  let lines = 0
  let waiting: Extract<LedgerRecord, { type: 'KeyUsed' }> | null = null
  const totals = createTotals()

  const withBalance = (line: MovementLine): StatementLine => {
    balance += line.amount
    lines++
    totals.add(line)
    line.balance = balance
    return line
  }
  const correctedBy = ({ metadata }: LedgerRecord): Month | null =>
    metadata.effective_at.startsWith(month) ? null : metadata.effective_at.slice(0, 7)
  /** A call that no charge follows. */
  const free = (): StatementLine[] => {
    const line = waiting === null ? null : lineOf(waiting, correctedBy(waiting))
    waiting = null
    return line === null ? [] : [withBalance(line)]
  }

  return {
    /** The lines that are known now: those of a call are when it is known whether a charge follows. */
    add: (record: LedgerRecord): StatementLine[] => {
      if (record.type === 'CreditCharged') {
        const call = waiting !== null && record.metadata.causation_id === waiting.eventId ? waiting : null
        const before = call === null ? free() : []
        waiting = null
        const charged = chargeLines(record, call, { ownPrices, corrects: correctedBy(record) })
        return [...before, ...charged.map(withBalance)]
      }
      const before = free()
      if (record.type === 'KeyUsed') {
        waiting = record
        return before
      }
      const line = lineOf(record, correctedBy(record))
      if (line !== null) before.push(withBalance(line))
      return before
    },
    end: free,
    summary: (): StatementSummary => ({ opening, closing: balance, lines, ...totals.summary() }),
  }
}

/** A sum for every key it meets, which are few. */
const createGroups = <Key extends object>() => {
  const groups = new Map<string, { key: Key; count: number; amount: MicroCredits }>()
  return {
    add: (name: string, key: () => Key, count: number, amount: MicroCredits): void => {
      const group = groups.get(name)
      if (group === undefined) groups.set(name, { key: key(), count, amount })
      else {
        group.count += count
        group.amount += amount
      }
    },
    list: (): (Key & { count: number; amount: MicroCredits })[] =>
      [...groups]
        .sort(([a], [b]) => (a < b ? -1 : 1))
        .map(([, { key, count, amount }]) => ({ ...key, count, amount })),
  }
}

const createTotals = () => {
  const charges = createGroups<Omit<CallGroup, 'count' | 'amount'>>()
  const freeCalls = createGroups<Omit<CallGroup, 'count' | 'amount'>>()
  const movements = createGroups<{ kind: LineKind }>()
  const corrections = createGroups<{ month: Month }>()
  let calls = 0
  return {
    add: (line: MovementLine): void => {
      const { kind, capability, sku, rule, ruleVersion, amount, corrects } = line
      const isCall = kind === 'call' || kind === 'refused_calls' || kind === 'rate_limited'
      if (kind !== 'rate_limited') calls += line.calls
      if (isCall || kind === 'charge') {
        const override = line.override !== null
        const name = `${capability}\n${sku}\n${rule}\n${ruleVersion}\n${override}`
        const key = () => ({ capability, sku, rule, ruleVersion, override })
        ;(isCall ? freeCalls : charges).add(name, key, isCall ? line.calls : 1, amount)
      }
      if (!isCall) movements.add(kind, () => ({ kind }), 1, amount)
      if (corrects !== null) corrections.add(corrects, () => ({ month: corrects }), 1, amount)
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

/** The sums that `MonthClosed` keeps. */
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
