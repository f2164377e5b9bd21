import type { Query } from '../../projections/projection.ts'
import { dayOf } from './queries.ts'

/** An organization's usage, by day from the daily sums, and by hour from its statement's lines. */

export const usageDimensions = ['outcome', 'capability', 'key', 'rule'] as const
export type UsageDimension = (typeof usageDimensions)[number]

/** Days, both inclusive: 2026-11-21. */
export type UsageRange = {
  readonly from: string
  readonly to: string
  readonly by: UsageDimension
  /** Of this key only; null: of all. */
  readonly keyId: string | null
}

const dayColumns = {
  outcome: 'outcome',
  capability: 'capability',
  key: 'key_id',
  rule: 'rule',
} as const satisfies Record<UsageDimension, string>

/** The lines of refused calls cover several capabilities, and those of a rate limit cover any. */
const lineColumns = {
  outcome: `case kind when 'rate_limited' then 'rate_limited' else outcome end`,
  capability: `coalesce(capability, 'any')`,
  key: 'key_id',
  rule: `coalesce(rule, '')`,
} as const satisfies Record<UsageDimension, string>

/** The number of groups that are shown separately; the others are summed up. */
const groupsMax = 6

export type UsagePointRow = {
  /** A day, or the instant at which an hour begins. */
  at: string
  /** Null: the groups beyond the first. */
  name: string | null
  calls: string
  charged_micro: string
}

/** The largest groups separately, and the others as one. */
const pointsOf = (used: string): string => `with used as (${used}),
  placed as (select name, row_number() over (order by sum(charged) desc, sum(calls) desc, name) as place from used group by name)
  select used.at, case when place <= ${groupsMax} then name end as name,
         sum(calls)::text as calls, sum(charged)::text as charged_micro
    from used join placed using (name) group by 1, 2 order by 1`

export const usageByDay = (
  organizationId: string,
  { from, to, by, keyId }: UsageRange,
): Query<UsagePointRow> => ({
  text: pointsOf(`select day::text as at, ${dayColumns[by]} as name, sum(calls) as calls, sum(charged_micro) as charged
                    from usage_days
                   where organization_id = $1 and day between $2::date and $3::date and ($4::text is null or key_id = $4)
                   group by 1, 2`),
  values: [organizationId, from, to, keyId],
})

/** Revisions, both inclusive: the range of the lines of some days, which may include other lines. */
export type LinePlaces = { readonly first: string; readonly last: string }

export const usageByHour = (
  organizationId: string,
  { from, to, by, keyId }: UsageRange,
  { first, last }: LinePlaces,
): Query<UsagePointRow> => ({
  text: pointsOf(`select to_char(date_trunc('hour', effective_at at time zone 'utc'), 'YYYY-MM-DD"T"HH24:MI:SS"Z"') as at,
                         ${lineColumns[by]} as name, sum(calls) as calls, sum(-amount_micro) as charged
                    from ledger_lines
                   where ledger = ledger_key($1) and revision between $5::bigint and $6::bigint
                     and kind in ('call', 'refused', 'rate_limited')
                     and effective_at >= $2::date::timestamp at time zone 'utc'
                     and effective_at < ($3::date + 1)::timestamp at time zone 'utc'
                     and ($4::text is null or key_id = $4)
                   group by 1, 2`),
  values: [organizationId, from, to, keyId, first, last],
})

/** The number of calls refused for lack of credits. */
export const unpaidCalls = (
  organizationId: string,
  { from, to, keyId }: UsageRange,
  { first, last }: LinePlaces,
): Query<{ calls: string }> => ({
  text: `select coalesce(sum(calls), 0)::text as calls from ledger_lines
          where ledger = ledger_key($1) and revision between $5::bigint and $6::bigint and code = 'CREDIT_001'
            and effective_at >= $2::date::timestamp at time zone 'utc'
            and effective_at < ($3::date + 1)::timestamp at time zone 'utc'
            and ($4::text is null or key_id = $4)`,
  values: [organizationId, from, to, keyId, first, last],
})

export type UsageGroupRow = {
  name: string
  calls: string
  answered: string
  refused: string
  failed: string
  rate_limited: string
  charged_micro: string
}

/** Groups, most expensive first. */
export const usageGroups = (
  organizationId: string,
  { from, to, by, keyId }: UsageRange,
  max: number,
): Query<UsageGroupRow> => {
  const calls = (outcome: string): string =>
    `coalesce(sum(calls) filter (where outcome = '${outcome}'), 0)::text as ${outcome}`
  return {
    text: `select ${dayColumns[by]} as name, sum(calls)::text as calls, ${calls('answered')}, ${calls('refused')},
                  ${calls('failed')}, ${calls('rate_limited')}, sum(charged_micro)::text as charged_micro
             from usage_days
            where organization_id = $1 and day between $2::date and $3::date and ($4::text is null or key_id = $4)
            group by 1 order by sum(charged_micro) desc, sum(calls) desc, 1 limit $5`,
    values: [organizationId, from, to, keyId, max],
  }
}

/** Of all groups, regardless of their number. */
export const usageTotals = (
  organizationId: string,
  { from, to, keyId }: UsageRange,
): Query<Omit<UsageGroupRow, 'name' | 'refused' | 'failed'>> => ({
  text: `select coalesce(sum(calls), 0)::text as calls,
                coalesce(sum(calls) filter (where outcome = 'answered'), 0)::text as answered,
                coalesce(sum(calls) filter (where outcome = 'rate_limited'), 0)::text as rate_limited,
                coalesce(sum(charged_micro), 0)::text as charged_micro
           from usage_days
          where organization_id = $1 and day between $2::date and $3::date and ($4::text is null or key_id = $4)`,
  values: [organizationId, from, to, keyId],
})

/** The charges on the whole days before the day of `nowMs`, at most seven, and how many of them there were since the first use. */
export const burned = (
  organizationId: string,
  nowMs: number,
): Query<{ days: number; charged_micro: string }> => ({
  text: `select least(7, $2::date - min(day))::integer as days,
                coalesce(sum(charged_micro) filter (where day >= $2::date - 7 and day < $2::date), 0)::text as charged_micro
           from usage_days where organization_id = $1 having min(day) < $2::date`,
  values: [organizationId, dayOf(nowMs)],
})

/** The first line at or above a revision that is not an expiry, which is effective long before it is written. */
export const lineFrom = (
  organizationId: string,
  revision: string,
): Query<{ revision: string; effective_at: Date }> => ({
  text: `select revision::text, effective_at from ledger_lines
          where ledger = ledger_key($1) and revision >= $2::bigint and kind <> 'expiry' order by revision limit 1`,
  values: [organizationId, revision],
})
