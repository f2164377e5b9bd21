import {
  type AccountState,
  evolve,
  initialState,
  type LotState,
  type OverrideState,
} from './account-state.ts'
import type { Query, RowSeal, StatefulProjection } from './projection.ts'
import { type Change, type RowOf, remove, type Table, upsert } from './rows.ts'
import { type AccountRow, rowsOf, sealedState, sealedText } from './sealed-account.ts'

const accountsTable = {
  name: 'accounts',
  columns: {
    organization_id: 'text not null',
    name: 'text',
    registered_at: 'timestamptz',
    revision: 'bigint not null',
    digest: 'text not null',
    overdraft_limit_micro: 'bigint not null',
    overdrawn_micro: 'bigint not null',
    granted_micro: 'numeric not null',
    charged_micro: 'numeric not null',
    expired_micro: 'numeric not null',
    adjusted_micro: 'numeric not null',
    seal: 'text not null',
  },
  key: ['organization_id'],
} as const satisfies Table

const lotsTable = {
  name: 'account_lots',
  columns: {
    organization_id: 'text not null',
    grant_id: 'uuid not null',
    priority: 'integer not null',
    expires_at: 'timestamptz',
    revision: 'bigint not null',
    granted_micro: 'bigint not null',
    remaining_micro: 'bigint not null check (remaining_micro >= 0)',
  },
  key: ['organization_id', 'grant_id'],
  indexes: ['create index on $table (expires_at) where remaining_micro > 0'],
} as const satisfies Table

const overridesTable = {
  name: 'account_price_overrides',
  columns: {
    organization_id: 'text not null',
    revision: 'bigint not null',
    sku: 'text not null',
    amount_micro: 'bigint',
    effective_from: 'timestamptz not null',
  },
  key: ['organization_id', 'revision'],
} as const satisfies Table

/**
 * Each organization's account at a revision of its ledger. Processes load this account instead of reading the whole ledger, and pages
 * show its balance.
 *
 * A wrong row can only make loading slower. The projector always writes whole rows from the account in its memory, with a seal over
 * all values. If a row does not match its seal, the reader folds the ledger from its start.
 */
export const accounts: StatefulProjection<AccountState, AccountRow> = {
  name: 'accounts',
  version: 1,
  prefixes: ['ledger-'],
  money: true,
  tables: [accountsTable, lotsTable, overridesTable],
  totals: {
    figures: ['balance', 'granted', 'charged', 'expired', 'adjusted'],
    of: (table) => ({
      text: `select a.organization_id, f.figure, f.amount::text as amount
               from ${table('accounts')} a
               left join (select organization_id, sum(remaining_micro) as remaining from ${table('account_lots')} group by 1) l
                    using (organization_id)
               cross join lateral (values ('balance', coalesce(l.remaining, 0) - a.overdrawn_micro), ('granted', a.granted_micro),
                    ('charged', a.charged_micro), ('expired', a.expired_micro), ('adjusted', a.adjusted_micro)) f (figure, amount)`,
      values: [],
    }),
  },
  states: {
    initial: (stream) => initialState(organizationOf(stream)),
    copy: (state) => ({
      ...state,
      lots: new Map(state.lots),
      overrides: [...state.overrides],
      changed: {
        lots: new Map(state.changed.lots),
        overrides: [...state.changed.overrides],
        withdrawn: [...state.changed.withdrawn],
      },
    }),
    evolve,
    write: (states, seal) => changesOf(states, seal),
    written: (state) => {
      state.written = true
      state.changed.lots.clear()
      state.changed.overrides.length = 0
      state.changed.withdrawn.length = 0
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
      if (state === null) return null
      const { organizationId, revision, digest } = state
      return { stream: `ledger-${organizationId}`, revision, digest, state }
    },
  },
}

const organizationOf = (stream: string): string => stream.slice('ledger-'.length)

const changesOf = (states: readonly AccountState[], seal: RowSeal): Change[] => {
  const unknown = states.flatMap(({ written, organizationId }) =>
    written ? [] : { organization_id: organizationId },
  )
  return [
    remove(lotsTable, unknown),
    remove(overridesTable, unknown),
    upsert(
      accountsTable,
      states.map((state) => accountRow(state, seal)),
    ),
    upsert(
      lotsTable,
      states.flatMap(({ organizationId, changed }) =>
        [...changed.lots.values()].map((lot) => lotRow(organizationId, lot)),
      ),
    ),
    upsert(
      overridesTable,
      states.flatMap(({ organizationId, changed }) =>
        changed.overrides.map((override) => overrideRow(organizationId, override)),
      ),
    ),
    remove(
      overridesTable,
      states.flatMap(({ organizationId, changed }) =>
        changed.withdrawn.map((revision) => ({ organization_id: organizationId, revision })),
      ),
    ),
  ]
}

const instant = (ms: number): string => new Date(ms).toISOString()

const accountRow = (state: AccountState, seal: RowSeal): RowOf<typeof accountsTable> => ({
  organization_id: state.organizationId,
  name: state.name,
  registered_at: state.registeredAtMs === null ? null : instant(state.registeredAtMs),
  revision: state.revision,
  digest: state.digest,
  overdraft_limit_micro: state.overdraftLimit,
  overdrawn_micro: state.overdrawn,
  granted_micro: state.granted,
  charged_micro: state.charged,
  expired_micro: state.expired,
  adjusted_micro: state.adjusted,
  seal: seal.of(sealedText(state)),
})

const lotRow = (organizationId: string, lot: LotState): RowOf<typeof lotsTable> => ({
  organization_id: organizationId,
  grant_id: lot.grantId,
  priority: lot.priority,
  expires_at: lot.expiresAtMs === null ? null : instant(lot.expiresAtMs),
  revision: lot.revision,
  granted_micro: lot.granted,
  remaining_micro: lot.remaining,
})

const overrideRow = (
  organizationId: string,
  { revision, sku, amount, fromMs }: OverrideState,
): RowOf<typeof overridesTable> => ({
  organization_id: organizationId,
  revision,
  sku,
  amount_micro: amount,
  effective_from: instant(fromMs),
})

/** The organizations that have or had their own prices. */
export const allOverridden = (): Query<{ organization_id: string }> => ({
  text: 'select distinct organization_id from account_price_overrides order by organization_id',
  values: [],
})

/** Every ledger with a row, whether or not its organization is registered. */
export const allAccounts = (): Query<{ organization_id: string }> => ({
  text: 'select organization_id from accounts',
  values: [],
})

type ExpirableLotRow = { organization_id: string; grant_id: string; expires_at: Date }

/**
 * The lots that have expired by `nowMs` and are not empty, for the job that writes them off. The oldest lot of each organization comes
 * first, in random order, so that organizations whose ledgers cannot be written do not delay the others.
 */
export const expirableLots = ({ nowMs, max }: { nowMs: number; max: number }): Query<ExpirableLotRow> => ({
  text: `select organization_id, grant_id, expires_at from (
           select organization_id, grant_id, expires_at,
                  row_number() over (partition by organization_id order by expires_at, grant_id) as nth
             from account_lots where remaining_micro > 0 and expires_at <= $1) expired
          order by nth, random() limit $2`,
  values: [new Date(nowMs), max],
})
