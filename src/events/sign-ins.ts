import { z } from 'zod'
import { instant, keyedHmac, label } from './primitives.ts'

/** Successful and refused sign-ins to the dashboard. An address is a keyed hash: it can be recognized, but not read. */

/** How a person proves their identity: a local password, or a trusted identity provider. */
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
 * Attempts that were refused since `window`, in one process. `user` is null if the user does not exist: the typed name may be
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
