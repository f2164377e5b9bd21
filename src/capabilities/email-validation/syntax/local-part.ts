/** The part before the `@`: a Dot-string or a Quoted-string of RFC 5321 §4.1.2, with the extensions of RFC 6531 §3.3. */
import type { SyntaxReason } from '../evidence.ts'
import { joinersInContext } from './idna.ts'

export const control = /\p{Cc}/u

const notInDotAtom = /[^\w!#$%&'*+/=?^`{|}~.\u0080-\uFFFF-]/

/** The index of the `@` after a local part without quotes, which is a Dot-string. */
export const endOfUnquoted = (text: string): number | SyntaxReason => {
  const end = text.search(notInDotAtom)
  const run = end < 0 ? text : text.slice(0, end)
  if (run.startsWith('.') || run.includes('..')) return 'local_part_dot'
  if (end < 0) return 'no_at_sign'
  const next = text.charAt(end)
  if (next !== '@') return control.test(next) ? 'control_character' : 'local_part_character'
  if (run === '') return 'local_part_empty'
  return run.endsWith('.') ? 'local_part_dot' : end
}

/** RFC 6531 does not allow a backslash before a non-ASCII character. */
const unclosedQuote = /^"(?:[^"\\\p{Cc}]|\\[ -~])*/u

/** The index of the `@` after a Quoted-string, which can be empty. */
export const endOfQuoted = (text: string): number | SyntaxReason => {
  const [unclosed = ''] = unclosedQuote.exec(text) ?? []
  const rest = text.slice(unclosed.length)
  if (rest.startsWith('"@')) return unclosed.length + 1
  return /^\\?\p{Cc}/u.test(rest) ? 'control_character' : 'quoted_string'
}

/** The shortest spelling of the same mailbox, because quotes and backslashes are not part of its name (RFC 5321 §4.1.2). */
export const withoutNeedlessQuotes = (given: string): string => {
  const content = given.slice(1, -1).replace(/\\(.)/gsu, '$1')
  const plain = !content.includes('@') && typeof endOfUnquoted(`${content}@`) === 'number'
  return plain ? content : `"${content.replace(/["\\]/g, '\\$&')}"`
}

/**
 * Characters that RFC 6531 allows but people can neither see nor type: separators, controls, direction marks, unassigned and
 * private characters, and the replacement character. With them, two different mailboxes could look alike. The selectors of
 * text and emoji style are allowed, as in pasted text.
 */
const unseen = /[[\p{C}\p{Z}\p{Default_Ignorable_Code_Point}\uFFFD]--[\u0020\u200C\u200D\uFE0E\uFE0F]]/v

/** A leading mark would combine with the character before the address in any text that contains the address. */
const leadingMark = /^"?\p{M}/u

export const isUnicodeLocalPart = (given: string): boolean => {
  if (unseen.test(given) || leadingMark.test(given)) return false
  return joinersInContext(given)
}
