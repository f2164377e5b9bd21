import { z } from 'zod'
import { instant, uuid } from './primitives.ts'

/**
 * What accompanies every event. The organization is in the stream name of a ledger and in the data elsewhere, the
 * event id is the event log's own; neither is repeated here.
 *
 * `digest` is the hash chain of ledger streams and always the last member: it covers every byte before it.
 */
export const eventMetadata = z.object({
  schema_version: z.int().positive(),
  /** The call, or the operator's command, that caused the event. */
  request_id: z.string().min(1).max(64).optional(),
  /** The event that caused this one: a charge names its fact. */
  causation_id: uuid.optional(),
  /** `key:<key_id>`, `user:<name>`, `cli` or `system`. */
  actor: z.string().min(1).max(128),
  /** When it happened to the partner; when it was recorded is the event log's own stamp. */
  effective_at: instant,
  digest: z.string().length(43).optional(),
})
export type EventMetadata = z.infer<typeof eventMetadata>
