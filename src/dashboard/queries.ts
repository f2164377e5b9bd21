import type pg from 'pg'
import type { Query } from '../../projections/projection.ts'
import { balanceMicro, namesOf } from '../administration/organizations/organizations.ts'
import type { KeyLimits } from '../events/keys.ts'

/** Queries for pages. Each returns a limited number of rows and uses an index. */

/** The condition for organizations that pay. Totals over organizations do not include test organizations, whose credits are not money. */
export const pays = String.raw`organization_id not like 'org\_test\_%'`

/** Names that are not allowed in a person's password. */
export const guessableNames = async (
  pool: pg.Pool,
  { user, organizationId }: { user: string; organizationId: string | null },
): Promise<string[]> => {
  const named = organizationId === null ? new Map() : await namesOf({ pool }, [organizationId])
  return [user, ...named.values()]
}

export type AccountRow = {
  organization_id: string
  name: string
  registered_at: Date
  revision: string
  balance_micro: string
  granted_micro: string
  charged_micro: string
  expired_micro: string
  adjusted_micro: string
  overdraft_limit_micro: string
}

/** Whether an organization with this id is registered. */
export const isRegistered = (organizationId: string): Query<{ registered: boolean }> => ({
  text: 'select exists (select from accounts where organization_id = $1 and registered_at is not null) as registered',
  values: [organizationId],
})

/** The account of an organization. Lots that have expired at `nowMs` do not count. */
export const accountOf = (organizationId: string, nowMs: number): Query<AccountRow> => ({
  text: `select a.organization_id, a.name, a.registered_at, a.revision::text, ${balanceMicro} as balance_micro,
                a.granted_micro::text, a.charged_micro::text, a.expired_micro::text, a.adjusted_micro::text,
                a.overdraft_limit_micro::text
           from accounts a where a.organization_id = $2 and a.registered_at is not null`,
  values: [new Date(nowMs), organizationId],
})

export type LotRow = {
  grant_id: string
  priority: number
  expires_at: Date | null
  granted_micro: string
  remaining_micro: string
  past_expiry: boolean
}

/** Lots with credits left, in the order in which charges use them. */
export const lotsOf = (
  organizationId: string,
  { max, nowMs }: { max: number; nowMs: number },
): Query<LotRow> => ({
  text: `select grant_id, priority, expires_at, granted_micro::text, remaining_micro::text,
                coalesce(expires_at <= $3, false) as past_expiry
           from account_lots where organization_id = $1 and remaining_micro > 0
          order by priority, expires_at nulls last, revision limit $2`,
  values: [organizationId, max, new Date(nowMs)],
})

export type KeyRow = {
  key_id: string
  name: string
  last4: string
  permissions: string[]
  limits: KeyLimits
  created_at: Date
  expires_at: Date | null
  successor_id: string | null
  grace_until: Date | null
  revoked_at: Date | null
  revoke_reason: string | null
  last_used_at: Date | null
  calls_30_days: string
}

/** The UTC day of an instant, such as 2026-11-21. */
export const dayOf = (ms: number): string => new Date(ms).toISOString().slice(0, 10)

/** The columns of a key, with its calls in the 30 days up to $1. */
const keyColumns = `k.key_id, k.name, k.last4, k.permissions, k.limits, k.created_at, k.expires_at, k.successor_id,
  k.grace_until, k.revoked_at, k.revoke_reason,
  (select last_used_at from key_last_used u where u.key_id = k.key_id) as last_used_at,
  coalesce((select sum(calls) from key_usage u where u.key_id = k.key_id
    and u.day > $1::date - 30), 0)::text as calls_30_days`

/** Keys of an organization, newest first. */
export const keysOf = (
  organizationId: string,
  { max, nowMs }: { max: number; nowMs: number },
): Query<KeyRow> => ({
  text: `select ${keyColumns} from api_keys k where k.organization_id = $2
          order by k.created_at desc, k.key_id limit $3`,
  values: [dayOf(nowMs), organizationId, max],
})

/** One key, if it belongs to the organization. */
export const keyOf = (organizationId: string, keyId: string, nowMs: number): Query<KeyRow> => ({
  text: `select ${keyColumns} from api_keys k where k.key_id = $3 and k.organization_id = $2`,
  values: [dayOf(nowMs), organizationId, keyId],
})

/** A key with the data that only its own page shows. */
export type KeyDetailRow = KeyRow & {
  allowed_cidrs: string[]
  charged_micro: string
  charged_30_days_micro: string
}

export const keyDetail = (
  organizationId: string,
  keyId: string,
  nowMs: number,
): Query<Pick<KeyDetailRow, 'allowed_cidrs' | 'charged_micro' | 'charged_30_days_micro'>> => ({
  text: `select k.allowed_cidrs, coalesce(sum(u.charged_micro), 0)::text as charged_micro,
                coalesce(sum(u.charged_micro) filter (where u.day > $3::date - 30), 0)::text
                  as charged_30_days_micro
           from api_keys k
           left join usage_days u on u.organization_id = k.organization_id and u.key_id = k.key_id
          where k.organization_id = $1 and k.key_id = $2 group by k.allowed_cidrs`,
  values: [organizationId, keyId, dayOf(nowMs)],
})

/** Lines of one request, newest first. Without `materialized`, a planner without statistics could read all lines of the organization. */
export const linesOfRequest = (
  organizationId: string,
  { requestId, max }: { requestId: string; max: number },
): Query<{ revision: string; key_name: string | null }> => ({
  text: `with found as materialized (select * from ledger_lines where request_id = $2 limit $3)
         select l.revision::text, (select k.name from api_keys k where k.key_id = l.key_id) as key_name
           from found l where l.ledger = ledger_key($1) order by l.revision desc`,
  values: [organizationId, requestId, max],
})
