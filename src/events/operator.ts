import { z } from 'zod'
import { label } from './primitives.ts'

/** An operator asked for projections to be rebuilt from the event log. */
export const rebuildRequestedV1 = z.object({ projections: z.array(z.string().max(64)).min(1), reason: label })
export type RebuildRequested = z.infer<typeof rebuildRequestedV1>
