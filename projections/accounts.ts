import { formatMicro, microOf } from './micro.ts'
import { columnsOf, type ProjectedEvent, type Projection, type Query, type Statement } from './projection.ts'

/**
 * Each organization's account as of a ledger revision: what a process starts from instead of reading a ledger from its
 * beginning, and where balances are read. Every change is a delta recorded by the event itself, so folding needs no
 * earlier state.
 */
export const accounts: Projection = {
  name: 'accounts',
  version: 1,
  prefixes: ['ledger-'],
  money: true,
  tables: [
    {
      name: 'accounts',
      columns: `
        organization_id text primary key, name text, registered_at timestamptz, revision bigint not null,
        digest text not null, overdraft_limit_micro bigint not null, overdrawn_micro bigint not null,
        granted_micro numeric not null, charged_micro numeric not null, expired_micro numeric not null,
        adjusted_micro numeric not null`,
    },
    {
      name: 'account_lots',
      columns: `
        organization_id text not null, grant_id uuid not null, priority integer not null, expires_at timestamptz,
        revision bigint not null, granted_micro bigint not null,
        remaining_micro bigint not null check (remaining_micro >= 0), primary key (organization_id, grant_id)`,
      indexes: ['create index on $table (expires_at) where remaining_micro > 0'],
    },
    {
      name: 'account_price_overrides',
      columns: `
        organization_id text not null, revision bigint not null, sku text not null, amount_micro bigint,
        effective_from timestamptz not null, primary key (organization_id, revision)`,
    },
  ],
  fold: (events, table) => {
    const changes = new Map<string, Change>()
    const lots = new Map<string, Lot>()
    const drawn = new Map<string, { organizationId: string; grantId: string; micro: bigint }>()
    const overrides: (string | null)[][] = []
    const take = (organizationId: string, grantId: string, micro: bigint): void => {
      const id = `${organizationId} ${grantId}`
      const opened = lots.get(id)
      if (opened !== undefined) {
        opened.remaining -= micro
        return
      }
      const entry = drawn.get(id)
      if (entry === undefined) drawn.set(id, { organizationId, grantId, micro })
      else entry.micro += micro
    }
    for (const event of events) foldOne(event, { changes, lots, overrides, take })
    return [
      ...changeAccounts([...changes], table('accounts')),
      ...openLots([...lots.values()], table('account_lots')),
      ...drawLots([...drawn.values()], table('account_lots')),
      ...setOverrides(overrides, table('account_price_overrides')),
    ]
  },
}

type Change = {
  name: string | null
  registeredAt: string | null
  overdraftLimit: bigint
  overdrawn: bigint
  granted: bigint
  charged: bigint
  expired: bigint
  adjusted: bigint
  revision: number
  digest: string
}

type Lot = {
  organizationId: string
  grantId: string
  priority: number
  expiresAt: string | null
  revision: number
  granted: bigint
  remaining: bigint
}

type Folding = {
  changes: Map<string, Change>
  lots: Map<string, Lot>
  overrides: (string | null)[][]
  take: (organizationId: string, grantId: string, micro: bigint) => void
}

const foldOne = (event: ProjectedEvent, { changes, lots, overrides, take }: Folding): void => {
  const organizationId = event.stream.slice('ledger-'.length)
  let change = changes.get(organizationId)
  if (change === undefined) {
    change = {
      name: null,
      registeredAt: null,
      overdraftLimit: 0n,
      overdrawn: 0n,
      granted: 0n,
      charged: 0n,
      expired: 0n,
      adjusted: 0n,
      revision: -1,
      digest: '',
    }
    changes.set(organizationId, change)
  }
  change.revision = event.revision
  change.digest = event.metadata.digest ?? ''
  const open = (
    grantId: string,
    granted: bigint,
    repaid: bigint,
    terms: { priority: number; expiresAt: string | null },
  ) => {
    lots.set(`${organizationId} ${grantId}`, {
      organizationId,
      grantId,
      ...terms,
      revision: event.revision,
      granted,
      remaining: granted - repaid,
    })
  }
  switch (event.type) {
    case 'OrganizationRegistered':
      change.name = event.data.name
      change.registeredAt = event.metadata.effective_at
      change.overdraftLimit += microOf(event.data.overdraft_limit)
      return
    case 'CreditGranted': {
      const granted = microOf(event.data.amount)
      const repaid = microOf(event.data.overdraft_repaid)
      change.granted += granted
      change.overdrawn -= repaid
      open(event.data.grant_id, granted, repaid, {
        priority: event.data.priority,
        expiresAt: event.data.expires_at,
      })
      return
    }
    case 'CreditExpired':
      change.expired += microOf(event.data.amount)
      take(organizationId, event.data.grant_id, microOf(event.data.amount))
      return
    case 'CreditCharged': {
      const amount = microOf(event.data.amount)
      change.charged += amount
      change.overdrawn += amount
      for (const { grant_id, amount: part } of event.data.allocations) {
        change.overdrawn -= microOf(part)
        take(organizationId, grant_id, microOf(part))
      }
      return
    }
    case 'CreditAdjusted': {
      const amount = microOf(event.data.amount)
      change.adjusted += amount
      if (amount >= 0n) {
        const repaid = microOf(event.data.overdraft_repaid)
        change.overdrawn -= repaid
        open(event.data.adjustment_id, amount, repaid, { priority: 0, expiresAt: null })
        return
      }
      change.overdrawn -= amount
      for (const { grant_id, amount: part } of event.data.allocations) {
        change.overdrawn -= microOf(part)
        take(organizationId, grant_id, microOf(part))
      }
      return
    }
    case 'PriceOverrideSet':
      overrides.push([
        organizationId,
        String(event.revision),
        event.data.sku,
        event.data.amount === null ? null : formatMicro(microOf(event.data.amount)),
        event.data.effective_from,
      ])
  }
}

const changeAccounts = (changes: readonly [string, Change][], table: string): Statement[] =>
  changes.length === 0
    ? []
    : [
        {
          text: `insert into ${table} as t (organization_id, name, registered_at, revision, digest, overdraft_limit_micro,
                   overdrawn_micro, granted_micro, charged_micro, expired_micro, adjusted_micro)
                 select a, b, c::timestamptz, d::bigint, e, f::bigint, g::bigint, h::numeric, i::numeric, j::numeric, k::numeric
                 from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[],
                             $9::text[], $10::text[], $11::text[]) as u (a, b, c, d, e, f, g, h, i, j, k)
                 on conflict (organization_id) do update set
                   name = coalesce(excluded.name, t.name),
                   registered_at = coalesce(excluded.registered_at, t.registered_at),
                   revision = excluded.revision, digest = excluded.digest,
                   overdraft_limit_micro = t.overdraft_limit_micro + excluded.overdraft_limit_micro,
                   overdrawn_micro = t.overdrawn_micro + excluded.overdrawn_micro,
                   granted_micro = t.granted_micro + excluded.granted_micro,
                   charged_micro = t.charged_micro + excluded.charged_micro,
                   expired_micro = t.expired_micro + excluded.expired_micro,
                   adjusted_micro = t.adjusted_micro + excluded.adjusted_micro`,
          columns: columnsOf(
            changes.map(([organizationId, change]) => [
              organizationId,
              change.name,
              change.registeredAt,
              String(change.revision),
              change.digest,
              formatMicro(change.overdraftLimit),
              formatMicro(change.overdrawn),
              formatMicro(change.granted),
              formatMicro(change.charged),
              formatMicro(change.expired),
              formatMicro(change.adjusted),
            ]),
            11,
          ),
        },
      ]

const openLots = (lots: readonly Lot[], table: string): Statement[] =>
  lots.length === 0
    ? []
    : [
        {
          text: `insert into ${table} (organization_id, grant_id, priority, expires_at, revision, granted_micro, remaining_micro)
                 select a, b::uuid, c::integer, d::timestamptz, e::bigint, f::bigint, g::bigint
                 from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[])
                   as u (a, b, c, d, e, f, g)`,
          columns: columnsOf(
            lots.map((lot) => [
              lot.organizationId,
              lot.grantId,
              String(lot.priority),
              lot.expiresAt,
              String(lot.revision),
              formatMicro(lot.granted),
              formatMicro(lot.remaining),
            ]),
            7,
          ),
        },
      ]

const drawLots = (
  drawn: readonly { organizationId: string; grantId: string; micro: bigint }[],
  table: string,
): Statement[] =>
  drawn.length === 0
    ? []
    : [
        {
          text: `update ${table} t set remaining_micro = t.remaining_micro - u.c::bigint
                 from unnest($1::text[], $2::text[], $3::text[]) as u (a, b, c)
                 where t.organization_id = u.a and t.grant_id = u.b::uuid`,
          columns: columnsOf(
            drawn.map(({ organizationId, grantId, micro }) => [organizationId, grantId, formatMicro(micro)]),
            3,
          ),
        },
      ]

const setOverrides = (rows: readonly (string | null)[][], table: string): Statement[] =>
  rows.length === 0
    ? []
    : [
        {
          text: `insert into ${table} (organization_id, revision, sku, amount_micro, effective_from)
                 select a, b::bigint, c, d::bigint, e::timestamptz
                 from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[]) as u (a, b, c, d, e)`,
          columns: columnsOf(rows, 5),
        },
      ]

export type AccountSnapshotRow = {
  organization_id: string
  registered: boolean
  name: string | null
  revision: string
  digest: string
  overdraft_limit_micro: string
  overdrawn_micro: string
  lots: {
    grant_id: string
    priority: number
    expires_at_ms: number | null
    revision: number
    granted_micro: string
    remaining_micro: string
  }[]
  overrides: { sku: string; amount_micro: string | null; from_ms: number }[]
}

/** One account with its live lots and price overrides: one row, one snapshot; no row for an unknown ledger. */
export const accountSnapshot = (organizationId: string): Query<AccountSnapshotRow> => ({
  text: `select a.organization_id, a.registered_at is not null as registered, a.name, a.revision, a.digest,
                a.overdraft_limit_micro, a.overdrawn_micro,
                coalesce((select json_agg(json_build_object('grant_id', l.grant_id, 'priority', l.priority,
                            'expires_at_ms', (extract(epoch from l.expires_at) * 1000)::bigint, 'revision', l.revision,
                            'granted_micro', l.granted_micro::text, 'remaining_micro', l.remaining_micro::text))
                          from account_lots l where l.organization_id = a.organization_id and l.remaining_micro > 0), '[]') as lots,
                coalesce((select json_agg(json_build_object('sku', o.sku, 'amount_micro', o.amount_micro::text,
                            'from_ms', (extract(epoch from o.effective_from) * 1000)::bigint) order by o.revision)
                          from account_price_overrides o where o.organization_id = a.organization_id), '[]') as overrides
           from accounts a where a.organization_id = $1`,
  values: [organizationId],
})

export type OrganizationRow = {
  organization_id: string
  name: string
  registered_at: Date
  balance_micro: string
  charged_micro: string
}

/** Every organization with its balance at the projection's checkpoint, oldest first. */
export const allOrganizations = (): Query<OrganizationRow> => ({
  text: `select a.organization_id, a.name, a.registered_at, a.charged_micro::text,
                (coalesce((select sum(l.remaining_micro) from account_lots l
                  where l.organization_id = a.organization_id and (l.expires_at is null or l.expires_at > now())), 0)
                 - a.overdrawn_micro)::text as balance_micro
           from accounts a where a.registered_at is not null order by a.registered_at, a.organization_id`,
  values: [],
})

/** Lots that are past their expiry with something left: what the expiry job writes off. */
export const expirableLots = (max: number): Query<{ organization_id: string; grant_id: string }> => ({
  text: `select organization_id, grant_id from account_lots
          where remaining_micro > 0 and expires_at <= now() order by expires_at limit $1`,
  values: [max],
})
