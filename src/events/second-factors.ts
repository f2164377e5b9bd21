import { z } from 'zod'
import { instant, keyedHmac, label } from './primitives.ts'

/**
 * Second factors of people who sign in to the dashboard. No secret and no code is in any event; `factor_id` and `codes_id` name what is
 * kept under them. `user_created_at` tells a user from a later one of the same name.
 */

const ulidText = z.string().regex(/^[0-9A-HJKMNP-TV-Z]{26}$/)

const factor = z.object({ user: label, user_created_at: instant, factor_id: ulidText })

export const recoveryCodesCount = 10

/** From now on the user signs in with password and a code. */
export const secondFactorSetV1 = factor.extend({ codes_id: ulidText })

/** The password alone is enough again. `reason` is null where the person did it. */
export const secondFactorRemovedV1 = factor.extend({ reason: label.nullable() })

/** Recovery codes of before open nothing any more. */
export const recoveryCodesRenewedV1 = factor.extend({ codes_id: ulidText })

/** `code` is the place of the code in its list: it opens nothing any more. */
export const recoveryCodeUsedV1 = factor.extend({
  codes_id: ulidText,
  code: z.int().min(1).max(recoveryCodesCount),
})

/**
 * `used`: a code that was right and had been used. `limited`: there were too many wrong ones. `broken`: what is kept of the factor is
 * missing or cannot be opened.
 */
const secondFactorRefusal = z.enum(['wrong', 'used', 'limited', 'broken'])
export type SecondFactorRefusal = z.infer<typeof secondFactorRefusal>

/** Codes that were refused since `window`, in one process, after the right password. `address_hmac` is that of the first of them. */
export const secondFactorsRefusedV1 = z.object({
  user: label,
  reason: secondFactorRefusal,
  window: instant,
  count: z.int().positive(),
  address_hmac: keyedHmac,
})
