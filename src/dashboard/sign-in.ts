import { type Attempts, createAttempts } from '../administration/attempts.ts'
import type { UserDirectory } from '../administration/users/user-directory.ts'
import { passwordIsRight, passwordMark, userNameMax } from '../administration/users/users.ts'
import type { Foundation } from '../foundation/foundation.ts'
import { addressBlock } from '../guard/caller-address.ts'
import { type Device, type Devices, newDevice } from './devices.ts'

/** Checks user name and password, and limits attempts. */

const attemptsPerMinute = 10
type SignInVerdict =
  | {
      readonly kind: 'signed_in'
      readonly user: string
      /** Identifies the password that the person entered. */
      readonly mark: string
      readonly device: Device
      /** True if the user has signed in on this device before. */
      readonly knownDevice: boolean
    }
  /** `user` is null if no user has that name. The person gets the same answer for a disabled user as for a wrong password. */
  | { readonly kind: 'wrong' | 'disabled'; readonly user: string | null }
  /** Too many attempts. The existence of the user was not checked. */
  | { readonly kind: 'limited'; readonly user: null; readonly retryAfterSeconds: number }

export type SignIn = (attempt: {
  readonly name: string
  readonly password: string
  readonly address: string
  /** The device's cookie; undefined on a new device. */
  readonly device: string | undefined
}) => Promise<SignInVerdict>

/**
 * All processes count attempts together, including successful ones. A device on which this account has signed in before has its own count, so
 * that guesses on other devices do not lock the owner out. Other attempts count per address, and then per account. The address comes first,
 * so that one address cannot use up the attempts of more than ten accounts.
 */
export const createSignIn = (
  foundation: Pick<Foundation, 'pool' | 'secrets'>,
  users: UserDirectory,
  devicesKnown: Devices,
): SignIn => {
  const { pool } = foundation
  const attempts = (what: string): Attempts =>
    createAttempts(foundation, { what, perMinute: attemptsPerMinute })
  const [addresses, accounts, devices] = [attempts('address'), attempts('account'), attempts('device')]
  return async ({ name, password, address, device }) => {
    const account = name.slice(0, userNameMax)
    // The cookie is sealed for one account, so that a forged cookie cannot get a separate limit.
    const known = devicesKnown.open(device, account)
    const waitSeconds =
      known === null
        ? ((await addresses(addressBlock(address))) ?? (await accounts(account)))
        : await devices(known.id)
    if (waitSeconds !== null) return { kind: 'limited', user: null, retryAfterSeconds: waitSeconds }
    // The mark is read first. If the password changes before it is checked, the mark is outdated and no session begins.
    const mark = await passwordMark(pool, name)
    const right = await passwordIsRight(pool, { name, password })
    // Checked even if the password is wrong, so that both cases take the same time.
    const standing = await users.standing(name)
    if (standing.kind === 'refused' && standing.why === 'missing') return { kind: 'wrong', user: null }
    if (!right || mark === null) return { kind: 'wrong', user: name }
    if (standing.kind === 'refused') return { kind: 'disabled', user: name }
    // A known device keeps its id, so that repeated sign-ins do not create more limits.
    return { kind: 'signed_in', user: name, mark, device: known ?? newDevice(), knownDevice: known !== null }
  }
}

/**
 * Limits attempts to type a code. Resolves with the number of seconds to wait, or null. Each device on which this factor was used before has
 * its own count; other attempts count per address and account. `checkSecondFactor` also limits the wrong codes per account and day.
 */
export type CodeAttempts = (attempt: {
  readonly user: string
  readonly address: string
  /** Null if the factor was not used on this device before. */
  readonly provedOn: Device | null
}) => Promise<number | null>

export const createCodeAttempts = (foundation: Pick<Foundation, 'pool' | 'secrets'>): CodeAttempts => {
  const attempts = createAttempts(foundation, { what: 'code', perMinute: attemptsPerMinute })
  return ({ user, address, provedOn }) =>
    attempts(provedOn === null ? `address/${addressBlock(address)}/${user}` : `device/${provedOn.id}`)
}
