import { InputFault } from '../administration/input.ts'
import { apiKeyPrefix, keyIdLength, parseApiKey } from '../keys/api-key.ts'
import { parseTestKey, testKeyPrefix } from '../keys/test-key.ts'

/** Whole keys on the command line: accepted in place of the key's id, and never shown in a message. */

const secretText = /\b(enl_(?:live|test|operator)_[0-9A-Za-z]{1,16})_[0-9A-Za-z]*/g

/** A text in which each key and token is shortened to its id. */
export const withoutSecrets = (text: string): string => text.replace(secretText, '$1_…')

/** The id of a key, given as the whole key, with its prefix, or as its id. Throws `InputFault`, without the secret. */
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
    `no key ends like this one: it is cut off or mistyped; its id, the ${keyIdLength} characters after ${prefix}, is enough`,
  )
}
