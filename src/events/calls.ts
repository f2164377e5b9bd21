import { z } from 'zod'
import { capability, capabilityFacts } from './capabilities.ts'
import { instant, keyedHmac, keyId } from './primitives.ts'

const refusalCode = z.string().regex(/^[A-Z]+_\d{3}$/)

/** A refused call establishes only the reason for the refusal. The rule `refusal` makes it free. */
const refusalFacts = z.object({ kind: z.literal('refusal'), code: refusalCode })

/** The first answer for an Idempotency-Key was sent again. */
const replayFacts = z.object({ kind: z.literal('replay') })

/** Everything that a call can establish, by kind. The compiler requires a tariff rule for each kind. */
export const callFacts = z.discriminatedUnion('kind', [replayFacts, refusalFacts, ...capabilityFacts])
export type CallFacts = z.infer<typeof callFacts>

/** `answered`: a 200 was sent. `refused`: a 4xx was sent. `failed`: a 5xx was sent, but the event log could be written. */
export const callOutcome = z.enum(['answered', 'refused', 'failed'])
export type CallOutcome = z.infer<typeof callOutcome>

/**
 * One authenticated call. If it was free, `free_by` names the tariff rule that made it free. Otherwise, the
 * `CreditCharged` right after it names the rules that priced it.
 */
export const keyUsedV1 = z.object({
  key_id: keyId,
  capability,
  outcome: callOutcome,
  code: z.string().optional(),
  facts: callFacts,
  free_by: z.object({ rule: z.string(), rule_version: z.int().positive() }).optional(),
  /** The caller sent an Idempotency-Key, and the event's id derives from the Idempotency-Key instead of the request id. */
  idempotent: z.literal(true).optional(),
  /** A keyed HMAC of the request that used the Idempotency-Key. The Idempotency-Key belongs to that request forever. */
  request_fingerprint: keyedHmac.optional(),
})

/** Counts the calls that a rate limit refused, in one event for each key, policy and window (decision 24). */
export const rateLimitExceededV1 = z.object({
  key_id: keyId,
  policy: z.enum(['second', 'minute', 'day', 'refused']),
  window: instant,
  count: z.int().positive(),
})
export type RateLimitExceeded = z.infer<typeof rateLimitExceededV1>

/**
 * Counts a key's refused calls in one minute, beyond those that are recorded individually, in one event for each key,
 * code and minute. The rule for refusals makes them free.
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
 * Takes the place of an append with an unknown outcome, so that the append can never be written. Costs nothing.
 * `request_ids` names the requests in that append.
 */
export const ledgerFencedV1 = z.object({ request_ids: z.array(z.string().min(1).max(64)).max(256) })
