import { z } from 'zod'
import { capability, capabilityFacts } from './capabilities.ts'
import { instant, keyedHmac, keyId } from './primitives.ts'

const refusalCode = z.string().regex(/^[A-Z]+_\d{3}$/)

/** A refused call establishes only the reason for the refusal. It is free by rule `refusal`. */
const refusalFacts = z.object({ kind: z.literal('refusal'), code: refusalCode })

/** The first answer of an Idempotency-Key was sent again. */
const replayFacts = z.object({ kind: z.literal('replay') })

/** Everything a call can have established, by kind. The compiler requires a tariff rule for each. */
export const callFacts = z.discriminatedUnion('kind', [replayFacts, refusalFacts, ...capabilityFacts])
export type CallFacts = z.infer<typeof callFacts>

/** `answered`: a 200 was sent. `refused`: a 4xx. `failed`: a 5xx although the event log could be written. */
export const callOutcome = z.enum(['answered', 'refused', 'failed'])
export type CallOutcome = z.infer<typeof callOutcome>

/**
 * One authenticated call. When it cost nothing, `free_by` names the tariff rule that made it free; when it cost
 * something, the `CreditCharged` right after it names the rules that priced it.
 */
export const keyUsedV1 = z.object({
  key_id: keyId,
  capability,
  outcome: callOutcome,
  code: z.string().optional(),
  facts: callFacts,
  free_by: z.object({ rule: z.string(), rule_version: z.int().positive() }).optional(),
  /** The caller sent an Idempotency-Key: the event's id derives from that instead of the request id. */
  idempotent: z.literal(true).optional(),
  /** Keyed HMAC of the request that used the Idempotency-Key: the key belongs to that request forever. */
  request_fingerprint: keyedHmac.optional(),
})

/** Calls refused by a rate limit: one event per key, policy and window for any number of calls (decision 24). */
export const rateLimitExceededV1 = z.object({
  key_id: keyId,
  policy: z.enum(['second', 'minute', 'day', 'refused']),
  window: instant,
  count: z.int().positive(),
})
export type RateLimitExceeded = z.infer<typeof rateLimitExceededV1>

/**
 * A key's refused calls of a minute, beyond those that are recorded one by one: one event per key, code and minute
 * for any number of calls. Free, by the rule for every refusal.
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
 * Takes the place in the ledger of an append with an unknown outcome, so that the append can never be written. Costs nothing.
 * `request_ids` names the requests of that append.
 */
export const ledgerFencedV1 = z.object({ request_ids: z.array(z.string().min(1).max(64)).max(256) })
