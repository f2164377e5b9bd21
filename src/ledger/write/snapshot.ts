import type pg from 'pg'
import type { AccountState } from '../../../projections/account-state.ts'
import type { RowSeal } from '../../../projections/projection.ts'
import { type AccountRow, accountSnapshots, sealedState } from '../../../projections/sealed-account.ts'
import { drawOrder } from '../../billing/lots.ts'
import { createGathering } from '../../concurrency/gathering.ts'
import type { Account } from '../account.ts'
import type { AccountSnapshot } from './reader.ts'

const accountsPerStatement = 64
/** The maximum number of concurrent statements, because other code also needs connections of the pool. */
const statementsUnderWayMax = 2
/** More than the number of accounts that a process keeps in memory. */
const waitingMax = 20_000

/**
 * Reads the account from which folding starts from its projection. Rows without a valid seal are ignored, and the reader compares the
 * account's digest with the ledger.
 *
 * Accounts that are requested at the same time are read with one statement, because a process that starts under load needs many of them.
 */
export const snapshotFrom = (pool: pg.Pool, seal: RowSeal): AccountSnapshot => {
  const rowsOfAccounts = createGathering<string, AccountRow | undefined>({
    run: async (take) => {
      const organizationIds = take()
      const { text, values } = accountSnapshots(organizationIds)
      const { rows } = await pool.query<AccountRow>({
        name: 'account_snapshots',
        text,
        values: [...values],
      })
      const found = new Map(rows.map((row) => [row.organization_id, row]))
      return organizationIds.map((organizationId) => found.get(organizationId))
    },
    batchMax: accountsPerStatement,
    underWayMax: statementsUnderWayMax,
    waitingMax,
    refusal: () => new Error(`${waitingMax} accounts are waiting to be read`),
  })
  return async (organizationId) => {
    const row = await rowsOfAccounts.ask(organizationId)
    if (row === undefined) return null
    const state = sealedState(row, seal)
    return state === null ? 'not sealed' : accountOf(state)
  }
}

const accountOf = (state: AccountState): Account => {
  const overrides: Account['overrides'] = new Map()
  for (const { sku, ...override } of state.overrides)
    overrides.set(
      sku,
      [...(overrides.get(sku) ?? []), override].sort((a, b) => a.fromMs - b.fromMs),
    )
  return {
    organizationId: state.organizationId,
    revision: state.revision,
    digest: state.digest,
    // The row does not contain the recording time. It is set from the last event, which is read before later events are folded.
    recordedAtMs: 0,
    // The rows do not contain these two revisions, but neither can be after the revision of the snapshot.
    adjustedRevision: state.revision,
    reratedRevision: state.revision,
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
