import type pg from 'pg'
import type { Capability } from '../../call/capability.ts'
import type { CapabilityForm } from '../../call/form.ts'
import type { Whoami } from './contract.ts'
import { decide, type WhoamiFindings } from './decide.ts'
import { gather } from './gather.ts'

/** Whoami: the organization and key behind a call (Spec §4.4). On the dashboard host, for every valid key, free. */
export const whoami: Capability = {
  host: 'dashboard',
  open: ({ pool }) => ({ forms: [whoamiForm(pool)] }),
}

const whoamiForm = (pool: pg.Pool): CapabilityForm<null, WhoamiFindings, Whoami> => ({
  capability: 'whoami',
  permission: null,
  method: 'GET',
  path: '/whoami',
  parse: () => ({ input: null }),
  gather: (_input, caller) => gather(pool, caller),
  decide,
  body: 'flat',
})
