import { z } from 'zod'
import { keyedHmac, secretKeyId } from './primitives.ts'

/** The format in which this release writes an event log. A release that cannot read it refuses the log. */
export const logFormat = 1

/** The first event of every event log. */
export const installationCreatedV1 = z.object({ format: z.int().positive() })

/**
 * The installation key, wrapped with one SECRET_KEY, or with two while SECRET_KEY is being rotated: the newest last. No one can unwrap it
 * without one of them. `key_check` is the same for the same installation key. In a stream of its own.
 */
export const installationKeyWrappedV1 = z.object({
  key_check: keyedHmac,
  slots: z
    .array(z.object({ secret_key: secretKeyId, wrapped: z.string().regex(/^[A-Za-z0-9_-]{32,256}$/) }))
    .min(1)
    .max(2),
})
export type InstallationKeyWrapped = z.infer<typeof installationKeyWrappedV1>
