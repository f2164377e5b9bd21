import type { DomainEventOf } from '../src/events/catalogue.ts'
import { keyStream } from '../src/events/streams.ts'
import {
  columnsOf,
  type ProjectedEvent,
  type Query,
  type StatelessProjection,
  type Statement,
  type TableName,
} from './projection.ts'

/** Every API key ever issued, as it stands now, for people. Who is let in is read from the keys' own streams. */
export const apiKeys: StatelessProjection = {
  name: 'api_keys',
  version: 1,
  prefixes: ['key-'],
  money: false,
  guards: true,
  tables: [
    {
      name: 'api_keys',
      columns: `
        key_id text primary key, organization_id text not null, organization_name text not null, name text not null,
        secret_hmac text not null, last4 text not null, permissions text[] not null, limits json not null,
        allowed_cidrs text[] not null, created_at timestamptz not null, expires_at timestamptz,
        successor_id text, grace_until timestamptz, revoked_at timestamptz, revoke_reason text`,
      indexes: ['create index on $table (organization_id)'],
    },
  ],
  fold: (events, table) => {
    const issued: DomainEventOf<'ApiKeyIssued'>['data'][] = []
    const createdAt: string[] = []
    // A key is rotated and revoked once; what says so again may end it earlier, and gives nothing back.
    const rotated = new Map<string, [string, string, string]>()
    const limits = new Map<string, string>()
    const revoked = new Map<string, [string, string, string]>()
    for (const event of events) {
      if (!event.type.startsWith('ApiKey')) continue
      refuseStranger(event)
      if (event.type === 'ApiKeyIssued') {
        issued.push(event.data)
        createdAt.push(event.metadata.effective_at)
      } else if (event.type === 'ApiKeyRotated') {
        const { key_id, successor_id, grace_until } = event.data
        const [, successor = successor_id, grace = grace_until] = rotated.get(key_id) ?? []
        // Both are UTC in one form.
        rotated.set(key_id, [key_id, successor, grace < grace_until ? grace : grace_until])
      } else if (event.type === 'ApiKeyLimitsChanged')
        limits.set(event.data.key_id, JSON.stringify(event.data.limits))
      else if (event.type === 'ApiKeyRevoked') {
        const { key_id, reason } = event.data
        if (!revoked.has(key_id)) revoked.set(key_id, [key_id, event.metadata.effective_at, reason])
      }
    }
    // A key is issued before anything else happens to it, and the other changes touch different columns.
    return [
      ...insertIssued(issued, createdAt, table),
      ...update(
        table,
        'successor_id = coalesce(k.successor_id, u.b), grace_until = least(k.grace_until, u.c::timestamptz)',
        [...rotated.values()],
      ),
      ...update(table, 'limits = u.b::json', [...limits]),
      ...update(
        table,
        `revoked_at = coalesce(k.revoked_at, u.b::timestamptz),
         revoke_reason = case when k.revoked_at is null then u.c else k.revoke_reason end`,
        [...revoked.values()],
      ),
    ]
  },
}

/** An event in one key's stream about another key would change the other's row. */
const refuseStranger = ({ stream, data }: ProjectedEvent): void => {
  const { key_id } = data as { readonly key_id?: unknown }
  if (stream !== keyStream(String(key_id))) throw new Error(`an event in ${stream} is about another key`)
}

const insertIssued = (
  issued: readonly DomainEventOf<'ApiKeyIssued'>['data'][],
  createdAt: readonly string[],
  table: TableName,
): Statement[] =>
  issued.length === 0
    ? []
    : [
        {
          text: `insert into ${table('api_keys')} (key_id, organization_id, organization_name, name, secret_hmac, last4,
                   permissions, limits, allowed_cidrs, created_at, expires_at)
                 select a, b, c, d, e, f, array(select json_array_elements_text(g::json)), h::json,
                        array(select json_array_elements_text(i::json)), j::timestamptz, k::timestamptz
                 from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[],
                             $8::text[], $9::text[], $10::text[], $11::text[]) as u (a, b, c, d, e, f, g, h, i, j, k)`,
          columns: columnsOf(
            issued.map((key, i) => [
              key.key_id,
              key.organization_id,
              key.organization_name,
              key.name,
              key.secret_hmac,
              key.last4,
              JSON.stringify(key.permissions),
              JSON.stringify(key.limits),
              JSON.stringify(key.allowed_cidrs),
              createdAt[i] ?? null,
              key.expires_at,
            ]),
            11,
          ),
        },
      ]

const update = (table: TableName, set: string, rows: readonly (readonly string[])[]): Statement[] => {
  const width = rows[0]?.length
  if (width === undefined) return []
  return [
    {
      text: `update ${table('api_keys')} k set ${set}
             from unnest($1::text[], $2::text[]${width === 3 ? ', $3::text[]' : ''}) as u (a, b${width === 3 ? ', c' : ''})
             where k.key_id = u.a`,
      columns: columnsOf(rows, width),
    },
  ]
}

export type ApiKeyRow = {
  key_id: string
  organization_id: string
  organization_name: string
  name: string
  secret_hmac: string
  last4: string
  permissions: string[]
  limits: {
    requests_per_minute: number
    requests_per_day: number
    email_validations_per_second: number
  }
  allowed_cidrs: string[]
  created_at: Date
  expires_at: Date | null
  successor_id: string | null
  grace_until: Date | null
  revoked_at: Date | null
}

/** Keys, of one organization or of all, oldest first. */
export const keysOf = (organizationId: string | null): Query<ApiKeyRow> => ({
  text: 'select * from api_keys where $1::text is null or organization_id = $1 order by created_at, key_id',
  values: [organizationId],
})

/** The ids of all keys there are rows of. */
export const keyIds = (): Query<{ key_id: string }> => ({ text: 'select key_id from api_keys', values: [] })

/**
 * What rows know of keys and rows folded from a shorter log do not: `revoked` keys that would be accepted again, and
 * keys `issued` that would be unknown.
 */
export const keysOnlyInRows = (
  live: TableName,
  next: TableName,
): Query<{ what: 'revoked' | 'issued'; key_id: string; organization_id: string; at: Date }> => ({
  text: `select case when n.key_id is null then 'issued' else 'revoked' end as what, l.key_id, l.organization_id,
                case when n.key_id is null then l.created_at else l.revoked_at end as at
           from ${live('api_keys')} l left join ${next('api_keys')} n using (key_id)
          where n.key_id is null or (l.revoked_at is not null and n.revoked_at is null)
          order by l.organization_id, l.key_id`,
  values: [],
})
