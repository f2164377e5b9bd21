/**
 * The one rule for text that people write and people read: names, reasons, notes, approvers. What it refuses either breaks
 * what holds it (PostgreSQL takes no U+0000, UTF-8 no half of a character) or shows something else than was written.
 */

/** In UTF-16 units, as browsers and event schemas count. */
export const labelMax = 200

const faults = [
  [/\p{Cc}/u, 'control characters are not allowed'],
  [/[\p{Zl}\p{Zp}]/u, 'line and paragraph separators are not allowed'],
  [/\p{Bidi_Control}/u, 'characters that turn the direction of text are not allowed'],
  [/\p{Cs}/u, 'it holds half a character'],
] as const

/** What is wrong with a text, whatever its length; null for one that is fine. */
export const textFault = (text: string): string | null =>
  faults.find(([pattern]) => pattern.test(text))?.[1] ?? null

const seen = /[^\s\p{Default_Ignorable_Code_Point}]/u

/** What is wrong with a label: a text that is not blank and has at most `max` characters. Null for one that is fine. */
export const labelFault = (text: string, max = labelMax): string | null => {
  if (text.length > max) return `at most ${max} characters; it has ${text.length}`
  const fault = textFault(text)
  if (fault !== null) return fault
  return seen.test(text) ? null : 'nothing but white space was given'
}
