import { type Attempts, createAttempts } from '../administration/attempts.ts'
import type { UserDirectory } from '../administration/users/user-directory.ts'
import { passwordIsRight, passwordMark, userNameMax } from '../administration/users/users.ts'
import type { Foundation } from '../foundation/foundation.ts'
import { addressBlock } from '../guard/caller-address.ts'
import { type Device, type Devices, newDevice } from './devices.ts'

/** Checks user name and password, and limits guesses. */

const attemptsPerMinute = 10
type SignInVerdict =
  | {
      readonly kind: 'signed_in'
      readonly user: string
      /** Mark of the password that was right. */
      readonly mark: string
      readonly device: Device
      /** That person had signed in on it before. */
      readonly knownDevice: boolean
    }
  /** `user` is null if no user has that name. To the person signing in, a disabled user looks the same as a wrong password. */
  | { readonly kind: 'wrong' | 'disabled'; readonly user: string | null }
  /** Whether the user exists was not checked. */
  | { readonly kind: 'limited'; readonly user: null; readonly retryAfterSeconds: number }

export type SignIn = (attempt: {
  readonly name: string
  readonly password: string
  readonly address: string
  /** The device's cookie; undefined on a new device. */
  readonly device: string | undefined
}) => Promise<SignInVerdict>

/**
 * Attempts count in all processes together, right or wrong. Attempts from a device on which this account signed in before count only for
 * that device, so that guesses made elsewhere do not lock its owner out. All others count per
 * address and per account. The address is checked first: one address cannot fill the table with accounts, nor use up the
 * attempts of more than ten.
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
    // A device is known for one account. Its cookie is sealed, so no one can forge one to get a separate limit.
    const known = devicesKnown.open(device, account)
    const waitSeconds =
      known === null
        ? ((await addresses(addressBlock(address))) ?? (await accounts(account)))
        : await devices(known.id)
    if (waitSeconds !== null) return { kind: 'limited', user: null, retryAfterSeconds: waitSeconds }
    // Read first: if the password is changed in between, the older mark begins no session.
    const mark = await passwordMark(pool, name)
    const right = await passwordIsRight(pool, { name, password })
    // Checked whether or not the password is right, so that both take the same time.
    const standing = await users.standing(name)
    if (standing.kind === 'refused' && standing.why === 'missing') return { kind: 'wrong', user: null }
    if (!right || mark === null) return { kind: 'wrong', user: name }
    if (standing.kind === 'refused') return { kind: 'disabled', user: name }
    // The same device keeps its id: repeated sign-ins give no further limits.
    return { kind: 'signed_in', user: name, mark, device: known ?? newDevice(), knownDevice: known !== null }
  }
}

/**
 * Codes of a second factor, which follow the right password. A device on which this factor was proved before has its own
 * count. Others count per address and account: guesses made elsewhere do not use up the owner's attempts. The limit on guessing is
 * the number of wrong codes a day, which `checkSecondFactor` counts per account.
 */
export type CodeAttempts = (attempt: {
  readonly user: string
  readonly address: string
  /** Null: the factor was not proved on this device before. */
  readonly provedOn: Device | null
}) => Promise<number | null>

export const createCodeAttempts = (foundation: Pick<Foundation, 'pool' | 'secrets'>): CodeAttempts => {
  const attempts = createAttempts(foundation, { what: 'code', perMinute: attemptsPerMinute })
  return ({ user, address, provedOn }) =>
    attempts(provedOn === null ? `address/${addressBlock(address)}/${user}` : `device/${provedOn.id}`)
}
