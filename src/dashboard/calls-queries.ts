import type { Query } from '../../projections/projection.ts'
import type { StatementRow } from './queries.ts'

/** Calls of one organization or of all, newest first, a page at a time, from the lines of statements. */

export type CallFilters = {
  /** Effective times, the end exclusive. */
  readonly fromMs: number
  readonly untilMs: number
  /** Null: any. */
  readonly organizationId: string | null
  readonly keyId: string | null
  readonly capability: string | null
  /** `errors`: refused or failed. */
  readonly outcome: string | null
  readonly code: string | null
  /** Calls that cost at least this. */
  readonly costMicro: bigint | null
}

/** The place of a line among all lines by time. Pages continue below one. */
export type CallPlace = { readonly atMs: number; readonly ledger: string; readonly revision: string }

export type CallRow = Pick<
  StatementRow,
  | 'revision'
  | 'effective_at'
  | 'kind'
  | 'request_id'
  | 'key_id'
  | 'key_name'
  | 'capability'
  | 'outcome'
  | 'code'
  | 'calls'
  | 'amount_micro'
> & { organization_id: string; organization_name: string | null; ledger: string }

/** The parameters of a statement, in the order in which its text names them. */
const parameters = () => {
  const values: unknown[] = []
  return { values, the: (value: unknown, type: string): string => `$${values.push(value)}::${type}` }
}
type Parameters = ReturnType<typeof parameters>

type Way = { readonly lines: string; readonly place: string; readonly order: string }
const byTime = {
  place: '(effective_at, ledger, revision)',
  order: 'effective_at desc, ledger desc, revision desc',
}

/**
 * How lines are looked through. Those of one ledger are read by revision, those of all by time; refusals and failures have an
 * index of their own.
 */
const wayOf = ({ organizationId, outcome, code }: CallFilters): Way => {
  if ((outcome !== null && outcome !== 'answered') || code !== null)
    return { ...byTime, lines: `calls is not null and outcome <> 'answered'` }
  return organizationId === null
    ? { ...byTime, lines: 'calls is not null' }
    : { lines: 'calls is not null', place: 'revision', order: 'revision desc' }
}

const placeOf = ({ place }: Way, { atMs, ledger, revision }: CallPlace, { the }: Parameters): string =>
  place === 'revision'
    ? the(revision, 'bigint')
    : `(${the(new Date(atMs), 'timestamptz')}, ${the(ledger, 'bigint')}, ${the(revision, 'bigint')})`

/** The conditions that bound the lines to look through. */
const linesOf = (
  { fromMs, untilMs, organizationId, ...filters }: CallFilters,
  before: CallPlace | null,
  values: Parameters,
): string => {
  const way = wayOf({ fromMs, untilMs, organizationId, ...filters })
  const { the } = values
  return [
    way.lines,
    `effective_at >= ${the(new Date(fromMs), 'timestamptz')} and effective_at < ${the(new Date(untilMs), 'timestamptz')}`,
    ...(organizationId === null ? [] : [`ledger = ledger_key(${the(organizationId, 'text')})`]),
    ...(before === null ? [] : [`${way.place} < ${placeOf(way, before, values)}`]),
  ].join(' and ')
}

/** The place of the last line that one page looks through; no row: there are fewer lines. */
export const lookedThrough = (
  filters: CallFilters,
  before: CallPlace | null,
  max: number,
): Query<{ at: Date; ledger: string; revision: string }> => {
  const given = parameters()
  return {
    text: `select effective_at as at, ledger::text, revision::text from ledger_lines
            where ${linesOf(filters, before, given)}
            order by ${wayOf(filters).order} offset ${given.the(max - 1, 'bigint')} limit 1`,
    values: given.values,
  }
}

/** The newest calls that match, down to a place. */
export const callsThatMatch = (
  filters: CallFilters,
  { before, downTo, max }: { before: CallPlace | null; downTo: CallPlace | null; max: number },
): Query<CallRow> => {
  const given = parameters()
  const way = wayOf(filters)
  const is = (column: string, value: string | null): string[] =>
    value === null ? [] : [`${column} = ${given.the(value, 'text')}`]
  const conditions = [
    linesOf(filters, before, given),
    ...(downTo === null ? [] : [`${way.place} >= ${placeOf(way, downTo, given)}`]),
    ...is('key_id', filters.keyId),
    ...is('capability', filters.capability),
    // All lines of errors are refused or failed.
    ...is('outcome', filters.outcome === 'errors' ? null : filters.outcome),
    ...is('code', filters.code),
    ...(filters.costMicro === null
      ? []
      : [`amount_micro <= -${given.the(String(filters.costMicro), 'bigint')}`]),
  ]
  return {
    text: `select l.ledger::text, l.organization_id, l.revision::text, l.effective_at, l.kind, l.request_id, l.key_id,
                  l.capability, l.outcome, l.code, l.calls::text, l.amount_micro::text,
                  (select k.name from api_keys k where k.key_id = l.key_id) as key_name,
                  (select a.name from accounts a where a.organization_id = l.organization_id) as organization_name
             from (select * from ledger_lines where ${conditions.join(' and ')}
                    order by ${way.order} limit ${given.the(max, 'bigint')}) l
            order by ${way.order.replace(/\b(?=(effective_at|ledger|revision) )/g, 'l.')}`,
    values: given.values,
  }
}

/** The organization of a key; no row: the key does not exist. */
export const organizationOfKey = (keyId: string): Query<{ organization_id: string }> => ({
  text: 'select organization_id from api_keys where key_id = $1',
  values: [keyId],
})
