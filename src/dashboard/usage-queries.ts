import type { Query } from '../../projections/projection.ts'
import { dayOf, pays } from './queries.ts'
import { type Range, stepMs } from './ranges.ts'

/** Queries for usage by minute and hour, from the buckets, and by day, from the daily sums. */

export const usageDimensions = ['capability', 'outcome', 'key', 'rule'] as const
export type UsageDimension = (typeof usageDimensions)[number]

export type UsageAsk = Pick<Range, 'step' | 'fromMs' | 'untilMs'> & {
  /** Null for all organizations except test organizations. `keyId` is null for all keys. */
  readonly organizationId: string | null
  readonly keyId: string | null
}

const columnOf = {
  outcome: 'outcome',
  capability: 'capability',
  key: 'key_id',
  rule: 'rule',
} as const satisfies Record<UsageDimension, string>

/** The parameters $1 to $4 of every query in this file. */
const valuesOf = ({ fromMs, untilMs, organizationId, keyId }: UsageAsk): unknown[] => [
  new Date(fromMs),
  new Date(untilMs),
  organizationId,
  keyId,
]

/**
 * The rows of usage in the range, with their times. Rules are only in the rows of days, and error codes only in the rows of minutes and
 * hours.
 */
const usedIn = ({ step, organizationId }: UsageAsk): string => {
  const own = organizationId === null ? `$3::text is null and ${pays}` : 'organization_id = $3'
  const rest = `${own} and ($4::text is null or key_id = $4)`
  if (step !== 'day') return `select * from usage_${step}s where at >= $1 and at < $2 and ${rest}`
  return `select *, day::timestamp at time zone 'utc' as at from usage_days
           where day >= ($1 at time zone 'utc')::date and day < ($2 at time zone 'utc')::date and ${rest}`
}

/** The maximum number of groups that are shown separately. The remaining groups are summed up. */
const groupsMax = 6

export type UsagePointRow = {
  at: Date
  /** Null for the sum of the remaining groups. */
  name: string | null
  calls: string
  charged_micro: string
}

/** Sums by step and group. All groups except the largest are combined into one. */
export const usagePoints = (ask: UsageAsk, by: UsageDimension): Query<UsagePointRow> => ({
  text: `with used as (
           select at, ${columnOf[by]} as name, sum(calls) as calls, sum(charged_micro) as charged
             from (${usedIn(ask)}) u group by 1, 2),
         placed as (
           select name, row_number() over (order by sum(charged) desc, sum(calls) desc, name) as place from used group by name)
         select used.at, case when place <= ${groupsMax} then name end as name,
                sum(calls)::text as calls, sum(charged)::text as charged_micro
           from used join placed using (name) group by 1, 2 order by 1`,
  values: valuesOf(ask),
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

const callsBy = (outcome: string): string =>
  `coalesce(sum(calls) filter (where outcome = '${outcome}'), 0)::text as ${outcome}`
const sums = `coalesce(sum(calls), 0)::text as calls, ${callsBy('answered')}, ${callsBy('refused')}, ${callsBy('failed')},
  ${callsBy('rate_limited')}, coalesce(sum(charged_micro), 0)::text as charged_micro`

/** Groups, most expensive first. */
export const usageGroups = (ask: UsageAsk, by: UsageDimension, max: number): Query<UsageGroupRow> => ({
  text: `select ${columnOf[by]} as name, ${sums} from (${usedIn(ask)}) u
          group by 1 order by sum(charged_micro) desc, sum(calls) desc, 1 limit $5`,
  values: [...valuesOf(ask), max],
})

/** The sums of all groups, including groups that are not listed. */
export const usageTotals = (ask: UsageAsk): Query<Omit<UsageGroupRow, 'name'>> => ({
  text: `select ${sums} from (${usedIn(ask)}) u`,
  values: valuesOf(ask),
})

export type KeyUseRow = {
  capability: string
  outcome: string
  calls: string
  charged_micro: string
  /** The first and the last step that contain calls with this capability and outcome. */
  first_step: Date
  last_step: Date
}

export const useByCapability = (ask: UsageAsk): Query<KeyUseRow> => ({
  text: `select capability, outcome, sum(calls)::text as calls, sum(charged_micro)::text as charged_micro,
                min(at) as first_step, max(at) as last_step
           from (${usedIn(ask)}) u
          group by 1, 2 order by sum(charged_micro) desc, sum(calls) desc, 1, 2`,
  values: valuesOf(ask),
})

/** The times of a key's first and last call in the step that begins at `at`. */
export const callsOfStep = (
  { organizationId, keyId, step }: UsageAsk,
  at: Date,
): Query<{ first: Date | null; last: Date | null }> => ({
  text: `select min(effective_at) as first, max(effective_at) as last from ledger_lines
          where calls is not null and ledger = ledger_key($1) and key_id = $2 and effective_at >= $3 and effective_at < $4`,
  values: [organizationId, keyId, at, new Date(at.getTime() + stepMs[step])],
})

export type CodeRow = { code: string; calls: string }

/**
 * Calls by error code, most frequent first. Rows of days contain no error codes, so this reads rows of hours, which are stored for only 90 days.
 */
export const callsByCode = (ask: UsageAsk, max: number): Query<CodeRow> => ({
  text: `select code, sum(calls)::text as calls
           from (${usedIn({ ...ask, step: ask.step === 'day' ? 'hour' : ask.step })} and code <> '') u
          group by 1 order by sum(calls) desc, 1 limit $5`,
  values: [...valuesOf(ask), max],
})

export type OrganizationUseRow = {
  organization_id: string
  organization_name: string | null
  calls: string
  errors: string
  charged_micro: string
}

/** The sums of a step by outcome, or of an organization with its two ranks. */
export type UseOfAllRow = Omit<OrganizationUseRow, 'organization_id'> & {
  at: Date | null
  outcome: string | null
  organization_id: string | null
  by_charged: number
  by_errors: number
}

/**
 * The sums for each time step by outcome, and the organizations with the most credits charged or the most calls that were not answered. One query
 * returns both, because reading the rows takes most of the time.
 */
export const useOfAll = (ask: UsageAsk, max: number): Query<UseOfAllRow> => ({
  text: `with used as materialized (
           select at, outcome, organization_id, sum(calls) as calls, sum(charged_micro) as charged,
                  coalesce(sum(calls) filter (where outcome <> 'answered'), 0) as errors
             from (${usedIn(ask)}) u group by grouping sets ((at, outcome), (organization_id))),
         placed as (
           select *, row_number() over (order by charged desc, calls desc, organization_id)::integer as by_charged,
                  row_number() over (order by errors desc, calls desc, organization_id)::integer as by_errors
             from used where at is null)
         select at, outcome, null as organization_id, null as organization_name, calls::text, errors::text,
                charged::text as charged_micro, 0 as by_charged, 0 as by_errors
           from used where at is not null
         union all
         select null, null, organization_id, (select name from accounts a where a.organization_id = p.organization_id),
                calls::text, errors::text, charged::text, by_charged, by_errors
           from placed p where by_charged <= $5 or by_errors <= $5`,
  values: [...valuesOf(ask), max],
})

export type HourRow = { at: Date; calls: string; errors: string; charged_micro: string }

/** Sums by step, oldest first. */
export const usageBySteps = (ask: UsageAsk): Query<HourRow> => ({
  text: `select at, sum(calls)::text as calls, coalesce(sum(calls) filter (where outcome <> 'answered'), 0)::text as errors,
                sum(charged_micro)::text as charged_micro
           from (${usedIn(ask)}) u group by 1 order by 1`,
  values: valuesOf(ask),
})

/** The charges on up to seven whole days before `nowMs`, and the number of these days, counted from the first day of use. */
export const burned = (
  organizationId: string,
  nowMs: number,
): Query<{ days: number; charged_micro: string }> => ({
  text: `select least(7, $2::date - min(day))::integer as days,
                coalesce(sum(charged_micro) filter (where day >= $2::date - 7 and day < $2::date), 0)::text as charged_micro
           from usage_days where organization_id = $1 having min(day) < $2::date`,
  values: [organizationId, dayOf(nowMs)],
})
