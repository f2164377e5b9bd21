import type { Query } from '../../projections/projection.ts'
import { pays } from './queries.ts'

/** Queries for the usage of organizations by month, from the daily sums. */

export type MonthUseRow = {
  organization_id: string
  name: string
  calls: string
  calls_before: string
  charged_micro: string
  charged_before_micro: string
}

/** Calls and charges of one organization by month, from a day on. As in statements, rate-limited calls do not count. */
export const useByMonth = (
  organizationId: string,
  from: string,
): Query<{ month: string; calls: string; charged_micro: string }> => ({
  text: `select to_char(day, 'YYYY-MM') as month, coalesce(sum(calls) filter (where outcome <> 'rate_limited'), 0)::text as calls,
               (-sum(charged_micro))::text as charged_micro
           from usage_days where organization_id = $1 and day >= $2::date group by 1 order by 1 desc limit 1200`,
  values: [organizationId, from],
})

/**
 * The number of organizations in which a month is still open, and whether any organization has closed the month, or a later month, which also
 * closes this one. `next` is the first day after the month.
 */
export const openOrganizations = (
  month: string,
  next: string,
): Query<{ open: number; any_closed: boolean }> => ({
  text: `select count(*)::int as open, exists (select from closed_months where month >= $1) as any_closed from accounts a
          where (a.registered_at < $2::date or exists (
                   select from usage_days d where d.organization_id = a.organization_id and d.day < $2::date))
            and a.registered_at is not null and not exists (
            select from closed_months c where c.organization_id = a.organization_id and c.month >= $1)`,
  values: [month, next],
})

/** The usage of the paying organizations after the given one, ordered by id. `before`, `month` and `next` are the first days of successive months. */
export const monthUse = (
  { before, month, next }: { readonly before: string; readonly month: string; readonly next: string },
  { after, max }: { readonly after: string; readonly max: number },
): Query<MonthUseRow> => ({
  text: `select a.organization_id, a.name, u.calls, u.calls_before, u.charged_micro, u.charged_before_micro
           from accounts a
           cross join lateral (
             select coalesce(sum(calls) filter (where day >= $2::date), 0)::text as calls,
                    coalesce(sum(calls) filter (where day < $2::date), 0)::text as calls_before,
                    coalesce(sum(charged_micro) filter (where day >= $2::date), 0)::text as charged_micro,
                    coalesce(sum(charged_micro) filter (where day < $2::date), 0)::text as charged_before_micro
               from usage_days d where d.organization_id = a.organization_id and d.day >= $1::date and d.day < $3::date) u
          where a.registered_at is not null and a.organization_id > $4 and a.${pays}
          order by a.organization_id limit $5`,
  values: [before, month, next, after, max],
})
