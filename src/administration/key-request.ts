import { durationMsOf, futureInstantOf, UsageError, wholeNumber } from '../cli/command.ts'
import { type Permission, permission } from '../events/capabilities.ts'
import type { KeyLimits } from '../events/keys.ts'
import { allowList } from '../guard/allow-list.ts'
import { graceDaysMax } from '../keys/key-state.ts'

/**
 * What an operator may ask of an API key, as typed on the command line or into a form of the dashboard: one rule for each
 * value, whoever takes it. All throw a UsageError that names the value as the command line does.
 */

/** At least one of the permissions there are, each once. */
export const permissionsOf = (names: readonly string[]): Permission[] => {
  const asked = [...new Set(names)]
  if (asked.length === 0)
    throw new UsageError(`--permissions: name at least one of ${permission.options.join(', ')}`)
  return asked.map((name) => {
    const parsed = permission.safeParse(name)
    if (!parsed.success)
      throw new UsageError(
        `--permissions: there is no permission "${name}"; there are ${permission.options.join(', ')}`,
      )
    return parsed.data
  })
}

/** Comma-separated values, without the white space around them. */
export const listed = (text: string): string[] =>
  text
    .split(',')
    .map((part) => part.trim())
    .filter((part) => part !== '')

const allowedMax = 100

/**
 * Addresses and CIDR blocks, comma-separated. Undefined: any address. A list without any is refused: it would mean any
 * address to us and none to whoever wrote it, from a variable that was empty.
 */
export const allowedCidrsOf = (text: string | undefined): string[] => {
  if (text === undefined) return []
  const cidrs = listed(text)
  if (cidrs.length === 0)
    throw new UsageError(
      '--allow: name an address or a CIDR block such as 203.0.113.0/24; leave it out for any address',
    )
  if (cidrs.length > allowedMax)
    throw new UsageError(`--allow: at most ${allowedMax} blocks; there are ${cidrs.length}`)
  try {
    allowList(cidrs)
  } catch (error) {
    throw new UsageError(`--allow: ${error instanceof Error ? error.message : String(error)}`)
  }
  return cidrs
}

/** Each limit by its parameter's name, with the most it may be. */
const limits = [
  ['requests-per-minute', 'requests_per_minute', 100_000_000],
  ['requests-per-day', 'requests_per_day', 1_000_000_000],
  ['email-validations-per-second', 'email_validations_per_second', 100_000],
] as const satisfies readonly (readonly [string, keyof KeyLimits, number])[]

/** The limits that were given. */
export const limitsOf = (textOf: (name: string) => string | undefined): Partial<KeyLimits> =>
  Object.fromEntries(
    limits.flatMap(([name, member, max]) => {
      const text = textOf(name)
      return text === undefined ? [] : [[member, wholeNumber(name, text, { min: 1, max })]]
    }),
  )

/** Undefined: the key does not expire. */
export const expiryOf = (text: string | undefined): string | null =>
  text === undefined ? null : futureInstantOf('expires-at', text, Date.now())

const dayMs = 86_400_000

/** How long a rotated key works on, in milliseconds. */
export const graceMsOf = (text: string): number => {
  const graceMs = durationMsOf('grace', text)
  if (graceMs > graceDaysMax * dayMs)
    throw new UsageError(`--grace: at most ${graceDaysMax}d; it is ${text.trim()}`)
  return graceMs
}
