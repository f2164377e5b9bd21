import type pg from 'pg'
import { lastUsedOf } from '../../../projections/key-usage.ts'
import type { Capability } from '../../call/capability.ts'
import type { Caller, CapabilityForm } from '../../call/form.ts'
import { unavailableWhenAway } from '../../call/unavailable.ts'
import { rowsOf } from '../../concurrency/query.ts'
import type { Whoami } from './contract.ts'
import { decide, type WhoamiFindings } from './decide.ts'
import { document, whoamiCall } from './document.ts'

const gather = async (pool: pg.Pool, { key, atMs }: Caller): Promise<WhoamiFindings> => {
  const rows = await rowsOf(pool, lastUsedOf(key.keyId)).catch(unavailableWhenAway)
  return { key, lastUsedAt: rows[0]?.last_used_at.toISOString() ?? null, nowMs: atMs }
}

/** Whoami: the organization and key behind a call (Spec §4.4). Available on both hosts for every valid key, and free (decision 1). */
export const whoami: Capability = {
  hosts: ['api', 'dashboard'],
  document,
  open: ({ pool }) => ({ forms: [whoamiForm(pool)] }),
}

const whoamiForm = (pool: pg.Pool): CapabilityForm<null, WhoamiFindings, Whoami> => ({
  ...whoamiCall,
  parse: () => ({ input: null }),
  rehearse: 'own',
  gather: (_input, caller) => gather(pool, caller),
  decide,
})
