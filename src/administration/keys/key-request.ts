import { type Permission, permission } from '../../events/capabilities.ts'
import type { KeyLimits } from '../../events/keys.ts'
import { allowList } from '../../guard/allow-list.ts'
import type { FieldWords } from '../fields.ts'
import { InputFault } from '../input.ts'

/** The rules for an operator's request for an API key. All throw `InputFault`. */

/** The default permissions of a key: all except exporting the whole ledger, which includes operators' names. */
export const permissionsByDefault = permission.options.filter((one) => one !== 'ledger_read')

/** At least one of the existing permissions, each once. */
export const permissionsOf = (names: readonly string[]): Permission[] => {
  const asked = [...new Set(names)]
  if (asked.length === 0)
    throw new InputFault('permissions', `name at least one of ${permission.options.join(', ')}`)
  return asked.map((name) => {
    const parsed = permission.safeParse(name)
    if (!parsed.success)
      throw new InputFault(
        'permissions',
        `there is no permission "${name}"; the permissions are ${permission.options.join(', ')}`,
      )
    return parsed.data
  })
}

/** The export of a ledger names people of the operator, so only an operator may permit it. Throws `InputFault`. */
export const checkPartnerPermissions = (asked: readonly Permission[]): void => {
  if (asked.includes('ledger_read'))
    throw new InputFault(
      'permissions',
      'only an operator can give ledger_read; ask the operator of the service',
    )
}

const allowedMax = 100

/**
 * Checks addresses and CIDR blocks. An empty list is refused: it would allow every address, but someone whose script passes an
 * empty variable does not expect that.
 */
export const allowedCidrsOf = (cidrs: readonly string[]): readonly string[] => {
  if (cidrs.length === 0)
    throw new InputFault(
      'allow',
      'name an address or a CIDR block such as 203.0.113.0/24; leave it out for any address',
    )
  if (cidrs.length > allowedMax)
    throw new InputFault('allow', `at most ${allowedMax} blocks; there are ${cidrs.length}`)
  try {
    allowList(cidrs)
  } catch (error) {
    throw new InputFault('allow', error instanceof Error ? error.message : String(error))
  }
  return cidrs
}

export const limitWords = {
  requests_per_minute: { label: 'Calls a minute', help: 'calls a minute, at most', max: 100_000_000 },
  requests_per_day: { label: 'Calls a day', help: 'calls a day, at most', max: 1_000_000_000 },
  email_validations_per_second: {
    label: 'E-mail validations a second',
    help: 'e-mail validations a second, at most',
    max: 100_000,
  },
} as const satisfies Record<keyof KeyLimits, FieldWords & { readonly max: number }>

export const limitNames = ['requests_per_minute', 'requests_per_day', 'email_validations_per_second'] as const
