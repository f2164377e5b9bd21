import { z } from 'zod'
import { instant, keyedHmac, label, subjectId, uuid } from './primitives.ts'

/**
 * What a profile retrieval established: which person, by an id of ours, and where the data came from. Names,
 * identifiers and addresses of people never enter the event log in the clear (decision 21).
 */
export const profileFacts = z.object({
  kind: z.literal('profile'),
  /** `cached`: data up to 30 days old. `fresh`: at most a minute old. `deleted`: only that the person is gone. */
  source: z.enum(['cached', 'fresh', 'deleted']),
  /** How old the data were when they left. */
  age_seconds: z.int().min(0),
  subject_id: subjectId,
})
export type ProfileFacts = z.infer<typeof profileFacts>

const provider = z.string().regex(/^[a-z_]{1,40}$/)

/** Keyed HMACs of identifiers: what requests are matched by. Which kind each is decides whose answer may be believed. */
const alias = z.object({ kind: z.enum(['lid', 'urn']), hmac: keyedHmac })
const aliases = z.array(alias).min(1).max(32)

/**
 * A provider answered with a person's data. `sealed` is the payload, AES-256-GCM under the key `key_id`, which lives
 * outside the event log: without that key the event says nothing about anybody.
 */
export const profileFetchedV1 = z.object({
  subject_id: subjectId,
  provider,
  /** When the provider saw the data, and when we got them. */
  observed_at: instant,
  fetched_at: instant,
  aliases,
  /** Other identifiers of the same person: no one is found by them, but an erasure must reach them. */
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
 * An identifier led to no one: the provider knows no such person, shows none, or answered with another person
 * (`mismatch`). From then on it leads to no one, until a provider says otherwise.
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
 * A person known before is gone. `gone`: the provider says so itself, and what was cached is dropped. Otherwise it no longer
 * finds or shows them, which is believed for a day.
 */
export const profileGoneV1 = z.object({
  subject_id: subjectId,
  provider,
  reason: z.enum(['gone', 'not_found', 'inaccessible']),
  observed_at: instant,
})
export type ProfileGone = z.infer<typeof profileGoneV1>

/** The keys of everything recorded of a subject until now are destroyed. `request` also suppresses: never again. */
export const profileErasedV1 = z.object({
  subject_id: subjectId,
  reason: z.enum(['request', 'retention', 'merged']),
  erased_at: instant,
  note: label.nullable(),
})
export type ProfileErased = z.infer<typeof profileErasedV1>
