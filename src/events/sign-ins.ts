import { z } from 'zod'
import { instant, keyedHmac, label } from './primitives.ts'

/** Successful and refused sign-ins to the dashboard. An address is stored as a keyed hash: it can be compared, but not read. */

const signInWay = z.enum(['password', 'identity_provider'])
export type SignInWay = z.infer<typeof signInWay>

/** `known_device`: the user had signed in on this device before. */
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
 * The sign-ins that one process has refused since `window`. `user` is null if no such user exists, because the entered
 * name could be a password. `address_hmac` is from the first refusal.
 */
export const signInsRefusedV1 = z.object({
  user: label.nullable(),
  reason: signInRefusal,
  window: instant,
  count: z.int().positive(),
  address_hmac: keyedHmac,
  way: signInWay,
})
