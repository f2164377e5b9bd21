import { z } from 'zod'
import { formatCredits } from '../../billing/money.ts'
import { closedTotals, type StatementLine } from '../../billing/statement.ts'
import { csv, jsonLines, summaryJson } from '../../billing/statement-file.ts'
import { type Context, exported, type Sections, titled } from '../declare.ts'
import { eventLine } from '../event-log/event-json.ts'
import { flag, month, organization, revisionOrInstant } from '../fields.ts'
import { InputFault } from '../input.ts'
import {
  type MonthStatement,
  monthStatement,
  type StatementFile,
  statementHeadJson,
} from '../months/statements.ts'
import { exportLedger, type LedgerRange, organizationsOf } from './ledgers.ts'

const exporting = z.object({
  organization: organization({ help: 'organization id; not with --all' }).optional(),
  from: revisionOrInstant({
    label: 'From',
    help: 'first revision, or the instant from which events are effective (default: all)',
  }).optional(),
  to: revisionOrInstant({
    label: 'To',
    help: 'last revision, or the instant before which events are effective (default: all)',
  }).optional(),
  all: flag({ label: 'All', help: 'every organization, one after the other' }),
})

const exportLedgers = exported({
  name: 'ledger export',
  action: 'ledgers.read',
  summary: 'write ledgers event by event, one per line as JSON Lines; with --json, as one array',
  input: exporting,
  anyHistory: true,
  types: ['application/jsonl'],
  file: (input) => {
    rangeOf(input)
    const { organization: id, all } = input
    if (all && id !== undefined) throw new InputFault('org', 'give an organization or --all, not both')
    if (!all && id === undefined) throw new InputFault('org', 'give an organization, or --all')
    return { name: `${id ?? 'ledgers'}.jsonl`, type: 'application/jsonl' }
  },
  write: async ({ foundation, progress }, input, write) => {
    const { organization: id } = input
    const organizations = id === undefined ? await organizationsOf(foundation) : [id]
    const range = rangeOf(input)
    let events = 0
    for (const organizationId of organizations)
      for await (const page of exportLedger(foundation, { organizationId, range })) {
        events += page.length
        await write(page.map((event) => `${eventLine(event)}\n`).join(''))
        progress(`${organizationId}: ${events} events`)
      }
    return { json: { organizations: organizations.length, events }, lines: [`${events} events`] }
  },
})

/** Throws `InputFault` unless both ends are revisions or both are instants, or if the range ends before it begins. */
const rangeOf = ({ from, to }: z.output<typeof exporting>): LedgerRange => {
  if (from?.kind !== 'instant' && to?.kind !== 'instant') {
    const range = { by: 'revision', from: from?.revision ?? 0, to: to?.revision ?? null } as const
    if (range.to !== null && range.to < range.from)
      throw new InputFault('to', `${range.to} is before --from ${range.from}`)
    return range
  }
  if (from?.kind === 'revision' || to?.kind === 'revision')
    throw new InputFault('to', 'give two revisions or two instants')
  const range = { by: 'time', from: from?.instant ?? null, until: to?.instant ?? null } as const
  if (range.from !== null && range.until !== null && range.until <= range.from)
    throw new InputFault('to', `${range.until} is not after --from ${range.from}`)
  return range
}

/** The maximum number of lines shown on a page. A file contains all lines. */
const shownMax = 1_000
const reasonCharsMax = 30

const monthOfOrganization = z.object({
  organization: organization(),
  month: month({ label: 'Month (UTC)', help: 'such as 2026-11, in UTC' }),
  csv: flag({ label: 'CSV', help: 'as CSV' }),
  jsonl: flag({
    label: 'JSON Lines',
    help: 'as JSON Lines; the digest of a closed month is that of this file',
  }),
})

const statement = exported({
  name: 'ledger statement',
  action: 'ledgers.export',
  summary: 'show the statement of a month; it has the totals and every line',
  input: monthOfOrganization,
  anyHistory: true,
  types: ['text/csv', 'application/jsonl'],
  file: ({ organization: id, month: of, csv: asCsv, jsonl }) => {
    if (asCsv && jsonl) throw new InputFault('csv', 'choose CSV or JSON Lines, not both')
    if (asCsv) return { name: `${id}-${of}.csv`, type: 'text/csv' }
    return jsonl ? { name: `${id}-${of}.jsonl`, type: 'application/jsonl' } : null
  },
  write: async (context, input, write) => {
    const found = await read(context, input, { file: { form: input.csv ? csv : jsonLines, write } })
    return { json: statementJson(found), lines: [`${stateOf(found)}; ${found.summary.lines} lines`] }
  },
  run: async (context, input) => {
    const shown: StatementLine[] = []
    const onLines = (lines: readonly StatementLine[]): void =>
      void shown.push(...lines.slice(0, shownMax - shown.length))
    const found = await read(context, input, { onLines })
    return { json: statementJson(found), sections: statementSections(found, shown) }
  },
})

const read = (
  { foundation, progress }: Context,
  { organization: organizationId, month: of }: z.output<typeof monthOfOrganization>,
  {
    file = null,
    onLines,
  }: { file?: StatementFile | null; onLines?: (lines: readonly StatementLine[]) => void },
): Promise<MonthStatement> =>
  monthStatement(foundation, {
    organizationId,
    month: of,
    file,
    onLines,
    nowMs: Date.now(),
    onProgress: (events) => progress(`${organizationId}: ${events} events`),
  })

const stateOf = ({ head, closing, through }: MonthStatement): string => {
  if (closing === null) return `open, as of revision ${through}`
  if (closing.month !== head.month) return `closed with ${closing.month}, because nothing was recorded for it`
  return `closed, through revision ${closing.closed.through_revision}, digest ${closing.closed.digest}`
}

const statementJson = (found: MonthStatement) => ({
  ...statementHeadJson(found),
  ...summaryJson(found.summary),
})

const statementSections = (found: MonthStatement, shown: readonly StatementLine[]): Sections => {
  const { head, summary } = found
  const { calls, ...totals } = closedTotals(summary)
  const json = summaryJson(summary)
  const more = summary.lines - shown.length
  return [
    `${head.name}, ${head.organizationId}, ${head.month}: ${stateOf(found)}`,
    { ...totals, calls },
    ...titled('Charges', json.charges),
    ...titled('Free calls', json.free_calls),
    ...titled(
      'Grants, refunds, adjustments and expiries',
      json.movements.filter(({ kind }) => kind !== 'charge'),
    ),
    ...titled('Corrections of earlier months, all counted above', json.corrections),
    ...titled('Lines', shown.map(shownLine)),
    ...(more > 0 ? [`… and ${more} more lines: --csv or --jsonl writes all of them`] : []),
  ]
}

const shownLine = ({ record, content, balance, corrects }: StatementLine) => ({
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
  reason: content.reason === null ? null : shortened(content.reason),
})

const shortened = (reason: string): string =>
  reason.length <= reasonCharsMax ? reason : `${reason.slice(0, reasonCharsMax - 1)}…`

export const declarations = [exportLedgers, statement]
