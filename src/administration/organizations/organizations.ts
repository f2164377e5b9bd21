import type { Logger } from 'pino'
import { ulid } from 'ulid'
import type { MicroCredits } from '../../billing/money.ts'
import type { Foundation } from '../../foundation/foundation.ts'
import { catchUp } from '../projections/catch-up.ts'

/** Registers an organization and opens its ledger. */
export const createOrganization = async (
  { ledger }: Pick<Foundation, 'ledger'>,
  { name, overdraftLimit, actor }: { name: string; overdraftLimit: MicroCredits; actor: string },
): Promise<{ organizationId: string }> => {
  const organizationId = `org_${ulid()}`
  await ledger.submit(organizationId, {
    key: 'register',
    atMs: Date.now(),
    actor,
    kind: 'register',
    name,
    overdraftLimit,
  })
  return { organizationId }
}

export type OrganizationRow = {
  organization_id: string
  name: string
  registered_at: Date
  balance_micro: string
  charged_micro: string
  live_keys: number
  last_call_at: Date | null
}

/** The balance of an account (`accounts a`): the credits that can be used at the time $1, minus the overdraft used. */
export const balanceMicro = `(coalesce((select sum(l.remaining_micro) from account_lots l
  where l.organization_id = a.organization_id and l.remaining_micro > 0
    and (l.expires_at is null or l.expires_at > $1)), 0) - a.overdrawn_micro)::text`

/** Registered organizations after the given one, ordered by id, and so by age. Lots and keys that have expired do not count. */
export const organizationsAfter = async (
  { pool }: Pick<Foundation, 'pool'>,
  { after, max }: { readonly after: string; readonly max: number },
): Promise<OrganizationRow[]> => {
  const { rows } = await pool.query<OrganizationRow>(
    `select a.organization_id, a.name, a.registered_at, a.charged_micro::text, k.live_keys, k.last_call_at,
            ${balanceMicro} as balance_micro
       from accounts a
       cross join lateral (
         select (count(*) filter (where revoked_at is null and (expires_at is null or expires_at > $1)
                                    and (grace_until is null or grace_until > $1)))::integer as live_keys,
                max(last_used_at) as last_call_at
           from api_keys left join key_last_used using (key_id)
          where organization_id = a.organization_id) k
      where a.registered_at is not null and a.organization_id > $2
      order by a.organization_id limit $3`,
    [new Date(Date.now()), after, max],
  )
  return rows
}

/** Names of organizations by id. If rows are late, a name can be missing. */
export const namesOf = async (
  { pool }: Pick<Foundation, 'pool'>,
  ids: readonly string[],
): Promise<ReadonlyMap<string, string>> => {
  const { rows } = await pool.query<{ organization_id: string; name: string }>(
    'select organization_id, name from accounts where organization_id = any($1) and registered_at is not null',
    [ids],
  )
  return new Map(rows.map(({ organization_id, name }) => [organization_id, name]))
}

/** The ids of all organizations, including everything in the event log at the time of the call, in the order of registration. */
export const organizationIds = async (foundation: Foundation, logger: Logger): Promise<string[]> => {
  await catchUp(foundation, logger)
  const { rows } = await foundation.pool.query<{ organization_id: string }>(
    'select organization_id from accounts where registered_at is not null order by registered_at, organization_id',
  )
  return rows.map(({ organization_id }) => organization_id)
}
