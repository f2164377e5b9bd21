import { formatCredits } from './money.ts'
import { type Month, monthAfter, monthStart } from './months.ts'
import { closedTotals, type StatementLine, type StatementSummary } from './statement.ts'

/**
 * A statement as a file: JSON Lines, and CSV. Both begin with the opening balance and end with the closing one. Of a closed
 * month they are the same bytes for ever: nothing in them depends on when, where or by which release they were written.
 */

export type StatementHead = {
  readonly organizationId: string
  readonly name: string
  readonly month: Month
}

/** What both forms of file are written with. Texts end with a line break. */
export type StatementForm = {
  readonly head: (head: StatementHead, opening: bigint) => string
  readonly line: (line: StatementLine) => string
  /** `openAsOf`: the ledger's revision up to which an open month was read; null for a closed one. */
  readonly foot: (head: StatementHead, summary: StatementSummary, openAsOf: number | null) => string
}

type Column = {
  readonly name: string
  readonly of: (line: StatementLine) => string | number | null
  /** Holds text, which a spreadsheet must not take for a formula. */
  readonly text?: true
}

const columns: readonly Column[] = [
  { name: 'revision', of: ({ revision }) => revision },
  { name: 'event_id', of: ({ eventId }) => eventId, text: true },
  { name: 'effective_at', of: ({ effectiveAt }) => effectiveAt, text: true },
  { name: 'recorded_at', of: ({ recordedAt }) => recordedAt, text: true },
  { name: 'kind', of: ({ kind }) => kind, text: true },
  { name: 'request_id', of: ({ requestId }) => requestId, text: true },
  { name: 'key_id', of: ({ keyId }) => keyId, text: true },
  { name: 'capability', of: ({ capability }) => capability, text: true },
  { name: 'outcome', of: ({ outcome }) => outcome, text: true },
  { name: 'code', of: ({ code }) => code, text: true },
  { name: 'sku', of: ({ sku }) => sku, text: true },
  { name: 'rule', of: ({ rule }) => rule, text: true },
  { name: 'rule_version', of: ({ ruleVersion }) => ruleVersion },
  { name: 'price_book_version', of: ({ priceBookVersion }) => priceBookVersion },
  { name: 'override', of: ({ override }) => override, text: true },
  { name: 'calls', of: ({ calls }) => calls },
  { name: 'amount', of: ({ amount }) => formatCredits(amount) },
  { name: 'balance', of: ({ balance }) => formatCredits(balance) },
  { name: 'grant_id', of: ({ grantId }) => grantId, text: true },
  { name: 'expires_at', of: ({ expiresAt }) => expiresAt, text: true },
  { name: 'adjusts', of: ({ adjusts }) => adjusts, text: true },
  { name: 'rerate_run', of: ({ rerateRun }) => rerateRun, text: true },
  { name: 'reference', of: ({ reference }) => reference, text: true },
  { name: 'reason', of: ({ reason }) => reason, text: true },
  { name: 'actor', of: ({ actor }) => actor, text: true },
  { name: 'corrects_month', of: ({ corrects }) => corrects, text: true },
]

/** Most texts need no escape, and looking is cheaper than escaping. */
const plain = /^[\x20\x21\x23-\x5b\x5d-\x7e]*$/
const jsonText = (text: string): string => (plain.test(text) ? `"${text}"` : JSON.stringify(text))

const [firstColumn] = columns
const jsonNames = columns.map(({ name }) => `"${name}":`)

/** Members that say nothing are left out. Amounts are canonical decimals, as everywhere on the wire. */
const jsonLine = (line: StatementLine): string => {
  let members = ''
  for (let i = 0; i < columns.length; i++) {
    const value = columns[i]?.of(line) ?? null
    if (value === null) continue
    members += `${members === '' ? '{' : ','}${jsonNames[i]}${typeof value === 'number' ? value : jsonText(value)}`
  }
  return `${members}}\n`
}

export const jsonLines: StatementForm = {
  head: ({ organizationId, name, month }, opening) =>
    `${JSON.stringify({
      kind: 'opening',
      organization_id: organizationId,
      name,
      month,
      from: monthStart(month),
      until: monthStart(monthAfter(month)),
      balance: formatCredits(opening),
    })}\n`,
  line: jsonLine,
  foot: ({ month }, summary, openAsOf) =>
    `${JSON.stringify({
      kind: 'closing',
      month,
      ...(openAsOf === null ? {} : { open_as_of_revision: openAsOf }),
      balance: formatCredits(summary.closing),
      ...summaryJson(summary),
    })}\n`,
}

/** The sums of a statement, in the wire's names. */
export const summaryJson = (summary: StatementSummary) => ({
  lines: summary.lines,
  totals: closedTotals(summary),
  charges: summary.charges.map(({ capability, sku, rule, ruleVersion, override, count, amount }) => ({
    capability,
    sku,
    rule,
    rule_version: ruleVersion,
    override,
    count,
    amount: formatCredits(amount),
  })),
  free_calls: summary.freeCalls.map(({ capability, rule, ruleVersion, count }) => ({
    capability,
    rule,
    rule_version: ruleVersion,
    count,
  })),
  movements: summary.movements.map((one) => ({ ...one, amount: formatCredits(one.amount) })),
  corrections: summary.corrections.map((one) => ({ ...one, amount: formatCredits(one.amount) })),
})

/** RFC 4180: what holds a comma, a quote or a line break is quoted. */
const quoted = (text: string): string => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text)

/** A spreadsheet takes a cell that begins like this for a formula: an apostrophe makes it text. */
const guarded = (text: string): string => (/^[=+\-@\t\r]/.test(text) ? `'${text}` : text)

const csvRow = (cells: readonly (string | number | null)[]): string => `${cells.join(',')}\r\n`

const harmless = /^[A-Za-z0-9_.:-]*$/

const csvCell = (column: Column, value: string | number | null): string => {
  if (value === null) return ''
  if (typeof value === 'number' || column.text !== true) return String(value)
  return harmless.test(value) && !value.startsWith('-') ? value : quoted(guarded(value))
}

const csvCells = (cellOf: (column: Column) => string | number | null): string => {
  let row = ''
  for (const column of columns)
    row += `${column === firstColumn ? '' : ','}${csvCell(column, cellOf(column))}`
  return `${row}\r\n`
}

const balanceRow = (kind: string, effectiveAt: string, balance: bigint): string =>
  csvCells(({ name }) =>
    name === 'kind'
      ? kind
      : name === 'effective_at'
        ? effectiveAt
        : name === 'balance'
          ? formatCredits(balance)
          : null,
  )

export const csv: StatementForm = {
  head: ({ month }, opening) =>
    `${csvRow(columns.map(({ name }) => name))}${balanceRow('opening', monthStart(month), opening)}`,
  line: (line) => csvCells(({ of }) => of(line)),
  foot: ({ month }, { closing }) => balanceRow('closing', monthStart(monthAfter(month)), closing),
}
