import { formatMicro, microOf } from './micro.ts'
import {
  columnsOf,
  type ProjectedEvent,
  type Query,
  type StatefulProjection,
  type Statement,
} from './projection.ts'

/**
 * Each organization's account as of a ledger revision: what a process starts from instead of reading a ledger from its
 * beginning, and where balances are read.
 *
 * The rows are a snapshot, and a snapshot affects cost, never meaning. They are written whole from the account the
 * projector folded, never by adding to what a row says, and they carry a seal over all of it. A row that was changed by
 * anyone else does not match its seal, and its reader folds the ledger from the start instead.
 */
export const accounts: StatefulProjection<AccountState, AccountRow> = {
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
        adjusted_micro numeric not null, seal text not null`,
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
  states: {
    initial: (stream) => initialState(organizationOf(stream)),
    copy: (state) => ({
      ...state,
      lots: new Map(state.lots),
      overrides: [...state.overrides],
      changed: { lots: new Map(state.changed.lots), overrides: [...state.changed.overrides] },
    }),
    evolve: (state, event) => evolve(state, event),
    write: (states, { table, seal }) => [
      ...forget(
        states.flatMap(({ written, organizationId }) => (written ? [] : [organizationId])),
        [table('account_lots'), table('account_price_overrides')],
      ),
      ...writeAccounts(states, seal, table('accounts')),
      ...writeLots(states, table('account_lots')),
      ...writeOverrides(states, table('account_price_overrides')),
    ],
    written: (state) => {
      state.written = true
      state.changed.lots.clear()
      state.changed.overrides.length = 0
    },
    rows: (streams, table) => ({
      text: rowsOf({
        accounts: table('accounts'),
        lots: table('account_lots'),
        overrides: table('account_price_overrides'),
      }),
      values: [streams.map(organizationOf)],
    }),
    open: (row, seal) => {
      const state = sealedState(row, seal)
      return state === null
        ? null
        : {
            stream: `ledger-${state.organizationId}`,
            revision: state.revision,
            digest: state.digest,
            state,
          }
    },
  },
}

const organizationOf = (stream: string): string => stream.slice('ledger-'.length)

/** An account, with its totals and with what its rows do not say yet. Instants are milliseconds since the epoch. */
export type AccountState = {
  readonly organizationId: string
  name: string | null
  registeredAtMs: number | null
  revision: number
  digest: string
  overdraftLimit: bigint
  overdrawn: bigint
  granted: bigint
  charged: bigint
  expired: bigint
  adjusted: bigint
  /** Lots with something left. */
  readonly lots: Map<string, LotState>
  readonly overrides: OverrideState[]
  /** False: nothing is known to be written, and rows that are there count for nothing. */
  written: boolean
  readonly changed: { readonly lots: Map<string, LotState>; readonly overrides: OverrideState[] }
}

export type LotState = {
  readonly grantId: string
  readonly priority: number
  readonly expiresAtMs: number | null
  readonly revision: number
  readonly granted: bigint
  readonly remaining: bigint
}

export type OverrideState = {
  readonly revision: number
  readonly sku: string
  readonly amount: bigint | null
  readonly fromMs: number
}

const initialState = (organizationId: string): AccountState => ({
  organizationId,
  name: null,
  registeredAtMs: null,
  revision: -1,
  digest: '',
  overdraftLimit: 0n,
  overdrawn: 0n,
  granted: 0n,
  charged: 0n,
  expired: 0n,
  adjusted: 0n,
  lots: new Map(),
  overrides: [],
  written: false,
  changed: { lots: new Map(), overrides: [] },
})

/** Throws where the ledger breaks its own rules: a revision that does not follow, credits taken from where none are. */
const evolve = (state: AccountState, event: ProjectedEvent): void => {
  if (event.revision !== state.revision + 1)
    throw new Error(`revision ${event.revision} follows revision ${state.revision}`)
  switch (event.type) {
    case 'OrganizationRegistered':
      // PostgreSQL's texts hold no U+0000, and what is sealed has to be what the row gives back.
      state.name = event.data.name.replaceAll('\0', '\u{fffd}')
      state.registeredAtMs = Date.parse(event.metadata.effective_at)
      state.overdraftLimit += microOf(event.data.overdraft_limit)
      break
    case 'CreditGranted': {
      const { grant_id, priority, expires_at, amount, overdraft_repaid } = event.data
      state.granted += microOf(amount)
      grant(state, { grantId: grant_id, priority, expiresAt: expires_at, amount, overdraft_repaid, event })
      break
    }
    case 'CreditExpired':
      state.expired += microOf(event.data.amount)
      take(state, [event.data])
      break
    case 'CreditCharged':
      state.charged += microOf(event.data.amount)
      state.overdrawn += microOf(event.data.amount) - take(state, event.data.allocations)
      break
    case 'CreditAdjusted': {
      const { adjustment_id, amount, allocations, overdraft_repaid } = event.data
      const micro = microOf(amount)
      state.adjusted += micro
      if (micro < 0n) state.overdrawn += -micro - take(state, allocations)
      else
        grant(state, {
          grantId: adjustment_id,
          priority: 0,
          expiresAt: null,
          amount,
          overdraft_repaid,
          event,
        })
      break
    }
    case 'PriceOverrideSet': {
      const { sku, amount, effective_from } = event.data
      const override = {
        revision: event.revision,
        sku,
        amount: amount === null ? null : microOf(amount),
        fromMs: Date.parse(effective_from),
      }
      state.overrides.push(override)
      state.changed.overrides.push(override)
    }
  }
  state.revision = event.revision
  state.digest = event.metadata.digest ?? ''
}

const grant = (
  state: AccountState,
  granted: {
    grantId: string
    priority: number
    expiresAt: string | null
    amount: string
    overdraft_repaid: string
    event: ProjectedEvent
  },
): void => {
  const { grantId, priority, expiresAt, event } = granted
  const repaid = microOf(granted.overdraft_repaid)
  if (repaid > state.overdrawn) throw new Error(`grant ${grantId} repays more than was overdrawn`)
  if (state.lots.has(grantId)) throw new Error(`lot ${grantId} is granted twice`)
  state.overdrawn -= repaid
  const amount = microOf(granted.amount)
  setLot(state, {
    grantId,
    priority,
    expiresAtMs: expiresAt === null ? null : Date.parse(expiresAt),
    revision: event.revision,
    granted: amount,
    remaining: amount - repaid,
  })
}

/** Takes allocations from their lots, and returns what was taken in all. */
const take = (state: AccountState, allocations: readonly { grant_id: string; amount: string }[]): bigint => {
  let taken = 0n
  for (const { grant_id, amount } of allocations) {
    const lot = state.lots.get(grant_id)
    const part = microOf(amount)
    if (lot === undefined || lot.remaining < part)
      throw new Error(`${amount} credits are taken from lot ${grant_id}, which does not hold them`)
    setLot(state, { ...lot, remaining: lot.remaining - part })
    taken += part
  }
  return taken
}

const setLot = (state: AccountState, lot: LotState): void => {
  if (lot.remaining === 0n) state.lots.delete(lot.grantId)
  else state.lots.set(lot.grantId, lot)
  state.changed.lots.set(lot.grantId, lot)
}

/** Everything a reader goes by, in one text that does not depend on the order of rows. */
const sealedText = (state: AccountState): string =>
  JSON.stringify([
    state.organizationId,
    state.revision,
    state.digest,
    state.name,
    state.registeredAtMs,
    ...[
      state.overdraftLimit,
      state.overdrawn,
      state.granted,
      state.charged,
      state.expired,
      state.adjusted,
    ].map(formatMicro),
    [...state.lots.values()]
      .sort((a, b) => a.revision - b.revision)
      .map((lot) => [
        lot.grantId,
        lot.priority,
        lot.expiresAtMs,
        lot.revision,
        formatMicro(lot.granted),
        formatMicro(lot.remaining),
      ]),
    [...state.overrides]
      .sort((a, b) => a.revision - b.revision)
      .map(({ revision, sku, amount, fromMs }) => [
        revision,
        sku,
        amount === null ? null : formatMicro(amount),
        fromMs,
      ]),
  ])

const forget = (organizationIds: readonly string[], tables: readonly string[]): Statement[] =>
  organizationIds.length === 0
    ? []
    : tables.map((table) => ({
        text: `delete from ${table} where organization_id in (select a from unnest($1::text[]) as u (a))`,
        columns: [organizationIds],
      }))

const instant = (ms: number | null): string | null => (ms === null ? null : new Date(ms).toISOString())

const writeAccounts = (
  states: readonly AccountState[],
  seal: (text: string) => string,
  table: string,
): Statement[] =>
  states.length === 0
    ? []
    : [
        {
          text: `insert into ${table} (organization_id, name, registered_at, revision, digest, overdraft_limit_micro,
                   overdrawn_micro, granted_micro, charged_micro, expired_micro, adjusted_micro, seal)
                 select a, b, c::timestamptz, d::bigint, e, f::bigint, g::bigint, h::numeric, i::numeric, j::numeric,
                        k::numeric, l
                 from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[],
                             $9::text[], $10::text[], $11::text[], $12::text[]) as u (a, b, c, d, e, f, g, h, i, j, k, l)
                 on conflict (organization_id) do update set
                   name = excluded.name, registered_at = excluded.registered_at, revision = excluded.revision,
                   digest = excluded.digest, overdraft_limit_micro = excluded.overdraft_limit_micro,
                   overdrawn_micro = excluded.overdrawn_micro, granted_micro = excluded.granted_micro,
                   charged_micro = excluded.charged_micro, expired_micro = excluded.expired_micro,
                   adjusted_micro = excluded.adjusted_micro, seal = excluded.seal`,
          columns: columnsOf(
            states.map((state) => [
              state.organizationId,
              state.name,
              instant(state.registeredAtMs),
              String(state.revision),
              state.digest,
              formatMicro(state.overdraftLimit),
              formatMicro(state.overdrawn),
              formatMicro(state.granted),
              formatMicro(state.charged),
              formatMicro(state.expired),
              formatMicro(state.adjusted),
              seal(sealedText(state)),
            ]),
            12,
          ),
        },
      ]

const writeLots = (states: readonly AccountState[], table: string): Statement[] => {
  const rows = states.flatMap(({ organizationId, changed }) =>
    [...changed.lots.values()].map((lot) => [
      organizationId,
      lot.grantId,
      String(lot.priority),
      instant(lot.expiresAtMs),
      String(lot.revision),
      formatMicro(lot.granted),
      formatMicro(lot.remaining),
    ]),
  )
  return rows.length === 0
    ? []
    : [
        {
          text: `insert into ${table} (organization_id, grant_id, priority, expires_at, revision, granted_micro, remaining_micro)
                 select a, b::uuid, c::integer, d::timestamptz, e::bigint, f::bigint, g::bigint
                 from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[])
                   as u (a, b, c, d, e, f, g)
                 on conflict (organization_id, grant_id) do update set
                   priority = excluded.priority, expires_at = excluded.expires_at, revision = excluded.revision,
                   granted_micro = excluded.granted_micro, remaining_micro = excluded.remaining_micro`,
          columns: columnsOf(rows, 7),
        },
      ]
}

const writeOverrides = (states: readonly AccountState[], table: string): Statement[] => {
  const rows = states.flatMap(({ organizationId, changed }) =>
    changed.overrides.map(({ revision, sku, amount, fromMs }) => [
      organizationId,
      String(revision),
      sku,
      amount === null ? null : formatMicro(amount),
      instant(fromMs),
    ]),
  )
  return rows.length === 0
    ? []
    : [
        {
          text: `insert into ${table} (organization_id, revision, sku, amount_micro, effective_from)
                 select a, b::bigint, c, d::bigint, e::timestamptz
                 from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[]) as u (a, b, c, d, e)
                 on conflict (organization_id, revision) do update set
                   sku = excluded.sku, amount_micro = excluded.amount_micro, effective_from = excluded.effective_from`,
          columns: columnsOf(rows, 5),
        },
      ]
}

export type AccountRow = {
  organization_id: string
  name: string | null
  registered_at_ms: string | null
  revision: string
  digest: string
  overdraft_limit_micro: string
  overdrawn_micro: string
  granted_micro: string
  charged_micro: string
  expired_micro: string
  adjusted_micro: string
  seal: string
  lots: {
    grant_id: string
    priority: number
    expires_at_ms: number | null
    revision: number
    granted_micro: string
    remaining_micro: string
  }[]
  overrides: { revision: number; sku: string; amount_micro: string | null; from_ms: number }[]
}

const msOf = (column: string): string => `floor(extract(epoch from ${column}) * 1000)::bigint`

const rowsOf = (table: { accounts: string; lots: string; overrides: string }): string => `
  select a.organization_id, a.name, ${msOf('a.registered_at')} as registered_at_ms, a.revision, a.digest,
         a.overdraft_limit_micro, a.overdrawn_micro, a.granted_micro, a.charged_micro, a.expired_micro, a.adjusted_micro,
         a.seal,
         coalesce((select json_agg(json_build_object('grant_id', l.grant_id, 'priority', l.priority,
                     'expires_at_ms', ${msOf('l.expires_at')}, 'revision', l.revision,
                     'granted_micro', l.granted_micro::text, 'remaining_micro', l.remaining_micro::text))
                   from ${table.lots} l where l.organization_id = a.organization_id and l.remaining_micro > 0), '[]') as lots,
         coalesce((select json_agg(json_build_object('revision', o.revision, 'sku', o.sku,
                     'amount_micro', o.amount_micro::text, 'from_ms', ${msOf('o.effective_from')}))
                   from ${table.overrides} o where o.organization_id = a.organization_id), '[]') as overrides
    from ${table.accounts} a where a.organization_id = any ($1::text[])`

/** One account with its open lots and price overrides: one row, one snapshot; no row for an unknown ledger. */
export const accountSnapshot = (organizationId: string): Query<AccountRow> => ({
  text: rowsOf({ accounts: 'accounts', lots: 'account_lots', overrides: 'account_price_overrides' }),
  values: [[organizationId]],
})

/** The account a row holds; null where the row is not, in every part, what the projector wrote. */
export const sealedState = (row: AccountRow, seal: (text: string) => string): AccountState | null => {
  const state: AccountState = {
    ...initialState(row.organization_id),
    name: row.name,
    registeredAtMs: row.registered_at_ms === null ? null : Number(row.registered_at_ms),
    revision: Number(row.revision),
    digest: row.digest,
    overdraftLimit: BigInt(row.overdraft_limit_micro),
    overdrawn: BigInt(row.overdrawn_micro),
    granted: BigInt(row.granted_micro),
    charged: BigInt(row.charged_micro),
    expired: BigInt(row.expired_micro),
    adjusted: BigInt(row.adjusted_micro),
    lots: new Map(
      row.lots.map((lot) => [
        lot.grant_id,
        {
          grantId: lot.grant_id,
          priority: lot.priority,
          expiresAtMs: lot.expires_at_ms,
          revision: lot.revision,
          granted: BigInt(lot.granted_micro),
          remaining: BigInt(lot.remaining_micro),
        },
      ]),
    ),
    overrides: row.overrides
      .map(({ revision, sku, amount_micro, from_ms }) => ({
        revision,
        sku,
        amount: amount_micro === null ? null : BigInt(amount_micro),
        fromMs: from_ms,
      }))
      .sort((a, b) => a.revision - b.revision),
    written: true,
  }
  return seal(sealedText(state)) === row.seal ? state : null
}

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

/** Every ledger that has a row, registered or not. */
export const allAccounts = (): Query<{ organization_id: string }> => ({
  text: 'select organization_id from accounts',
  values: [],
})

/** Lots that are past their expiry with something left: what the expiry job writes off. */
export const expirableLots = (max: number): Query<{ organization_id: string; grant_id: string }> => ({
  text: `select organization_id, grant_id from account_lots
          where remaining_micro > 0 and expires_at <= now() order by expires_at limit $1`,
  values: [max],
})
