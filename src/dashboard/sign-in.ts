import type pg from 'pg'
import { RateLimiterMemory, RateLimiterRes } from 'rate-limiter-flexible'
import { addressBlock } from '../guard/caller-address.ts'
import { passwordMatches } from '../ops/users.ts'

/** Who may sign in: user name and password, and not too many guesses. */

const attemptsPerMinute = 10
/** An actor is `user:<name>` in 128 characters. */
export const userNameMax = 123
export const passwordMax = 1_024

/** Nobody's password. Unknown users are checked against it, so that they take as long as known ones. */
const nobody = `$argon2id$v=19$m=19456,t=2,p=1$${'A'.repeat(22)}$${'A'.repeat(43)}`

export type SignInVerdict =
  | { readonly kind: 'signed_in'; readonly user: string }
  | { readonly kind: 'wrong' }
  | { readonly kind: 'limited'; readonly retryAfterSeconds: number }

export type SignIn = (attempt: {
  readonly name: string
  readonly password: string
  readonly address: string
}) => Promise<SignInVerdict>

/**
 * Attempts count per process, right or wrong, per address and per account. The address is asked first: one address
 * cannot fill the memory with accounts, nor lock out more than ten of them.
 */
export const createSignIn = (pool: pg.Pool): SignIn => {
  const addresses = new RateLimiterMemory({ keyPrefix: 'address', points: attemptsPerMinute, duration: 60 })
  const accounts = new RateLimiterMemory({ keyPrefix: 'account', points: attemptsPerMinute, duration: 60 })
  return async ({ name, password, address }) => {
    const waitSeconds =
      (await take(addresses, addressBlock(address))) ?? (await take(accounts, name.slice(0, userNameMax)))
    if (waitSeconds !== null) return { kind: 'limited', retryAfterSeconds: waitSeconds }
    const possible = name.length <= userNameMax && password.length <= passwordMax
    const { rows } = await pool.query<{ password_phc: string }>(
      'select password_phc from users where name = $1',
      [possible ? name : ''],
    )
    const matches = await passwordMatches(possible ? password : '', rows[0]?.password_phc ?? nobody)
    return matches && rows[0] !== undefined ? { kind: 'signed_in', user: name } : { kind: 'wrong' }
  }
}

/** Null: the attempt may be made. Otherwise the seconds to wait. */
const take = async (limiter: RateLimiterMemory, key: string): Promise<number | null> => {
  try {
    await limiter.consume(key)
    return null
  } catch (error) {
    if (error instanceof RateLimiterRes) return Math.max(1, Math.ceil(error.msBeforeNext / 1_000))
    throw error
  }
}
