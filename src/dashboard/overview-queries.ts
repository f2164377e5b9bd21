import type { Query } from '../../projections/projection.ts'
import { balanceMicro } from './queries.ts'

export type LowBalanceRow = {
  organization_id: string
  name: string
  balance_micro: string
  threshold_micro: string
}

/** Organizations with a balance below the threshold at which they are notified, lowest share of it first. */
export const lowBalances = (nowMs: number, max: number): Query<LowBalanceRow> => ({
  text: `select organization_id, name, balance_micro, threshold_micro
           from (select a.organization_id, a.name, t.amount_micro::text as threshold_micro, ${balanceMicro} as balance_micro
                   from balance_thresholds t join accounts a using (organization_id)
                  where t.amount_micro is not null and a.registered_at is not null) one
          where balance_micro::numeric < threshold_micro::numeric
          order by balance_micro::numeric / greatest(1, threshold_micro::numeric), 1 limit $2`,
  values: [new Date(nowMs), max],
})
