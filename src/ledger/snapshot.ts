import type pg from 'pg'
import type { AccountState } from '../../projections/account-state.ts'
import { type AccountRow, accountSnapshot, sealedState } from '../../projections/sealed-account.ts'
import { drawOrder } from '../billing/lots.ts'
import type { Account } from './account.ts'
import type { AccountSnapshot } from './reader.ts'

/**
 * Reads an account as its projection has it: where folding a ledger starts. It affects cost, never meaning: rows that do
 * not carry the projector's seal are no snapshot, and the fold compares the digest with the ledger's own event.
 */
export const snapshotFrom =
  (pool: pg.Pool, seal: (text: string) => string): AccountSnapshot =>
  async (organizationId) => {
    const { text, values } = accountSnapshot(organizationId)
    const { rows } = await pool.query<AccountRow>(text, [...values])
    if (rows[0] === undefined) return null
    const state = sealedState(rows[0], seal)
    return state === null ? 'not sealed' : accountOf(state)
  }

const accountOf = (state: AccountState): Account => {
  const overrides: Account['overrides'] = new Map()
  for (const { sku, amount, fromMs } of state.overrides)
    overrides.set(
      sku,
      [...(overrides.get(sku) ?? []), { amount, fromMs }].sort((a, b) => a.fromMs - b.fromMs),
    )
  return {
    organizationId: state.organizationId,
    revision: state.revision,
    digest: state.digest,
    registered: state.registeredAtMs !== null,
    name: state.name ?? '',
    overdraftLimit: state.overdraftLimit,
    overdrawn: state.overdrawn,
    lots: [...state.lots.values()]
      .map(({ expiresAtMs, ...lot }) => ({ ...lot, expiresAtMs: expiresAtMs ?? Number.POSITIVE_INFINITY }))
      .sort(drawOrder),
    overrides,
  }
}
