import { z } from 'zod'
import { instant, traceId, uuid } from './primitives.ts'

/**
 * The metadata of every event. It does not contain the event id and the organization, which are stored with the event
 * and in the stream's name.
 *
 * `recorded_at` and `digest` are added when the event is chained to the previous one in its stream. `digest` is always
 * the last member, and covers every byte before it.
 */
export const eventMetadata = z.object({
  schema_version: z.int().positive(),
  /** The id of the call or the operator's command that caused the event. */
  request_id: z.string().min(1).max(64).optional(),
  /** The id of the event that caused this one. For a charge, this is the event of the call. */
  causation_id: uuid.optional(),
  /** The request id of an earlier call with the same Idempotency-Key, whose answer this call repeated. */
  repeats: z.string().min(1).max(64).optional(),
  /** The trace id from the partner's request (W3C Trace Context), unverified. */
  trace_id: traceId.optional(),
  /** `key:<key_id>`; `user:<name>` for an authenticated person; `cli` or `cli:<label>`, which anyone can type; or `system`. */
  actor: z.string().min(1).max(128),
  /** The time that applies to billing. It determines, for example, the price and the month. */
  effective_at: instant,
  /**
   * The time of the append by the writer's clock, but never earlier than that of the previous event in the stream. A copied log keeps this
   * time.
   */
  recorded_at: instant,
  digest: z.string().length(43),
})
export type EventMetadata = z.infer<typeof eventMetadata>
