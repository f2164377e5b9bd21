import type { Query } from '../../projections/projection.ts'
import { balanceMicro } from '../administration/organizations/organizations.ts'
import { pays } from './queries.ts'

/** The newest call with a request id, among the newest hundred lines of calls. */
export const newestCall = (): Query<{ organization_id: string; request_id: string }> => ({
  text: `select organization_id, request_id
           from (select organization_id, request_id from ledger_lines where calls is not null
                  order by effective_at desc, ledger desc, revision desc limit 100) newest
          where request_id is not null limit 1`,
  values: [],
})

/** Whether a key other than `keyId` exists; if `keyId` is null, whether any key exists. */
export const anyOtherKey = (keyId: string | null): Query<{ any: boolean }> => ({
  text: 'select exists (select from api_keys where $1::text is null or key_id <> $1) as any',
  values: [keyId],
})

export type LowBalanceRow = {
  organization_id: string
  name: string
  balance_micro: string
  threshold_micro: string
}

/** Organizations whose balance is below their notification threshold, lowest proportion first. */
export const lowBalances = (nowMs: number, max: number): Query<LowBalanceRow> => ({
  text: `select organization_id, name, balance_micro, threshold_micro
           from (select a.organization_id, a.name, t.amount_micro::text as threshold_micro, ${balanceMicro} as balance_micro
                   from balance_thresholds t join accounts a using (organization_id)
                  where t.amount_micro is not null and a.registered_at is not null) one
          where balance_micro::numeric < threshold_micro::numeric
          order by balance_micro::numeric / greatest(1, threshold_micro::numeric), 1 limit $2`,
  values: [new Date(nowMs), max],
})

export type UnpaidRow = {
  organization_id: string
  name: string
  balance_micro: string
  calls: string
}

/** Organizations whose credits did not pay for calls since `fromMs`, most refused calls first. `fromMs` is the start of an hour. */
export const unpaidCalls = (
  { fromMs, nowMs }: { readonly fromMs: number; readonly nowMs: number },
  max: number,
): Query<UnpaidRow> => ({
  text: `select a.organization_id, a.name, ${balanceMicro} as balance_micro, refused.calls::text as calls
           from (select organization_id, sum(calls) as calls from usage_hours
                  where at >= $2 and code <> '' and code = 'CREDIT_001' and ${pays} group by 1) refused
           join accounts a using (organization_id) where a.registered_at is not null
          order by refused.calls desc, 1 limit $3`,
  values: [new Date(nowMs), new Date(fromMs), max],
})
