import { z } from 'zod'
import { instant, keyedHmac, label } from './primitives.ts'

/**
 * Second factors for signing in to the dashboard. Events contain no secrets or codes; `factor_id` and `codes_id` name
 * where these are stored. `user_created_at` distinguishes a user from a later user with the same name.
 */

const ulidText = z.string().regex(/^[0-9A-HJKMNP-TV-Z]{26}$/)

const factor = z.object({ user: label, user_created_at: instant, factor_id: ulidText })

export const recoveryCodesCount = 10

/** From now on, the user signs in with a password and a code. */
export const secondFactorSetV1 = factor.extend({ codes_id: ulidText })

/** The user signs in with the password alone again. `reason` is null if the user removed the factor. */
export const secondFactorRemovedV1 = factor.extend({ reason: label.nullable() })

/** Previous recovery codes are no longer valid. */
export const recoveryCodesRenewedV1 = factor.extend({ codes_id: ulidText })

/** `code` is the index of the used code in the list. The code can no longer be used. */
export const recoveryCodeUsedV1 = factor.extend({
  codes_id: ulidText,
  code: z.int().min(1).max(recoveryCodesCount),
})

/**
 * `used`: a correct code that had been used before. `limited`: there were too many wrong codes. `broken`: the stored factor is
 * missing or cannot be opened.
 */
const secondFactorRefusal = z.enum(['wrong', 'used', 'limited', 'broken'])
export type SecondFactorRefusal = z.infer<typeof secondFactorRefusal>

/** Counts codes that one process has refused since `window`, each after a correct password. `address_hmac` belongs to the first refusal. */
export const secondFactorsRefusedV1 = z.object({
  user: label,
  reason: secondFactorRefusal,
  window: instant,
  count: z.int().positive(),
  address_hmac: keyedHmac,
})
