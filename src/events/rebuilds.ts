import { z } from 'zod'
import { label, organizationId, uuid } from './primitives.ts'

/** The outcome for projections that were to be rebuilt, or to continue without an event. */

const projection = z.string().max(64)
const position = z.string().regex(/^\d{1,20}$/)

/** `rebuild_id` is the id of the event that requested it. `differences`: figures of money that were wrong in the replaced rows, the first of them. */
export const rebuildEndedV1 = z.object({
  rebuild_id: uuid,
  projections: z.array(projection).min(1),
  result: z.enum(['switched', 'cancelled', 'failed', 'declined']),
  events: z.int().nonnegative(),
  elapsed_ms: z.int().nonnegative(),
  differences: z.int().nonnegative(),
  named: z
    .array(
      z.object({
        projection,
        organization_id: organizationId,
        figure: z.string().max(40),
        live: z.string().max(40).nullable(),
        rebuilt: z.string().max(40).nullable(),
      }),
    )
    .max(20),
})

/** A person decided that the projection continues without this event. */
export const parkedEventReleasedV1 = z.object({
  projection,
  position,
  stream: z.string().max(300),
  reason: label,
})
