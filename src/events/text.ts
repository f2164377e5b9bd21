/**
 * The one rule for text that people write and read. Text that breaks it could not be stored (PostgreSQL accepts no
 * U+0000, and UTF-8 no half of a character) or would look different from what was written.
 */

/** The maximum length in UTF-16 units, which browsers and event schemas count too. */
export const labelMax = 200

const faults = [
  [/\p{Cc}/u, 'control characters are not allowed'],
  [/[\p{Zl}\p{Zp}]/u, 'line and paragraph separators are not allowed'],
  [/\p{Bidi_Control}/u, 'characters that change the direction of text are not allowed'],
  [/\p{Cs}/u, 'it contains half a character'],
] as const

/** The fault of a string, ignoring its length, or null. */
export const textFault = (text: string): string | null =>
  faults.find(([pattern]) => pattern.test(text))?.[1] ?? null

const seen = /[^\s\p{Default_Ignorable_Code_Point}]/u

/** The fault of a label, which must not be blank and may have at most `max` characters, or null. */
export const labelFault = (text: string, max = labelMax): string | null => {
  if (text.length > max) return `at most ${max} characters; it has ${text.length}`
  const fault = textFault(text)
  if (fault !== null) return fault
  return seen.test(text) ? null : 'it contains only white space'
}
