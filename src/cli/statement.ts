import {
  type MonthStatement,
  monthOf,
  monthStatement,
  type StatementFile,
} from '../administration/months/statements.ts'
import { formatCredits } from '../billing/money.ts'
import type { StatementLine } from '../billing/statement.ts'
import { closedTotals } from '../billing/statement.ts'
import { csv, jsonLines, summaryJson } from '../billing/statement-file.ts'
import { type Command, organizationParameter, UsageError } from './command.ts'
import { outputParameters, withOutput } from './output.ts'
import { cut, members, type Row, table } from './table.ts'

/** As many as a person reads; a file contains all of them. */
const shownMax = 1_000
const reasonCharsMax = 30

const monthParameter = { name: 'month', help: 'such as 2026-11, in UTC', required: true } as const

const statement: Command = {
  name: 'ledger statement',
  summary: "what an organization's month comes to, and every line of it",
  parameters: [
    organizationParameter,
    monthParameter,
    { name: 'csv', help: 'as CSV', kind: 'flag' },
    { name: 'jsonl', help: 'as JSON Lines, the form whose digest a closed month keeps', kind: 'flag' },
    ...outputParameters,
  ],
  changes: 'nothing',
  run: async ({ foundation, json, progress, write }, given) => {
    const organizationId = given.required('org')
    const month = monthOf('month', given.required('month'))
    const form = given.flag('csv') ? csv : given.flag('jsonl') ? jsonLines : null
    if (given.flag('csv') && given.flag('jsonl')) throw new UsageError('give --csv or --jsonl, not both')
    if (form === null && given.text('out') !== undefined)
      throw new UsageError('--out needs --csv or --jsonl: say which form the file has')
    if (form !== null && json)
      throw new UsageError('--json is the summary alone: leave out --csv and --jsonl')
    const opened = await foundation({ anyHistory: true })
    const shown: StatementLine[] = []
    const show = (lines: readonly StatementLine[]): void =>
      void shown.push(...lines.slice(0, shownMax - shown.length))
    const read = (file: StatementFile | null) =>
      monthStatement(opened, {
        organizationId,
        month,
        nowMs: Date.now(),
        file,
        ...(form === null ? { onLines: show } : {}),
        onProgress: (events) => progress(`${organizationId}: ${events} events`),
      })
    if (form === null) {
      const found = await read(null)
      return { json: statementJson(found), lines: statementLines(found, shown) }
    }
    const found = await withOutput({ write }, given, (output) => read({ form, write: output }))
    const out = given.text('out')
    return {
      json: statementJson(found),
      lines: [`${out}: ${stateOf(found)}; ${found.summary.lines} lines`],
      ...(out === undefined ? { written: true } : {}),
    }
  },
}

const stateOf = ({ head, closing, through }: MonthStatement): string => {
  if (closing === null) return `open, as of revision ${through}`
  if (closing.month !== head.month) return `closed with ${closing.month}, for nothing counted in it`
  return `closed, through revision ${closing.closed.through_revision}, digest ${closing.closed.digest}`
}

const statementJson = (found: MonthStatement) => {
  const { head, summary, closing, through } = found
  return {
    organization_id: head.organizationId,
    name: head.name,
    month: head.month,
    state: closing === null ? 'open' : 'closed',
    as_of_revision: closing === null ? through : closing.closed.through_revision,
    digest: closing === null || closing.month !== head.month ? null : closing.closed.digest,
    ...summaryJson(summary),
  }
}

const statementLines = (found: MonthStatement, shown: readonly StatementLine[]): string[] => {
  const { head, summary } = found
  const { calls, ...totals } = closedTotals(summary)
  const json = summaryJson(summary)
  const section = (title: string, rows: readonly Row[]): string[] =>
    rows.length === 0 ? [] : ['', title, ...table(rows)]
  const more = summary.lines - shown.length
  return [
    `${cut(head.name, 80)}, ${head.organizationId}, ${head.month}: ${stateOf(found)}`,
    '',
    ...members({ ...totals, calls }),
    ...section('Charges', json.charges),
    ...section('Free calls', json.free_calls),
    ...section(
      'Grants, refunds, adjustments and expiries',
      json.movements.filter(({ kind }) => kind !== 'charge'),
    ),
    ...section('Corrections of earlier months, all counted above', json.corrections),
    ...section('Lines', shown.map(shownLine)),
    ...(more > 0 ? ['', `… and ${more} lines more: --csv or --jsonl writes all of them`] : []),
  ]
}

const shownLine = ({ record, content, balance, corrects }: StatementLine): Row => ({
  effective_at: record.metadata.effective_at,
  kind: content.kind,
  request_id: record.metadata.request_id ?? null,
  what: content.sku ?? content.code ?? content.capability ?? content.grantId ?? content.adjusts,
  rule: content.rule === null ? null : `${content.rule} v${content.ruleVersion}`,
  book: content.priceBookVersion,
  override: content.override === null ? null : 'yes',
  calls: content.calls,
  amount: formatCredits(content.amount),
  balance: formatCredits(balance),
  corrects,
  reason: content.reason === null ? null : cut(content.reason, reasonCharsMax),
})

export const statementCommands: readonly Command[] = [statement]
