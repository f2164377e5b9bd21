import { z } from 'zod'
import { instant, keyedHmac, label } from './primitives.ts'

/**
 * Second factors for signing in to the dashboard. Events contain no secrets or codes; `factor_id` and `codes_id` refer
 * to the rows that do. `user_created_at` distinguishes a user from a later user with the same name.
 */

const ulidText = z.string().regex(/^[0-9A-HJKMNP-TV-Z]{26}$/)

const factor = z.object({ user: label, user_created_at: instant, factor_id: ulidText })

export const recoveryCodesCount = 10

/** From now on, the user signs in with a password and a code. */
export const secondFactorSetV1 = factor.extend({ codes_id: ulidText })

/** The user signs in with only the password again. `reason` is null if the user removed the factor. */
export const secondFactorRemovedV1 = factor.extend({ reason: label.nullable() })

/** The user has new recovery codes. The previous ones are no longer valid. */
export const recoveryCodesRenewedV1 = factor.extend({ codes_id: ulidText })

/** A recovery code was used, so it is no longer valid. `code` is its index in the list. */
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

/** The codes that one process has refused since `window`, after a correct password. `address_hmac` is from the first refusal. */
export const secondFactorsRefusedV1 = z.object({
  user: label,
  reason: secondFactorRefusal,
  window: instant,
  count: z.int().positive(),
  address_hmac: keyedHmac,
})
