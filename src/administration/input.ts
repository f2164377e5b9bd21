import { type MicroCredits, microPerCredit, parseCredits } from '../billing/money.ts'
import { labelFault, labelMax } from '../events/text.ts'
import { apiKeyPrefix, keyIdLength, parseApiKey } from '../keys/api-key.ts'
import { parseTestKey, testKeyPrefix } from '../keys/test-key.ts'

/**
 * The rules for operators' input, with one function for each kind of value. `field` is the name on the command line and in forms,
 * such as `expires-at`.
 */

/** A value that cannot be accepted. `field` names the field, and `message` describes the fault. */
export class InputFault extends Error {
  override name = 'InputFault'
  readonly field: string
  constructor(field: string, message: string) {
    super(message)
    this.field = field
  }
}

/** The command was typed wrongly. `remedy` describes the correct form. */
export class UsageError extends Error {
  override name = 'UsageError'
  readonly remedy: string | null
  constructor(message: string, remedy: string | null = null) {
    super(message)
    this.remedy = remedy
  }
}

/** A whole number within bounds. */
export const wholeNumber = (
  field: string,
  text: string,
  { min, max }: { min: number; max: number },
): number => {
  const digits = text.trim()
  const value = Number(digits)
  if (!/^\d{1,15}$/.test(digits) || value < min || value > max)
    throw new InputFault(field, `"${text}" is not a whole number from ${min} to ${max}`)
  return value
}

const instantForm = /^(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?)(Z|[+-]\d\d:?\d\d)?)?$/i

/** An instant in UTC, from ISO 8601 text. Text without a time zone is in UTC, regardless of the machine's zone. */
export const instantOf = (field: string, text: string): string => {
  const [, day = '', time = '00:00', zone = 'Z'] = instantForm.exec(text.trim()) ?? []
  const [midnightMs, ms] = [Date.parse(day), Date.parse(`${day}T${time}${zone.toUpperCase()}`)]
  // `Date` parses a day that does not exist as a day of the next month.
  const exists = !Number.isNaN(midnightMs) && new Date(midnightMs).toISOString().startsWith(day)
  const instant = !exists || Number.isNaN(ms) ? '' : new Date(ms).toISOString()
  // The conversion to UTC can result in a year with more than four digits. PostgreSQL has no year 0.
  if (!/^(?!0000)\d{4}-/.test(instant))
    throw new InputFault(field, `"${text}" is not an ISO 8601 instant such as 2027-01-31T00:00:00Z`)
  return instant
}

const dayMs = 86_400_000

/**
 * An expiry in UTC. A day without a time means the last millisecond of the day, so that the expiry is booked in that day's month and year.
 */
export const expiryOf = (field: string, text: string): string => {
  const instant = instantOf(field, text)
  if (!/^\d{4}-\d\d-\d\d$/.test(text.trim())) return instant
  return new Date(Date.parse(instant) + dayMs - 1).toISOString()
}

/** An expiry in the future. */
export const futureExpiryOf = (field: string, text: string, nowMs: number): string => {
  const instant = expiryOf(field, text)
  if (Date.parse(instant) <= nowMs) throw new InputFault(field, `${text} is in the past`)
  return instant
}

/** Text for people, without the white space around it. */
export const labelOf = (field: string, text: string, max = labelMax): string => {
  // The text is checked before it is trimmed, because even a line break at its end is not allowed.
  const fault = labelFault(text, max)
  if (fault !== null) throw new InputFault(field, fault)
  return text.trim()
}

/** A white space other than a single normal space, or an invisible character. */
const unlikeItsLooks = /[^\S ]|(?<= ) |\p{Default_Ignorable_Code_Point}/u

/**
 * A reference. Each reference names one movement of credits, so two different references must not look the same. An ambiguous text is
 * refused and not corrected, because a movement can exist under a reference of an earlier release that contains it.
 */
export const referenceOf = (field: string, text: string): string => {
  const reference = labelOf(field, text)
  const [ambiguous] = unlikeItsLooks.exec(reference) ?? []
  if (ambiguous !== undefined)
    throw new InputFault(
      field,
      `"${reference}" contains ${ambiguous === ' ' ? 'two spaces in a row' : codePointOf(ambiguous)}, so it can look like another reference; type it with single spaces and without invisible characters`,
    )
  if (reference === reference.normalize('NFC')) return reference
  throw new InputFault(
    field,
    `"${reference}" is not in Unicode normal form C, so it can look like another reference; type it instead of copying it`,
  )
}

const codePointOf = (character: string): string =>
  `U+${(character.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, '0')}`

const unitMs: Readonly<Record<string, number>> = { s: 1_000, m: 60_000, h: 3_600_000, d: dayMs }

/** A duration such as 90s, 15m, 24h or 7d, in milliseconds. */
export const durationMsOf = (
  field: string,
  text: string,
  { daysMax }: { readonly daysMax: number },
): number => {
  const [, count, unit = ''] = /^(\d{1,6})([smhd])$/.exec(text.trim()) ?? []
  const unitLength = unitMs[unit]
  if (unitLength === undefined)
    throw new InputFault(field, `"${text}" is not a duration such as 90s, 15m, 24h or 7d`)
  const ms = Number(count) * unitLength
  if (ms > daysMax * dayMs) throw new InputFault(field, `at most ${daysMax}d; it is ${text.trim()}`)
  return ms
}

/** One billion credits, far above any real grant. The integers of the read models can store much larger amounts. */
const amountMax = 1_000_000_000n * microPerCredit

/** A decimal number of credits other than zero. A negative number removes credits; a positive number adds credits. */
export const signedAmountOf = (field: string, text: string): MicroCredits => {
  const negative = text.startsWith('-')
  const amount = unsignedAmountOf(negative ? text.slice(1) : text)
  if (amount === null || amount === 0n)
    throw new InputFault(
      field,
      `"${text}" is not a decimal number of credits, such as 100 or -1.5 (at most 1000000000, with up to 6 decimal places, and not 0)`,
    )
  return negative ? -amount : amount
}

/** A decimal number of credits: positive or, if `zero` is set, zero; at most one billion. */
export const amountOf = (field: string, text: string, { zero }: { zero: boolean }): MicroCredits => {
  const amount = unsignedAmountOf(text)
  if (amount === null || (amount === 0n && !zero))
    throw new InputFault(
      field,
      `"${text}" is not a ${zero ? '' : 'positive '}decimal number of credits, such as 100 or 1.5 (at most 1000000000, with up to 6 decimal places)`,
    )
  return amount
}

/** Null if the text is not a decimal number of credits from zero to one billion. */
const unsignedAmountOf = (text: string): MicroCredits | null => {
  try {
    const amount = parseCredits(text)
    return amount >= 0n && amount <= amountMax ? amount : null
  } catch {
    return null
  }
}

/** Comma-separated values, without the white space around them. */
export const listOf = (text: string): string[] =>
  text
    .split(',')
    .map((part) => part.trim())
    .filter((part) => part !== '')

/** The id of an API key, given as the whole key, as the id with its prefix, or as the id alone. An error does not quote the key. */
export const keyIdOf = (field: string, text: string): string => {
  const given = text.trim()
  const prefix = [apiKeyPrefix, testKeyPrefix].find((one) => given.startsWith(one))
  if (prefix === undefined) return given
  const whole = parseApiKey(given) ?? parseTestKey(given)
  if (whole !== null) return whole.keyId
  const id = given.slice(prefix.length)
  if (id.length === keyIdLength) return id
  throw new InputFault(
    field,
    `the end of this key is not valid, so the key is cut off or mistyped; its id, the ${keyIdLength} characters after ${prefix}, is enough`,
  )
}

/** The name of a price book (`2`) or a proposal (`p3`), as people write it. */
export type PriceName = { readonly kind: 'book' | 'proposal'; readonly number: number }

export const priceNameForm = /^(p?)([1-9]\d{0,8})$/

export const priceNameOf = (field: string, text: string): PriceName => {
  const [, p, digits] = priceNameForm.exec(text.trim()) ?? []
  if (digits === undefined)
    throw new InputFault(field, `"${text}" is neither a version, such as 2, nor a proposal, such as p3`)
  return { kind: p === 'p' ? 'proposal' : 'book', number: Number(digits) }
}
