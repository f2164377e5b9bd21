import type pg from 'pg'
import { z } from 'zod'
import { lastClosedMonths } from '../../../projections/audit.ts'
import { formatCredits } from '../../billing/money.ts'
import { type Month, monthAfter, monthBefore } from '../../billing/months.ts'
import { organizationId as idForm } from '../../events/primitives.ts'
import { type Column, type Next, pagedList, pageUpTo } from '../declare.ts'
import { day, month } from '../fields.ts'
import { InputFault } from '../input.ts'
import { closableAt } from './statements.ts'

/** The charges and refunds of months and days, from rows. */

type Pool = Pick<pg.Pool, 'query'>

/**
 * Charges and calls of one organization by month, from a month on; empty if the month is null. As in statements, rate-limited calls do
 * not count.
 */
export const chargedByMonth = async (
  pool: Pool,
  organizationId: string,
  from: Month | null,
): Promise<ReadonlyMap<Month, { readonly charged: string; readonly calls: number }>> => {
  if (from === null) return new Map()
  const { rows } = await pool.query<{ month: Month; calls: string; charged_micro: string }>(
    `select to_char(day, 'YYYY-MM') as month, coalesce(sum(calls) filter (where outcome <> 'rate_limited'), 0)::text as calls,
            sum(charged_micro)::text as charged_micro
       from usage_days where organization_id = $1 and day >= $2::date group by 1 order by 1 desc limit 1200`,
    [organizationId, `${from}-01`],
  )
  return new Map(
    rows.map(({ month: of, charged_micro, calls }) => [
      of,
      { charged: formatCredits(BigInt(charged_micro)), calls: Number(calls) },
    ]),
  )
}

/** No call can be older, because Unix time begins in 1970. */
const firstMonth = '1970-02'

const wantedMonth = (asked: Month | undefined, nowMs: number): Month => {
  const of = asked ?? new Date(nowMs).toISOString().slice(0, 7)
  if (of < firstMonth || Date.parse(`${of}-01`) > nowMs)
    throw new InputFault('month', `${of} has not begun, or is before the first month with data`)
  return of
}

const columns: readonly Column[] = [
  { name: 'organization_id', label: 'Organization (A to Z)', kind: 'organization', named: 'name' },
  { name: 'name', label: 'Name' },
  { name: 'calls', label: 'Calls', kind: 'number' },
  { name: 'calls_before', label: 'Calls before', kind: 'number' },
  { name: 'charged', label: 'Charged', kind: 'credits' },
  { name: 'charged_before', label: 'Charged before', kind: 'credits' },
  { name: 'difference', label: 'Difference', kind: 'change' },
  { name: 'adjusted', label: 'Adjusted', kind: 'change' },
]

const empty = 'No organizations yet'

export const listCharges = pagedList({
  name: 'ledger charges',
  action: 'finance.read',
  summary:
    'list the charges and refunds of a month by organization; charges are compared with the previous month, test organizations are not included, and calls refused by a rate limit do not count',
  input: z.object({
    month: month({ label: 'Month (UTC)', help: 'such as 2026-11 (default: this month)' }).optional(),
  }),
  whole: true,
  columns,
  empty,
  nextOfRow: [
    {
      name: 'ledger totals',
      label: 'Show',
      given: (row) => ({ organization: row.organization_id, month: row.month }),
    },
  ],
  page: async ({ foundation: { pool }, caughtUp }, { month: asked }, at) => {
    const nowMs = Date.now()
    const of = wantedMonth(asked, nowMs)
    const [before, after] = [monthBefore(of), monthAfter(of)]
    const days = [before, of, after].map((one) => `${one}-01`)
    const period = { of, before, days }
    const { rows, sections, ...page } = await chargesPage({ pool, caughtUp }, period, at)
    const state = await closedState(pool, of, nowMs)
    return {
      ...page,
      rows: rows.map((row) => ({ month: of, ...row })),
      about: {
        sections: sections(
          `${state.note} Adjusted are the refunds and other corrections that were made in this month. The totals of an organization are computed from its ledger, and also show grants, expiries and the balance.`,
        ),
        next: state.next,
        chosen: { month: of },
      },
    }
  },
})

export const listDay = pagedList({
  name: 'ledger day',
  action: 'finance.read',
  summary:
    'list the charges and refunds of a day by organization; charges are compared with the day before, test organizations are not included, and calls refused by a rate limit do not count',
  input: z.object({
    day: day({ label: 'Day (UTC)', help: 'such as 2026-11-28 (default: today)' }).optional(),
  }),
  whole: true,
  columns,
  empty,
  nextOfRow: [
    {
      name: 'ledger lines',
      label: 'Lines',
      given: ({ organization_id, day: of }) => ({
        organization: organization_id,
        from: String(of),
        to: daysAfter(String(of), 1),
      }),
    },
  ],
  page: async ({ foundation: { pool }, caughtUp }, { day: asked }, at) => {
    const today = new Date().toISOString().slice(0, 10)
    const of = asked ?? today
    if (of < `${firstMonth}-01` || of > today)
      throw new InputFault('day', `${of} has not begun, or is before the first day with data`)
    const [before, after] = [daysAfter(of, -1), daysAfter(of, 1)]
    const period = { of, before, days: [before, of, after] }
    const { rows, sections, ...page } = await chargesPage({ pool, caughtUp }, period, at)
    const dayStep = (label: string, to: string): Next => ({
      name: 'ledger day',
      label: `${label}: ${to}`,
      given: { day: to },
    })
    return {
      ...page,
      rows: rows.map((row) => ({ day: of, ...row })),
      about: {
        sections: sections('Adjusted are the refunds and other corrections that were made on this day.'),
        next: [
          dayStep('Previous day', before),
          ...(after > today ? [] : [dayStep('Next day', after)]),
          { name: 'ledger charges', label: `Month: ${of.slice(0, 7)}`, given: { month: of.slice(0, 7) } },
        ],
        chosen: { day: of },
      },
    }
  },
})

const daysAfter = (of: string, days: number): string =>
  new Date(Date.parse(of) + days * 86_400_000).toISOString().slice(0, 10)

/** A month or a day in UTC, and the one before it. */
type Period = {
  readonly of: string
  readonly before: string
  /** The first day of the one before it, its first day, and the first day after it. */
  readonly days: readonly string[]
}

const chargesPage = async (
  { pool, caughtUp }: { readonly pool: Pool; readonly caughtUp: () => Promise<void> },
  period: Period,
  { cursor, max }: { readonly cursor: string | null; readonly max: number },
) => {
  if (cursor === null) await caughtUp()
  else if (!idForm.safeParse(cursor).success)
    throw new InputFault('cursor', `"${cursor}" is not the id of an organization`)
  const found = await chargesAfter(pool, period, { after: cursor ?? '', max: max + 1 })
  const rows = found.map(
    ({
      organization_id,
      name,
      calls,
      calls_before,
      charged_micro,
      charged_before_micro,
      adjusted_micro,
    }) => ({
      organization_id,
      name,
      calls: Number(calls),
      calls_before: Number(calls_before),
      charged: formatCredits(BigInt(charged_micro)),
      charged_before: formatCredits(BigInt(charged_before_micro)),
      difference: formatCredits(BigInt(charged_micro) - BigInt(charged_before_micro)),
      adjusted: formatCredits(BigInt(adjusted_micro)),
    }),
  )
  const page = pageUpTo(rows, { max, cursor: 'organization_id' })
  const isPart = cursor !== null || page.next !== null
  return {
    ...page,
    sections: (note: string) => sumsOf(found.slice(0, max), period, { isPart, note }),
  }
}

type ChargesRow = {
  organization_id: string
  name: string
  calls: string
  calls_before: string
  charged_micro: string
  charged_before_micro: string
  adjusted_micro: string
}

/**
 * The usage of the paying organizations after the given one, ordered by name. As in statements, rate-limited calls do not count. They cost
 * nothing.
 */
const chargesAfter = async (
  pool: Pool,
  { days }: Period,
  { after, max }: { readonly after: string; readonly max: number },
): Promise<ChargesRow[]> => {
  const { rows } = await pool.query<ChargesRow>(
    String.raw`with corrections as materialized (
        select ledger, sum(amount_micro) as micro from ledger_lines
         where calls is null and kind = 'adjustment' and effective_at >= $2::date::timestamp at time zone 'utc'
           and effective_at < $3::date::timestamp at time zone 'utc'
         group by 1)
      select a.organization_id, a.name, u.calls, u.calls_before, u.charged_micro, u.charged_before_micro,
             coalesce(c.micro, 0)::text as adjusted_micro
      from (
        select organization_id, name from accounts
         where registered_at is not null and organization_id not like 'org\_test\_%'
           and ($4 = '' or (lower(name), organization_id) > (
             select lower(name), organization_id from accounts where organization_id = $4))
         order by lower(name), organization_id limit $5) a
      left join corrections c on c.ledger = ledger_key(a.organization_id)
      cross join lateral (
        select coalesce(sum(calls) filter (where day >= $2::date), 0)::text as calls,
               coalesce(sum(calls) filter (where day < $2::date), 0)::text as calls_before,
               coalesce(sum(charged_micro) filter (where day >= $2::date), 0)::text as charged_micro,
               coalesce(sum(charged_micro) filter (where day < $2::date), 0)::text as charged_before_micro
          from usage_days d
         where d.organization_id = a.organization_id and d.day >= $1::date and d.day < $3::date and d.outcome <> 'rate_limited') u
     order by lower(a.name), a.organization_id`,
    [...days, after, max],
  )
  return rows
}

const sumsOf = (
  rows: readonly ChargesRow[],
  { of, before }: Period,
  { isPart, note }: { readonly isPart: boolean; readonly note: string },
) => {
  const sum = (name: Exclude<keyof ChargesRow, 'organization_id' | 'name'>): bigint =>
    rows.reduce((all, row) => all + BigInt(row[name]), 0n)
  const [charged, chargedBefore] = [sum('charged_micro'), sum('charged_before_micro')]
  return [
    `${of}, compared with ${before}${isPart ? ': the organizations on this page' : ''}`,
    {
      charged: formatCredits(charged),
      charged_before: formatCredits(chargedBefore),
      difference: formatCredits(charged - chargedBefore),
      adjusted: formatCredits(sum('adjusted_micro')),
      calls: String(sum('calls')),
      calls_before: String(sum('calls_before')),
      note,
    },
  ]
}

/** Whether the month is closed, in a sentence, and the next steps. A closing of a later month also closes this one. */
const closedState = async (
  pool: Pool,
  of: Month,
  nowMs: number,
): Promise<{ note: string; next: readonly Next[] }> => {
  const { rows } = await pool.query<{ open: number; any_closed: boolean }>(
    `with closed as materialized (select * from (${lastClosedMonths}) last where month >= $1)
     select count(*)::int as open, exists (select from closed) as any_closed from accounts a
      where (a.registered_at < $2::date or exists (
               select from usage_days d where d.organization_id = a.organization_id and d.day < $2::date))
        and a.registered_at is not null and not exists (
        select from closed c where c.organization_id = a.organization_id)`,
    [of, `${monthAfter(of)}-01`],
  )
  const { open = 0, any_closed: anyClosed = false } = rows[0] ?? {}
  const steps: readonly Next[] = [
    {
      name: 'ledger charges',
      label: `Previous month: ${monthBefore(of)}`,
      given: { month: monthBefore(of) },
    },
    { name: 'ledger day', label: 'By day', given: {} },
    { name: 'ledger reconcile', label: `Reconcile ${of}`, given: { month: of } },
  ]
  if (nowMs < closableAt(of)) {
    const from = new Date(closableAt(of)).toISOString()
    return {
      note: `This month can be closed from ${from} on. Until then, its calls may still be recorded.`,
      next: steps,
    }
  }
  if (open === 0)
    return {
      note: anyClosed
        ? 'Closed for every organization.'
        : 'Nothing to close: no organization existed in this month.',
      next: steps,
    }
  return {
    note: `Open for ${open === 1 ? 'one organization' : `${open} organizations`}.`,
    next: [...steps, { name: 'ledger close', label: `Close ${of} for all`, given: { month: of, all: 'on' } }],
  }
}
