import { type Permission, permission } from '../../events/capabilities.ts'
import type { KeyLimits } from '../../events/keys.ts'
import { allowList } from '../../guard/allow-list.ts'
import { graceDaysMax } from '../../keys/key-state.ts'
import { durationMsOf, futureExpiryOf, InputFault, listOf, wholeNumber } from '../input.ts'

/** The rules for an operator's request of an API key. All throw `InputFault`. */

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
        `there is no permission "${name}"; there are ${permission.options.join(', ')}`,
      )
    return parsed.data
  })
}

const allowedMax = 100

/**
 * Addresses and CIDR blocks, comma-separated. Undefined: any address. An empty list is refused: to us it would mean
 * any address, but a person who wrote it from an empty variable would mean none.
 */
export const allowedCidrsOf = (text: string | undefined): string[] => {
  if (text === undefined) return []
  const cidrs = listOf(text)
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

/** Each limit by its field, with its maximum and its meaning. */
export const limitFields: readonly {
  readonly field: string
  readonly limit: keyof KeyLimits
  readonly max: number
  readonly what: string
}[] = [
  { field: 'requests-per-minute', limit: 'requests_per_minute', max: 100_000_000, what: 'calls a minute' },
  { field: 'requests-per-day', limit: 'requests_per_day', max: 1_000_000_000, what: 'calls a day' },
  {
    field: 'email-validations-per-second',
    limit: 'email_validations_per_second',
    max: 100_000,
    what: 'e-mail validations a second',
  },
]

/** The limits that were given. */
export const limitsOf = (textOf: (field: string) => string | undefined): Partial<KeyLimits> =>
  Object.fromEntries(
    limitFields.flatMap(({ field, limit, max }) => {
      const text = textOf(field)
      return text === undefined ? [] : [[limit, wholeNumber(field, text, { min: 1, max })]]
    }),
  )

/** Undefined: the key does not expire. */
export const expiryOf = (text: string | undefined): string | null =>
  text === undefined ? null : futureExpiryOf('expires-at', text, Date.now())

const dayMs = 86_400_000

/** How long a rotated key stays valid, in milliseconds. */
export const graceMsOf = (text: string): number => {
  const graceMs = durationMsOf('grace', text)
  if (graceMs > graceDaysMax * dayMs)
    throw new InputFault('grace', `at most ${graceDaysMax}d; it is ${text.trim()}`)
  return graceMs
}
