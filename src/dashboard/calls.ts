import type pg from 'pg'
import type { Query } from '../../projections/projection.ts'
import { linePlaces } from '../administration/ledgers/line-places.ts'
import { rowsOf } from '../concurrency/query.ts'

/** Queries for pages of calls, newest first, from the lines of statements. */

/** A filter that is null matches every call. */
export type CallFilters = {
  /** Effective times; the end is exclusive. */
  readonly fromMs: number
  readonly untilMs: number
  readonly organizationId: string | null
  readonly keyId: string | null
  readonly capability: string | null
  /** `errors`: calls that were refused or failed. */
  readonly outcome: string | null
  readonly code: string | null
  /** The lowest cost of a matching call. */
  readonly costMicro: bigint | null
}

/** The position of a line in the order of time. The next page begins below this line. */
export type CallPlace = { readonly atMs: number; readonly ledger: string; readonly revision: string }

export type CallRow = {
  organization_id: string
  organization_name: string | null
  ledger: string
  revision: string
  effective_at: Date
  kind: string
  request_id: string | null
  key_id: string | null
  key_name: string | null
  capability: string | null
  outcome: string | null
  code: string | null
  calls: string | null
  amount_micro: string
}

/** Collects the parameters of a query in the order in which its text names them. */
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

/** The same order for a query that returns these columns as text. Without the prefix, it would be the order of the texts. */
const ofLines = (order: string): string => order.replace(/\b(?=(effective_at|ledger|revision) )/g, 'l.')

/** Chooses the index: by revision for one ledger, by time for all ledgers, and a separate index for refusals and failures. */
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

/** The part of the lines to search: below `before` and not below `downTo`, if given. */
type Part = { readonly before: CallPlace | null; readonly downTo: CallPlace | null }

/**
 * With two lower or two upper bounds on the time, one of them a row comparison, PostgreSQL reads the index as far as the wider bound. So there is
 * only one of each.
 */
const linesOf = (filters: CallFilters, { before, downTo }: Part, values: Parameters): string => {
  const { fromMs, untilMs, organizationId } = filters
  const way = wayOf(filters)
  const { the } = values
  const inTime = way.place === byTime.place
  const placeHolds = inTime && before !== null && before.atMs < untilMs
  return [
    way.lines,
    ...(inTime && downTo !== null ? [] : [`effective_at >= ${the(new Date(fromMs), 'timestamptz')}`]),
    ...(placeHolds ? [] : [`effective_at < ${the(new Date(untilMs), 'timestamptz')}`]),
    ...(organizationId === null ? [] : [`ledger = ledger_key(${the(organizationId, 'text')})`]),
    ...(before === null || (inTime && !placeHolds) ? [] : [`${way.place} < ${placeOf(way, before, values)}`]),
    ...(downTo === null ? [] : [`${way.place} >= ${placeOf(way, downTo, values)}`]),
  ].join(' and ')
}

/** The position of the last line that one page searches; no row if fewer lines are left. */
const lookedThrough = (
  filters: CallFilters,
  before: CallPlace | null,
  max: number,
): Query<{ at: Date; ledger: string; revision: string }> => {
  const given = parameters()
  return {
    text: `select l.effective_at as at, l.ledger::text, l.revision::text from ledger_lines l
            where ${linesOf(filters, { before, downTo: null }, given)}
            order by ${ofLines(wayOf(filters).order)} offset ${given.the(max - 1, 'bigint')} limit 1`,
    values: given.values,
  }
}

/** The newest matching calls that are not below `downTo`. */
export const callsThatMatch = (
  filters: CallFilters,
  { before, downTo, max }: Part & { readonly max: number },
): Query<CallRow> => {
  const given = parameters()
  const way = wayOf(filters)
  const is = (column: string, value: string | null): string[] =>
    value === null ? [] : [`${column} = ${given.the(value, 'text')}`]
  const conditions = [
    linesOf(filters, { before, downTo }, given),
    ...is('key_id', filters.keyId),
    ...is('capability', filters.capability),
    // A search for errors already covers only refused and failed calls.
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
            order by ${ofLines(way.order)}`,
    values: given.values,
  }
}

/** The organization of a key; no row if the key does not exist. */
export const organizationOfKey = (keyId: string): Query<{ organization_id: string }> => ({
  text: 'select organization_id from api_keys where key_id = $1',
  values: [keyId],
})

/** Reads pages of calls. Each page searches a limited number of lines, including lines that do not match. */

const lookedMax = 8_000

export type CallsPage = {
  readonly calls: readonly CallRow[]
  /** The position below which the next page begins; null if no older call matches. */
  readonly older: CallPlace | null
}

export const readCalls = async (
  pool: pg.Pool,
  filters: CallFilters,
  { before, max }: { readonly before: CallPlace | null; readonly max: number },
): Promise<CallsPage> => {
  const start = before ?? (await lastPlace(pool, filters))
  const [end] = await rowsOf(pool, lookedThrough(filters, start, lookedMax))
  const downTo = end === undefined ? null : { ...end, atMs: end.at.getTime() }
  const found = await rowsOf(pool, callsThatMatch(filters, { before: start, downTo, max: max + 1 }))
  const calls = found.slice(0, max)
  const last = calls.at(-1)
  if (found.length > max && last !== undefined)
    return { calls, older: { ...last, atMs: last.effective_at.getTime() } }
  return { calls, older: downTo }
}

/** The revision at which a range ends. Lines of one organization are searched by revision, not by time. */
const lastPlace = async (
  pool: pg.Pool,
  { organizationId, fromMs, untilMs }: CallFilters,
): Promise<CallPlace | null> => {
  if (organizationId === null) return null
  const places = await linePlaces(pool, organizationId, { fromMs, untilMs })
  return places === null ? null : { atMs: untilMs, ledger: '0', revision: String(BigInt(places.last) + 1n) }
}

const placePattern = /^(\d{1,15})_(-?\d{1,19})_(\d{1,15})$/

export const placeText = ({ atMs, ledger, revision }: CallPlace): string => `${atMs}_${ledger}_${revision}`

/** The position in the URL of a page; null if the text is not a position. */
export const placeIn = (text: string): CallPlace | null => {
  const [, at, ledger, revision] = placePattern.exec(text) ?? []
  if (at === undefined || ledger === undefined || revision === undefined) return null
  // PostgreSQL refuses a number that is larger than a bigint.
  return BigInt.asIntN(64, BigInt(ledger)) === BigInt(ledger) ? { atMs: Number(at), ledger, revision } : null
}
