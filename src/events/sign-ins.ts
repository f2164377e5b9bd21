import { z } from 'zod'
import { instant, keyedHmac, label } from './primitives.ts'

/** Who came in by the dashboard, and who did not. Of an address a keyed hash: the same one is recognized, and none is told. */

/** How a person says who it is: a password of here, or a provider of identities that is trusted with it. */
const signInWay = z.enum(['password', 'identity_provider'])
export type SignInWay = z.infer<typeof signInWay>

/** `known_device`: the user had signed in on it before. */
export const userSignedInV1 = z.object({
  user: label,
  address_hmac: keyedHmac,
  known_device: z.boolean(),
  way: signInWay,
})

export const userSignedOutV1 = z.object({ user: label })

const signInRefusal = z.enum(['wrong', 'disabled', 'limited'])
export type SignInRefusal = z.infer<typeof signInRefusal>

/**
 * Attempts that were refused since `window`, in one process. `user` is null where there is no such user: what was typed may be
 * a password. `address_hmac` is that of the first of them.
 */
export const signInsRefusedV1 = z.object({
  user: label.nullable(),
  reason: signInRefusal,
  window: instant,
  count: z.int().positive(),
  address_hmac: keyedHmac,
  way: signInWay,
})
