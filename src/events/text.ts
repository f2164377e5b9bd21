/**
 * The one rule for text that people write and read: names, reasons, notes, approvers. Refused text would either break
 * its storage (PostgreSQL takes no U+0000, UTF-8 no half of a character) or be shown differently than it was written.
 */

/** In UTF-16 units, as browsers and event schemas count. */
export const labelMax = 200

const faults = [
  [/\p{Cc}/u, 'control characters are not allowed'],
  [/[\p{Zl}\p{Zp}]/u, 'line and paragraph separators are not allowed'],
  [/\p{Bidi_Control}/u, 'characters that turn the direction of text are not allowed'],
  [/\p{Cs}/u, 'it holds half a character'],
] as const

/** The fault of a text, ignoring its length; null if there is none. */
export const textFault = (text: string): string | null =>
  faults.find(([pattern]) => pattern.test(text))?.[1] ?? null

const seen = /[^\s\p{Default_Ignorable_Code_Point}]/u

/** The fault of a label, which is a text that is not blank and has at most `max` characters; null if there is none. */
export const labelFault = (text: string, max = labelMax): string | null => {
  if (text.length > max) return `at most ${max} characters; it has ${text.length}`
  const fault = textFault(text)
  if (fault !== null) return fault
  return seen.test(text) ? null : 'nothing but white space was given'
}
