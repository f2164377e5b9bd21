import type { Query } from '../../projections/projection.ts'

/** Organizations' usage in a month, compared with the month before, from the daily sums. */

export type MonthUseRow = {
  organization_id: string
  name: string
  calls: string
  calls_before: string
  charged_micro: string
  charged_before_micro: string
}

/** Organizations after the given one, by id, which is by age. Days are first days of months: the month before, this one, the next one. */
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
          where a.registered_at is not null and a.organization_id > $4
          order by a.organization_id limit $5`,
  values: [before, month, next, after, max],
})
