import type pg from 'pg'
import { lastUsedOf } from '../../../projections/key-usage.ts'
import type { Caller } from '../../call/form.ts'
import { unavailableWhenAway } from '../../call/unavailable.ts'
import type { WhoamiFindings } from './decide.ts'

/** When the caller's key was last used, as far as the read model knows. */
export const gather = async (pool: pg.Pool, { key, atMs }: Caller): Promise<WhoamiFindings> => {
  const { text, values } = lastUsedOf(key.keyId)
  const { rows } = await pool.query<{ last_used_at: Date }>(text, [...values]).catch(unavailableWhenAway)
  return { key, lastUsedAt: rows[0]?.last_used_at.toISOString() ?? null, nowMs: atMs }
}
