import type pg from 'pg'
import { lastUsedOf } from '../../../projections/key-usage.ts'
import type { CapabilityForm } from '../../call/form.ts'
import { unavailableWhenAway } from '../../call/unavailable.ts'
import type { Whoami } from './contract.ts'
import { decide, type WhoamiFindings } from './decide.ts'

/** Whoami: the organization and key behind a call (Spec §4.4). On the dashboard host, for every valid key, free. */
export const whoami = ({ pool }: { pool: pg.Pool }): CapabilityForm<null, WhoamiFindings, Whoami> => ({
  capability: 'whoami',
  permission: null,
  method: 'GET',
  path: '/whoami',
  parse: () => ({ input: null }),
  gather: async (_input, { key, atMs }) => {
    const { text, values } = lastUsedOf(key.keyId)
    const { rows } = await pool.query<{ last_used_at: Date }>(text, [...values]).catch(unavailableWhenAway)
    return { key, lastUsedAt: rows[0]?.last_used_at.toISOString() ?? null, nowMs: atMs }
  },
  decide,
  body: 'flat',
})
