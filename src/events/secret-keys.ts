import { z } from 'zod'
import { secretKeyId } from './primitives.ts'

/** SECRET_KEY: which is in use, by ids that no one can find the keys by. In the stream of operators. */

/** What a key is used for, and how much is under it. `and_more`: counting ended there. */
const underKey = z.object({
  use: z.string().max(64),
  count: z.int().nonnegative(),
  and_more: z.boolean(),
})

/** Another key is in use from now on. `under_former` is what was under the former one that moment. */
export const secretKeyRotatedV1 = z.object({
  secret_key: secretKeyId,
  former: secretKeyId,
  under_former: z.array(underKey).max(100),
})

/**
 * What can be made anew under the key in use was. `left`: former keys that nothing depends on any more; `kept`: those that
 * something still does.
 */
export const secretsRenewedV1 = z.object({
  secret_key: secretKeyId,
  renewed: z.array(z.object({ use: z.string().max(64), count: z.int().nonnegative() })).max(100),
  left: z.array(secretKeyId).max(16),
  kept: z.array(z.object({ secret_key: secretKeyId, under: z.array(underKey).max(100) })).max(16),
})

/**
 * A former key was given up, with what depended on it: nothing is checked, found or opened under it any more once every process
 * has been started without it.
 */
export const secretKeyGivenUpV1 = z.object({
  secret_key: secretKeyId,
  lost: z.array(z.object({ use: z.string().max(64), count: z.int().nonnegative() })).max(100),
})
