import { randomUUID } from 'node:crypto'
import type { UserDirectory } from '../administration/user-directory.ts'
import { passwordIsRight, passwordMark, userNameMax } from '../administration/users.ts'
import type { Foundation } from '../foundation/foundation.ts'
import { addressBlock } from '../guard/caller-address.ts'
import type { Sealer } from '../guard/secrets.ts'
import { type Attempts, createAttempts } from './attempts.ts'

/** Who may sign in: user name and password, and not too many guesses. */

const attemptsPerMinute = 10
type SignInVerdict =
  | {
      readonly kind: 'signed_in'
      readonly user: string
      /** Of the password that was right. */
      readonly mark: string
      /** What this device sends with its next attempt. */
      readonly device: string
      /** That person had signed in on it before. */
      readonly knownDevice: boolean
    }
  /** `user` null where there is none of that name. To who asks, one who is disabled is a wrong password. */
  | { readonly kind: 'wrong' | 'disabled'; readonly user: string | null }
  /** Whether there is such a user was not asked. */
  | { readonly kind: 'limited'; readonly user: null; readonly retryAfterSeconds: number }

export type SignIn = (attempt: {
  readonly name: string
  readonly password: string
  readonly address: string
  /** What the device was given when a person signed in on it; undefined on one that is new. */
  readonly device: string | undefined
}) => Promise<SignInVerdict>

/**
 * Attempts count in all processes together, right or wrong. Those from a device on which this very account signed in before count for
 * that device alone, so that guesses of others, from wherever they come, do not keep its owner out. All others count per
 * address and per account. The address is asked first: one address cannot fill the table with accounts, nor use up the
 * attempts of more than ten.
 */
export const createSignIn = (
  foundation: Pick<Foundation, 'pool' | 'secrets'>,
  users: UserDirectory,
  sealer: Sealer,
): SignIn => {
  const { pool } = foundation
  const attempts = (what: string): Attempts =>
    createAttempts(foundation, { what, perMinute: attemptsPerMinute })
  const [addresses, accounts, devices] = [attempts('address'), attempts('account'), attempts('device')]
  return async ({ name, password, address, device }) => {
    const account = name.slice(0, userNameMax)
    // A device is known for one account. It is sealed, so no one can make one up and thereby get a limit of their own.
    const known = device === undefined ? null : sealer.open(device, account)
    const waitSeconds =
      known === null
        ? ((await addresses(addressBlock(address))) ?? (await accounts(account)))
        : await devices(known)
    if (waitSeconds !== null) return { kind: 'limited', user: null, retryAfterSeconds: waitSeconds }
    // Before: of a password that is changed in between, the older mark begins no session.
    const mark = await passwordMark(pool, name)
    const right = await passwordIsRight(pool, { name, password })
    // Asked whether the password is right or not, so that both take the same time.
    const standing = await users.standing(name)
    if (standing.kind === 'refused' && standing.why === 'missing') return { kind: 'wrong', user: null }
    if (!right || mark === null) return { kind: 'wrong', user: name }
    if (standing.kind === 'refused') return { kind: 'disabled', user: name }
    // The same device keeps its name: signing in again and again earns no further limits.
    const own = sealer.seal(known ?? randomUUID(), account)
    return { kind: 'signed_in', user: name, mark, device: own, knownDevice: known !== null }
  }
}

/** Codes of a second factor, which come after the right password: as many for each account as passwords. */
export const createCodeAttempts = (foundation: Pick<Foundation, 'pool' | 'secrets'>): Attempts =>
  createAttempts(foundation, { what: 'code', perMinute: attemptsPerMinute })
