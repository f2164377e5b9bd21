import { expirableLots } from '../../projections/accounts.ts'
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
  const { rows } = await pool.query<{ organization_id: string; grant_id: string }>(text, [...values])
  for (const { organization_id, grant_id } of rows) {
    await ledger.submit(organization_id, {
      key: `expire/${grant_id}`,
      atMs: Date.now(),
      actor: 'system',
      kind: 'expire',
      grantId: grant_id,
    })
  }
  return rows.length
}
