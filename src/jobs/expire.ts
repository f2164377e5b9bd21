import { type ExpirableLotRow, expirableLots } from '../../projections/accounts.ts'
import { uniqueCommandKey } from '../administration/credits.ts'
import type { Foundation } from '../foundation/foundation.ts'

const lotsMax = 1_000
/** Where so many ledgers cannot be written, it is the event log that cannot. */
const failedMax = 20

/**
 * Writes off lots whose expiry has come by the clock of this process. Housekeeping: a lot is worth nothing from its expiry on, written off or not;
 * but statements should say so. A ledger that cannot be written keeps no other one waiting: it is named in what this throws at the
 * end. Returns how many lots were looked at.
 */
export const expireCredits = async (
  { pool, ledger }: Pick<Foundation, 'pool' | 'ledger'>,
  nowMs: number,
): Promise<number> => {
  const { text, values } = expirableLots({ nowMs, max: lotsMax })
  const { rows } = await pool.query<ExpirableLotRow>(text, [...values])
  const failed = new Map<string, unknown>()
  for (const { organization_id, grant_id, expires_at } of rows) {
    if (failed.has(organization_id)) continue
    try {
      await ledger.submit(organization_id, {
        // Of this time: a refund that was given just before the expiry may open the lot again after it was written off.
        key: uniqueCommandKey(`expire/${grant_id}`),
        // It is effective when the lot expired, whenever this job comes by.
        atMs: expires_at.getTime(),
        actor: 'system',
        kind: 'expire',
        grantId: grant_id,
      })
    } catch (error) {
      failed.set(organization_id, error)
      if (failed.size === failedMax) break
    }
  }
  if (failed.size === 0) return rows.length
  const [cause] = failed.values()
  throw new Error(`lots of ${[...failed.keys()].join(', ')} could not be written off`, { cause })
}
