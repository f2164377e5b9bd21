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
    throw new InputFault('permissions', `give at least one of ${permission.options.join(', ')}`)
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

/** Throws `InputFault` for `ledger_read`, because the export of a ledger contains the names of the operator's users. */
export const checkPartnerPermissions = (asked: readonly Permission[]): void => {
  if (asked.includes('ledger_read'))
    throw new InputFault(
      'permissions',
      'only an operator can give ledger_read; ask the operator of the service',
    )
}

const allowedMax = 100

/**
 * Checks addresses and CIDR blocks. An empty list would allow every address. It is refused, because a script can pass an empty
 * variable by mistake.
 */
export const allowedCidrsOf = (cidrs: readonly string[]): readonly string[] => {
  if (cidrs.length === 0)
    throw new InputFault(
      'allow',
      'give an address or a CIDR block such as 203.0.113.0/24, or omit this field to allow any address',
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
  requests_per_minute: {
    label: 'Calls per minute',
    help: 'maximum number of calls per minute',
    max: 100_000_000,
  },
  requests_per_day: { label: 'Calls per day', help: 'maximum number of calls per day', max: 1_000_000_000 },
  email_validations_per_second: {
    label: 'E-mail validations per second',
    help: 'maximum number of e-mail validations per second',
    max: 100_000,
  },
} as const satisfies Record<keyof KeyLimits, FieldWords & { readonly max: number }>

export const limitNames = ['requests_per_minute', 'requests_per_day', 'email_validations_per_second'] as const
