import { z } from 'zod'
import { keyedHmac, secretKeyId } from './primitives.ts'

/** The event log format of this release. A release refuses a log with a format that it cannot read. */
export const logFormat = 1

/** The first event of every event log. */
export const installationCreatedV1 = z.object({ format: z.int().positive() })

/**
 * The installation key, wrapped with SECRET_KEY. During a rotation, it is wrapped with two SECRET_KEYs, the newest
 * last. `key_check` never changes for an installation key.
 */
export const installationKeyWrappedV1 = z.object({
  key_check: keyedHmac,
  slots: z
    .array(z.object({ secret_key: secretKeyId, wrapped: z.string().regex(/^[A-Za-z0-9_-]{32,256}$/) }))
    .min(1)
    .max(2),
})
export type InstallationKeyWrapped = z.infer<typeof installationKeyWrappedV1>
