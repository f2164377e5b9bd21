import { z } from 'zod'
import { instant, traceId, uuid } from './primitives.ts'

/**
 * The envelope of every event. The organization is in the stream name of a ledger and in the data elsewhere, the
 * event id is the event log's own; neither is repeated here.
 *
 * `recorded_at` and `digest` are added when the event is chained to the one before it in its stream. `digest` is always the
 * last member and covers every byte before it.
 */
export const eventMetadata = z.object({
  schema_version: z.int().positive(),
  /** The call, or the operator's command, that caused the event. */
  request_id: z.string().min(1).max(64).optional(),
  /** The event that caused this one: a charge names its fact. */
  causation_id: uuid.optional(),
  /** The request id of an earlier call with the same Idempotency-Key, whose answer this call received again. */
  repeats: z.string().min(1).max(64).optional(),
  /** The trace of the partner's request, if it named one (W3C Trace Context): claimed by the partner, not proved. */
  trace_id: traceId.optional(),
  /** `key:<key_id>`; `user:<name>`, an authenticated person; `cli` or `cli:<label>`, typed by anyone; or `system`. */
  actor: z.string().min(1).max(128),
  /** When it happened to the partner. */
  effective_at: instant,
  /** The writer's clock at the append, never before that of the stream's event before it: copied logs keep it. */
  recorded_at: instant,
  digest: z.string().length(43),
})
export type EventMetadata = z.infer<typeof eventMetadata>
