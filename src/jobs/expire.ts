import { type ExpirableLotRow, expirableLots } from '../../projections/accounts.ts'
import { uniqueCommandKey } from '../administration/credits.ts'
import type { Foundation } from '../foundation/foundation.ts'

const organizationsMax = 1_000

/**
 * Writes off lots whose expiry has come. Housekeeping: a lot is worth nothing from its expiry on, written off or not;
 * but statements should say so. Returns how many organizations were looked at.
 */
export const expireCredits = async ({
  pool,
  ledger,
}: Pick<Foundation, 'pool' | 'ledger'>): Promise<number> => {
  const { text, values } = expirableLots(organizationsMax)
  const { rows } = await pool.query<ExpirableLotRow>(text, [...values])
  for (const { organization_id, grant_id, expires_at } of rows) {
    await ledger.submit(organization_id, {
      // Of this time: a refund that was given just before the expiry may open the lot again after it was written off.
      key: uniqueCommandKey(`expire/${grant_id}`),
      // It is effective when the lot expired, whenever this job comes by.
      atMs: expires_at.getTime(),
      actor: 'system',
      kind: 'expire',
      grantId: grant_id,
    })
  }
  return rows.length
}
