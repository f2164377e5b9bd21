import { z } from 'zod'
import { instant, keyedHmac, label, subjectId, uuid } from './primitives.ts'

/**
 * Facts of a profile retrieval: the person, by an id of ours, and the source of the data. Names,
 * identifiers and addresses of people never enter the event log in the clear (decision 21).
 */
export const profileFacts = z.object({
  kind: z.literal('profile'),
  /** `cached`: data up to 30 days old. `fresh`: at most a minute old. `deleted`: only that the person no longer exists. */
  source: z.enum(['cached', 'fresh', 'deleted']),
  /** The age of the data when they were sent. */
  age_seconds: z.int().min(0),
  subject_id: subjectId,
})
export type ProfileFacts = z.infer<typeof profileFacts>

const provider = z.string().regex(/^[a-z_]{1,40}$/)

/** Keyed HMACs of identifiers, which requests are matched by. The kind decides whose answer may be trusted. */
const alias = z.object({ kind: z.enum(['lid', 'urn']), hmac: keyedHmac })
const aliases = z.array(alias).min(1).max(32)

/**
 * A provider answered with a person's data. `sealed` is the payload, AES-256-GCM under the key `key_id`, which lives
 * outside the event log: without that key the event reveals nothing about anyone.
 */
export const profileFetchedV1 = z.object({
  subject_id: subjectId,
  provider,
  /** When the provider saw the data, and when we got them. */
  observed_at: instant,
  fetched_at: instant,
  aliases,
  /** Other identifiers of the same person: they find no person, but an erasure must reach them. */
  former_aliases: z.array(alias).max(64),
  key_id: uuid,
  /** base64url of nonce, ciphertext and tag. */
  sealed: z
    .string()
    .regex(/^[A-Za-z0-9_-]+$/)
    .max(1_000_000),
})
export type ProfileFetched = z.infer<typeof profileFetchedV1>

/**
 * An identifier found no one: the provider does not know the person, does not show them, or answered with another person
 * (`mismatch`). From then on it finds no one, until a provider answers otherwise.
 */
export const profileMissedV1 = z.object({
  subject_id: subjectId,
  provider,
  reason: z.enum(['not_found', 'inaccessible', 'mismatch']),
  observed_at: instant,
  aliases,
})
export type ProfileMissed = z.infer<typeof profileMissedV1>

/**
 * A person known before no longer exists. `gone`: the provider reports it, and cached data is dropped. Otherwise the provider no longer
 * finds or shows them, which is trusted for a day.
 */
export const profileGoneV1 = z.object({
  subject_id: subjectId,
  provider,
  reason: z.enum(['gone', 'not_found', 'inaccessible']),
  observed_at: instant,
})
export type ProfileGone = z.infer<typeof profileGoneV1>

/** The keys of everything recorded about a subject until now are destroyed. `request` also suppresses the person forever. */
export const profileErasedV1 = z.object({
  subject_id: subjectId,
  reason: z.enum(['request', 'retention', 'merged']),
  erased_at: instant,
  note: label.nullable(),
})
export type ProfileErased = z.infer<typeof profileErasedV1>
