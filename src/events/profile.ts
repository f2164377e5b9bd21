import { z } from 'zod'
import { instant, keyedHmac, label, subjectId, uuid } from './primitives.ts'

/**
 * The facts of a profile retrieval: the subject id of the person, and the source of the data. The event log never
 * contains names, identifiers or addresses of people in plain text (decision 21).
 */
export const profileFacts = z.object({
  kind: z.literal('profile'),
  /** `cached`: data up to 30 days old. `fresh`: data at most a minute old. `deleted`: the person no longer exists. */
  source: z.enum(['cached', 'fresh', 'deleted']),
  /** The age of the data when it was sent. */
  age_seconds: z.int().min(0),
  subject_id: subjectId,
})
export type ProfileFacts = z.infer<typeof profileFacts>

const provider = z.string().regex(/^[a-z_]{1,40}$/)

/** The keyed HMAC of an identifier, which identifies requests for the same person. The kind determines which providers' answers are trusted. */
const alias = z.object({ kind: z.enum(['lid', 'urn']), hmac: keyedHmac })
const aliases = z.array(alias).min(1).max(32)

/**
 * A provider answered with a person's data. `sealed` is the payload, encrypted with AES-256-GCM under the key `key_id`.
 * That key is stored outside the event log. Without it, the event reveals nothing about the person.
 */
export const profileFetchedV1 = z.object({
  subject_id: subjectId,
  provider,
  /** When the provider saw the data, and when we received it. */
  observed_at: instant,
  fetched_at: instant,
  aliases,
  /** Previous identifiers of the same person. Requests for them find no one, but an erasure must include them. */
  former_aliases: z.array(alias).max(64),
  key_id: uuid,
  /** The nonce, ciphertext and tag in base64url. */
  sealed: z
    .string()
    .regex(/^[A-Za-z0-9_-]+$/)
    .max(1_000_000),
})
export type ProfileFetched = z.infer<typeof profileFetchedV1>

/**
 * No one was found for an identifier: the provider does not have the person, does not show the person, or answered with
 * another person (`mismatch`). This result is valid until a provider gives a different answer.
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
 * A known person no longer exists. `gone`: the provider says so, and cached data is deleted. The other reasons mean that the provider no
 * longer finds or shows the person. They are trusted for a day.
 */
export const profileGoneV1 = z.object({
  subject_id: subjectId,
  provider,
  reason: z.enum(['gone', 'not_found', 'inaccessible']),
  observed_at: instant,
})
export type ProfileGone = z.infer<typeof profileGoneV1>

/** All keys for data about the subject are destroyed. With the reason `request`, the person is also suppressed forever. */
export const profileErasedV1 = z.object({
  subject_id: subjectId,
  reason: z.enum(['request', 'retention', 'merged']),
  erased_at: instant,
  note: label.nullable(),
})
export type ProfileErased = z.infer<typeof profileErasedV1>
