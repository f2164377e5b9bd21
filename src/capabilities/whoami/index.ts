import type pg from 'pg'
import type { Capability } from '../../call/capability.ts'
import type { CapabilityForm } from '../../call/form.ts'
import { type Whoami, whoamiCall } from './contract.ts'
import { decide, type WhoamiFindings } from './decide.ts'
import { gather } from './gather.ts'

/** Whoami: the organization and key behind a call (Spec §4.4). On both hosts, for every valid key, free (decision 1). */
export const whoami: Capability = {
  hosts: ['api', 'dashboard'],
  calls: [whoamiCall],
  open: ({ pool }) => ({ forms: [whoamiForm(pool)] }),
}

const whoamiForm = (pool: pg.Pool): CapabilityForm<null, WhoamiFindings, Whoami> => ({
  ...whoamiCall,
  parse: () => ({ input: null }),
  rehearse: 'own',
  gather: (_input, caller) => gather(pool, caller),
  decide,
})
