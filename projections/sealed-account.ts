import { type AccountState, initialState } from './account-state.ts'
import type { Query, RowSeal } from './projection.ts'

/**
 * Reads the rows of an account. The seal is a keyed hash over all values in these rows. It shows whether someone other than the
 * projector has changed a row.
 */

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

/** SQL that selects the accounts of `$1` from a single snapshot, each as one row with its lots and price overrides. */
export const rowsOf = (table: { accounts: string; lots: string; overrides: string }): string => `
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

/** The accounts of ledgers, each as one row with its lots and price overrides. Returns no row for an unknown ledger. */
export const accountSnapshots = (organizationIds: readonly string[]): Query<AccountRow> => ({
  text: rowsOf({ accounts: 'accounts', lots: 'account_lots', overrides: 'account_price_overrides' }),
  values: [organizationIds],
})

/** All values of an account that readers use, as one string that does not depend on the order of rows. */
export const sealedText = (state: AccountState): string =>
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
    ].map(String),
    [...state.lots.values()]
      .sort((a, b) => a.revision - b.revision)
      .map((lot) => [
        lot.grantId,
        lot.priority,
        lot.expiresAtMs,
        lot.revision,
        String(lot.granted),
        String(lot.remaining),
      ]),
    [...state.overrides]
      .sort((a, b) => a.revision - b.revision)
      .map(({ revision, sku, amount, fromMs }) => [
        revision,
        sku,
        amount === null ? null : String(amount),
        fromMs,
      ]),
  ])

/** The account in a row, or null if the row was changed since the projector wrote it. */
export const sealedState = (row: AccountRow, seal: RowSeal): AccountState | null => {
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
  return seal.fits(sealedText(state), row.seal) ? state : null
}
