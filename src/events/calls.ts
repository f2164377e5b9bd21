import { z } from 'zod'
import { capability, capabilityFacts } from './capabilities.ts'
import { instant, keyedHmac, keyId } from './primitives.ts'

const refusalCode = z.string().regex(/^[A-Z]+_\d{3}$/)

/** A refused call has no facts except the reason for the refusal. The rule `refusal` makes it free. */
const refusalFacts = z.object({ kind: z.literal('refusal'), code: refusalCode })

/** The call repeated the first answer for an Idempotency-Key. */
const replayFacts = z.object({ kind: z.literal('replay') })

/** The facts of a call, by kind. The compiler requires a tariff rule for each kind. */
export const callFacts = z.discriminatedUnion('kind', [replayFacts, refusalFacts, ...capabilityFacts])
export type CallFacts = z.infer<typeof callFacts>

/** `answered`: the answer was 200. `refused`: it was 4xx. `failed`: it was 5xx, but the call could still be recorded. */
export const callOutcome = z.enum(['answered', 'refused', 'failed'])
export type CallOutcome = z.infer<typeof callOutcome>

/**
 * One authenticated call. If it was free, `free_by` is the tariff rule that made it free. Otherwise, a `CreditCharged`
 * event with the rules that priced the call follows immediately.
 */
export const keyUsedV1 = z.object({
  key_id: keyId,
  capability,
  outcome: callOutcome,
  code: z.string().optional(),
  facts: callFacts,
  free_by: z.object({ rule: z.string(), rule_version: z.int().positive() }).optional(),
  /** The caller sent an Idempotency-Key. The event's id is derived from that key instead of the request id. */
  idempotent: z.literal(true).optional(),
  /** A keyed HMAC of the request. The Idempotency-Key can never be used for a different request. */
  request_fingerprint: keyedHmac.optional(),
})

/** The number of calls that a rate limit refused. There is one event for each key, policy and window (decision 24). */
export const rateLimitExceededV1 = z.object({
  key_id: keyId,
  policy: z.enum(['second', 'minute', 'day', 'refused']),
  window: instant,
  count: z.int().positive(),
})
export type RateLimitExceeded = z.infer<typeof rateLimitExceededV1>

/**
 * The number of refused calls of a key in one minute, in addition to those that are recorded individually. There is one
 * event for each key, code and minute. The rule for refusals makes the calls free.
 */
export const callsRefusedV1 = z.object({
  key_id: keyId,
  code: refusalCode,
  outcome: callOutcome.exclude(['answered']),
  window: instant,
  counts: z.array(z.object({ capability, count: z.int().positive() })).min(1),
  free_by: z.object({ rule: z.string(), rule_version: z.int().positive() }),
})
export type CallsRefused = z.infer<typeof callsRefusedV1>

/**
 * Occupies the revision of an append with an unknown outcome, so that the append can never be written. Costs nothing.
 * `request_ids` are the requests in that append.
 */
export const ledgerFencedV1 = z.object({ request_ids: z.array(z.string().min(1).max(64)).max(256) })
