import { formatCredits, parseCredits } from './money.ts'
import { type Month, monthAfter, monthStart } from './months.ts'
import { closedTotals, type StatementLine, type StatementSummary } from './statement.ts'
import type { LineContent } from './statement-line.ts'

/**
 * A statement as a file, in JSON Lines or CSV. Both begin with the opening balance and end with the closing balance.
 * The file of a closed month always has the same bytes, regardless of the time, the machine or the release that wrote it.
 */

export type StatementHead = {
  readonly organizationId: string
  readonly name: string
  readonly month: Month
}

/** Writes one file format. Each string ends with a line break. */
export type StatementForm = {
  readonly head: (head: StatementHead, opening: bigint) => string
  readonly line: (line: StatementLine) => string
  /** `openAsOf`: the ledger revision up to which an open month was read; null for a closed month. */
  readonly foot: (head: StatementHead, summary: StatementSummary, openAsOf: number | null) => string
}

type Cell = string | number | null
type Column = {
  readonly name: string
  /** The column contains text, which a spreadsheet must not treat as a formula. */
  readonly text?: true
} & (
  | { readonly of: (line: StatementLine) => Cell }
  /** The cell depends only on the content of the line, so it can be created once for many lines. */
  | { readonly says: (content: LineContent) => Cell }
)

const columns: readonly Column[] = [
  { name: 'revision', of: ({ record }) => record.revision },
  { name: 'event_id', of: ({ record }) => record.eventId, text: true },
  { name: 'effective_at', of: ({ record }) => record.metadata.effective_at, text: true },
  { name: 'recorded_at', of: ({ record }) => record.metadata.recorded_at, text: true },
  { name: 'kind', says: ({ kind }) => kind, text: true },
  { name: 'request_id', of: ({ record }) => record.metadata.request_id ?? null, text: true },
  { name: 'key_id', says: ({ keyId }) => keyId, text: true },
  { name: 'capability', says: ({ capability }) => capability, text: true },
  { name: 'outcome', says: ({ outcome }) => outcome, text: true },
  { name: 'code', says: ({ code }) => code, text: true },
  { name: 'sku', says: ({ sku }) => sku, text: true },
  { name: 'rule', says: ({ rule }) => rule, text: true },
  { name: 'rule_version', says: ({ ruleVersion }) => ruleVersion },
  { name: 'price_book_version', says: ({ priceBookVersion }) => priceBookVersion },
  { name: 'override', says: ({ override }) => override, text: true },
  { name: 'calls', says: ({ calls }) => calls },
  { name: 'amount', says: ({ amount }) => formatCredits(amount) },
  { name: 'balance', of: ({ balance }) => formatCredits(balance) },
  { name: 'grant_id', says: ({ grantId }) => grantId, text: true },
  { name: 'expires_at', says: ({ expiresAt }) => expiresAt, text: true },
  { name: 'adjusts', says: ({ adjusts }) => adjusts, text: true },
  { name: 'rerate_run', says: ({ rerateRun }) => rerateRun, text: true },
  { name: 'reference', says: ({ reference }) => reference, text: true },
  { name: 'reason', says: ({ reason }) => reason, text: true },
  { name: 'actor', of: ({ record }) => record.metadata.actor, text: true },
  { name: 'corrects_month', of: ({ corrects }) => corrects, text: true },
]

type OwnColumn = Extract<Column, { readonly of: unknown }>
type Said = { readonly at: number; readonly columns: readonly Extract<Column, { readonly says: unknown }>[] }

/** The columns in order. Adjacent columns that depend only on the content form a group, whose text is created once for each content. */
const runs: readonly (OwnColumn | Said)[] = (() => {
  const found: (OwnColumn | Said)[] = []
  let at = 0
  for (const column of columns) {
    const last = found.at(-1)
    if ('of' in column) found.push(column)
    else if (last !== undefined && 'at' in last)
      found[found.length - 1] = { ...last, columns: [...last.columns, column] }
    else found.push({ at: at++, columns: [column] })
  }
  return found
})()

/** Returns a function that writes a line. `cell` returns the text of a cell, with the separator before it. */
const rowOf = (cell: (column: Column, value: Cell) => string): ((line: StatementLine) => string) => {
  const shared = new WeakMap<LineContent, readonly string[]>()
  const sharedOf = (content: LineContent): readonly string[] => {
    const texts = runs.flatMap((run) =>
      'at' in run ? run.columns.map((column) => cell(column, column.says(content))).join('') : [],
    )
    shared.set(content, texts)
    return texts
  }
  return (line) => {
    const texts = shared.get(line.content) ?? sharedOf(line.content)
    let row = ''
    for (const run of runs) row += 'at' in run ? texts[run.at] : cell(run, run.of(line))
    return row
  }
}

/** Matches strings that need no escaping. Most strings need none, and this check is cheaper than escaping. */
const plain = /^[\x20\x21\x23-\x5b\x5d-\x7e]*$/
const jsonText = (text: string): string => (plain.test(text) ? `"${text}"` : JSON.stringify(text))

const [firstColumn] = columns
const jsonNames = new Map(
  columns.map((column) => [column, `${column === firstColumn ? '{' : ','}"${column.name}":`]),
)

/** Omits empty members. The first member is never empty. */
const jsonRow = rowOf((column, value) =>
  value === null ? '' : `${jsonNames.get(column)}${typeof value === 'number' ? value : jsonText(value)}`,
)

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
  line: (line) => `${jsonRow(line)}}\n`,
  foot: ({ month }, summary, openAsOf) =>
    `${JSON.stringify({
      kind: 'closing',
      month,
      ...(openAsOf === null ? {} : { open_as_of_revision: openAsOf }),
      balance: formatCredits(summary.closing),
      ...summaryJson(summary),
    })}\n`,
}

/** The sums of a statement, under the field names used on the wire. */
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

/** The sums of a closed month, read from the last line of its JSON Lines file. */
export const summaryOf = (foot: string): StatementSummary => {
  const { balance, lines, totals, ...groups } = JSON.parse(foot) as Foot
  const summed = <Group extends { readonly amount: string }>(group: Group) => ({
    ...group,
    amount: parseCredits(group.amount),
  })
  return {
    opening: parseCredits(totals.opening),
    closing: parseCredits(balance),
    lines,
    calls: totals.calls,
    charges: groups.charges.map(({ rule_version: ruleVersion, ...group }) => ({
      ...summed(group),
      ruleVersion,
    })),
    freeCalls: groups.free_calls.map(({ rule_version: ruleVersion, ...group }) => ({
      ...group,
      ruleVersion,
      sku: null,
      override: false,
      amount: 0n,
    })),
    movements: groups.movements.map(summed),
    corrections: groups.corrections.map(summed),
  }
}
type Foot = ReturnType<typeof summaryJson> & { readonly balance: string }

/**
 * A text as a cell of CSV. A spreadsheet treats a cell that begins like a formula, also in fullwidth characters, as a formula, unless an apostrophe
 * marks it as text.
 * RFC 4180: a text with a comma, a quote or a line break is quoted.
 */
export const csvTextOf = (text: string): string => {
  const guarded = /^[=+\-@\t\r＝＋－＠]/.test(text) ? `'${text}` : text
  return /[",\r\n]/.test(guarded) ? `"${guarded.replaceAll('"', '""')}"` : guarded
}

const harmless = /^[A-Za-z0-9_.:][A-Za-z0-9_.:-]*$/

const csvText = (column: Column, value: Cell): string => {
  if (value === null) return ''
  if (typeof value === 'number' || column.text !== true) return String(value)
  return harmless.test(value) ? value : csvTextOf(value)
}

const csvCell = (column: Column, value: Cell): string =>
  column === firstColumn ? csvText(column, value) : `,${csvText(column, value)}`

const csvRow = rowOf(csvCell)

const balanceRow = (kind: string, effectiveAt: string, balance: bigint): string => {
  const cells: Readonly<Record<string, string>> = {
    kind,
    effective_at: effectiveAt,
    balance: formatCredits(balance),
  }
  return `${columns.map((column) => csvCell(column, cells[column.name] ?? null)).join('')}\r\n`
}

export const csv: StatementForm = {
  head: ({ month }, opening) =>
    `${columns.map(({ name }) => name).join(',')}\r\n${balanceRow('opening', monthStart(month), opening)}`,
  line: (line) => `${csvRow(line)}\r\n`,
  foot: ({ month }, { closing }) => balanceRow('closing', monthStart(monthAfter(month)), closing),
}
