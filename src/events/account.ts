import { z } from 'zod'

/** A partner looked at its own account. It establishes nothing beyond what was looked at. */
export const accountFacts = z.object({
  kind: z.literal('account'),
  view: z.enum(['balance', 'usage', 'call', 'receipt']),
})

/** A partner took its own ledger away, from one revision through another; `through_revision` before `from_revision`: nothing. */
export const ledgerExportFacts = z.object({
  kind: z.literal('ledger_export'),
  from_revision: z.int().nonnegative(),
  through_revision: z.int().min(-1),
})
