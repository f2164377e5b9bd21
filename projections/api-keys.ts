import type { DomainEventOf } from '../src/events/catalogue.ts'
import type { KeyLimits } from '../src/events/keys.ts'
import { keyStream } from '../src/events/streams.ts'
import type { ProjectedEvent, Query, StatelessProjection, TableName } from './projection.ts'
import { insert, type RowOf, type Table, update } from './rows.ts'

const keysTable = {
  name: 'api_keys',
  columns: {
    key_id: 'text not null',
    organization_id: 'text not null',
    organization_name: 'text not null',
    name: 'text not null',
    secret_hmac: 'text not null',
    last4: 'text not null',
    permissions: 'text[] not null',
    limits: 'json not null',
    allowed_cidrs: 'text[] not null',
    created_at: 'timestamptz not null',
    expires_at: 'timestamptz',
    successor_id: 'text',
    grace_until: 'timestamptz',
    revoked_at: 'timestamptz',
    revoke_reason: 'text',
  },
  key: ['key_id'],
  indexes: [
    'create index on $table (organization_id, created_at, key_id)',
    'create index on $table (created_at, key_id)',
  ],
} as const satisfies Table
type KeyRow = RowOf<typeof keysTable>

/** The current state of every API key ever issued, for lists and pages. Access is decided by the keys' streams instead. */
export const apiKeys: StatelessProjection = {
  name: 'api_keys',
  version: 1,
  prefixes: ['key-'],
  money: false,
  guards: true,
  tables: [keysTable],
  fold: (events) => {
    const issued: KeyRow[] = []
    // A key is rotated and revoked only once. If an event is repeated, the earlier time counts.
    const rotated = new Map<string, Pick<KeyRow, 'key_id' | 'successor_id'> & { grace_until: string }>()
    const limited = new Map<string, Pick<KeyRow, 'key_id' | 'limits'>>()
    const revoked = new Map<string, Pick<KeyRow, 'key_id' | 'revoked_at' | 'revoke_reason'>>()
    for (const event of events) {
      if (!event.type.startsWith('ApiKey')) continue
      refuseStranger(event)
      const at = event.metadata.effective_at
      if (event.type === 'ApiKeyIssued') issued.push(rowOf(event.data, at))
      else if (event.type === 'ApiKeyRotated') {
        const { key_id, successor_id, grace_until } = event.data
        const before = rotated.get(key_id) ?? event.data
        rotated.set(key_id, {
          key_id,
          successor_id: before.successor_id ?? successor_id,
          // Both times are in UTC and in the same format, so they can be compared as text.
          grace_until: before.grace_until < grace_until ? before.grace_until : grace_until,
        })
      } else if (event.type === 'ApiKeyLimitsChanged') {
        const { key_id, limits } = event.data
        limited.set(key_id, { key_id, limits })
      } else if (event.type === 'ApiKeyRevoked') {
        const { key_id, reason } = event.data
        if (!revoked.has(key_id)) revoked.set(key_id, { key_id, revoked_at: at, revoke_reason: reason })
      }
    }
    // Rows are inserted first, because a key is issued before anything else. The updates affect different columns, so their order
    // does not matter.
    return [
      insert(keysTable, issued),
      update(keysTable, [...rotated.values()], {
        successor_id: 'coalesce(t.successor_id, excluded.successor_id)',
        grace_until: 'least(t.grace_until, excluded.grace_until)',
      }),
      update(keysTable, [...limited.values()]),
      update(keysTable, [...revoked.values()], {
        revoked_at: 'coalesce(t.revoked_at, excluded.revoked_at)',
        revoke_reason: 'case when t.revoked_at is null then excluded.revoke_reason else t.revoke_reason end',
      }),
    ]
  },
}

/** The members are copied one by one, because an event can have members that are not columns. */
const rowOf = (data: DomainEventOf<'ApiKeyIssued'>['data'], createdAt: string): KeyRow => ({
  key_id: data.key_id,
  organization_id: data.organization_id,
  organization_name: data.organization_name,
  name: data.name,
  secret_hmac: data.secret_hmac,
  last4: data.last4,
  permissions: data.permissions,
  limits: data.limits,
  allowed_cidrs: data.allowed_cidrs,
  created_at: createdAt,
  expires_at: data.expires_at,
  successor_id: null,
  grace_until: null,
  revoked_at: null,
  revoke_reason: null,
})

/** Throws if an event contains a different key than its stream's, because it would change the row of that other key. */
const refuseStranger = ({ stream, data }: ProjectedEvent): void => {
  const { key_id } = data as { readonly key_id?: unknown }
  if (stream !== keyStream(String(key_id))) throw new Error(`an event in ${stream} is about another key`)
}

export type ApiKeyRow = {
  key_id: string
  organization_id: string
  organization_name: string
  name: string
  secret_hmac: string
  last4: string
  permissions: string[]
  limits: KeyLimits
  allowed_cidrs: string[]
  created_at: Date
  expires_at: Date | null
  successor_id: string | null
  grace_until: Date | null
  revoked_at: Date | null
}

/** The keys of one organization, or of all, after the given one, oldest first. A key that is issued meanwhile comes last. */
export const keysAfter = (
  organizationId: string | null,
  { after, max }: { readonly after: string | null; readonly max: number },
): Query<ApiKeyRow> => ({
  text: `select * from api_keys
          where ($1::text is null or organization_id = $1)
            and ($2::text is null or (created_at, key_id) > (select created_at, key_id from api_keys where key_id = $2))
          order by created_at, key_id limit $3`,
  values: [organizationId, after, max],
})

export const keyIds = (): Query<{ key_id: string }> => ({ text: 'select key_id from api_keys', values: [] })

/** The facts that are missing in rows folded from a shorter log: `revoked` keys would be accepted again, and `issued` keys would be unknown. */
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
