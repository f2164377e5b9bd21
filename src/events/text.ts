/**
 * The rule for all text that people enter. Other text could not be stored, because PostgreSQL does not accept U+0000 and
 * UTF-8 cannot represent a lone surrogate, or would be displayed differently from how it was entered.
 */

/** The maximum length in UTF-16 units, which browsers and event schemas count too. */
export const labelMax = 200

const faults = [
  [/\p{Cc}/u, 'control characters are not allowed'],
  [/[\p{Zl}\p{Zp}]/u, 'line and paragraph separators are not allowed'],
  [/\p{Bidi_Control}/u, 'characters that change the direction of text are not allowed'],
  [/\p{Cs}/u, 'it contains an incomplete character (a lone surrogate)'],
] as const

/** Returns the fault in a text, regardless of its length, or null. */
export const textFault = (text: string): string | null =>
  faults.find(([pattern]) => pattern.test(text))?.[1] ?? null

const seen = /[^\s\p{Default_Ignorable_Code_Point}]/u

/** Returns the fault in a label, or null. A label must not be blank, and can have at most `max` characters. */
export const labelFault = (text: string, max = labelMax): string | null => {
  if (text.length > max) return `at most ${max} characters; it has ${text.length}`
  const fault = textFault(text)
  if (fault !== null) return fault
  return seen.test(text) ? null : 'it contains only white space'
}
