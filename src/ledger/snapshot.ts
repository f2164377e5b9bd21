import type pg from 'pg'
import { type AccountSnapshotRow, accountSnapshot } from '../../projections/accounts.ts'
import { drawOrder } from '../billing/lots.ts'
import type { Account } from './account.ts'
import type { AccountSnapshot } from './commit.ts'

/** Reads an account as its projection has it: where folding a ledger starts. It affects cost, never meaning. */
export const snapshotFrom =
  (pool: pg.Pool): AccountSnapshot =>
  async (organizationId) => {
    const { text, values } = accountSnapshot(organizationId)
    const { rows } = await pool.query<AccountSnapshotRow>(text, [...values])
    return rows[0] === undefined ? null : accountOf(rows[0])
  }

const accountOf = (row: AccountSnapshotRow): Account => {
  const account: Account = {
    organizationId: row.organization_id,
    revision: Number(row.revision),
    digest: row.digest,
    registered: row.registered,
    name: row.name ?? '',
    overdraftLimit: BigInt(row.overdraft_limit_micro),
    overdrawn: BigInt(row.overdrawn_micro),
    lots: row.lots
      .map((lot) => ({
        grantId: lot.grant_id,
        priority: lot.priority,
        expiresAtMs: lot.expires_at_ms ?? Number.POSITIVE_INFINITY,
        revision: lot.revision,
        granted: BigInt(lot.granted_micro),
        remaining: BigInt(lot.remaining_micro),
      }))
      .sort(drawOrder),
    overrides: new Map(),
  }
  for (const { sku, amount_micro, from_ms } of row.overrides) {
    const own = [...(account.overrides.get(sku) ?? [])]
    own.push({ amount: amount_micro === null ? null : BigInt(amount_micro), fromMs: from_ms })
    account.overrides.set(
      sku,
      own.sort((a, b) => a.fromMs - b.fromMs),
    )
  }
  return account
}
