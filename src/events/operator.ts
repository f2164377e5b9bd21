import { z } from 'zod'
import { instant, label, organizationId } from './primitives.ts'

/** An operator asked for projections to be rebuilt from the event log. */
export const rebuildRequestedV1 = z.object({ projections: z.array(z.string().max(64)).min(1), reason: label })

/** The event log takes appends again, after it had refused them to a process since then. */
export const appendsResumedV1 = z.object({ failing_since: instant })

/**
 * An operator knows that the event of this ledger, as its bytes stand at this revision, breaks the chain or the rules:
 * verification names it as known from now on. `digest` is what those bytes give; other bytes are another fault.
 */
export const ledgerFaultAcknowledgedV1 = z.object({
  organization_id: organizationId,
  revision: z.int().nonnegative(),
  digest: z.string().length(43),
  reason: label,
})
