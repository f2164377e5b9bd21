/** The part before the `@`: a Dot-string or a Quoted-string of RFC 5321 §4.1.2, with the extensions of RFC 6531 §3.3. */
import type { SyntaxReason } from '../evidence.ts'
import { at, backslash, dot, isAtext, isControl, kinds, quote } from './characters.ts'
import { joinersInContext } from './idna.ts'

/**
 * Until 2009, these Japanese carriers assigned names with consecutive dots or a final dot, against RFC 5321. Some of these names are still in use.
 */
const domainsWithAnyDots: ReadonlySet<string> = new Set(['docomo.ne.jp', 'ezweb.ne.jp'])
const withAnyDots = /^[\w!#$%&'*+/=?^`{|}~-][\w!#$%&'*+/=?^`{|}~.-]*$/

/** The index of the `@` after a local part without quotes. */
export const endOfUnquoted = (text: string): number | SyntaxReason => {
  const end = endOfDotAtom(text)
  return end === 'local_part_dot' ? endOfAnyDots(text) : end
}

const endOfAnyDots = (text: string): number | SyntaxReason => {
  const end = text.indexOf('@')
  const named = { localPart: text.slice(0, end), asciiDomain: text.slice(end + 1).toLowerCase() }
  return isWithAnyDots(named) ? end : 'local_part_dot'
}

/** Whether the domain permits dots in any place and the local part is otherwise valid. `asciiDomain` must be in lower case. */
export const isWithAnyDots = (named: { localPart: string; asciiDomain: string }): boolean =>
  domainsWithAnyDots.has(named.asciiDomain) && withAnyDots.test(named.localPart)

const endOfDotAtom = (text: string): number | SyntaxReason => {
  let atomStart = 0
  for (let index = 0; index < text.length; index++) {
    const code = text.charCodeAt(index)
    if (code < 128 && ((kinds[code] ?? 0) & isAtext) !== 0) continue
    if (code === dot) {
      if (index === atomStart) return 'local_part_dot'
      atomStart = index + 1
    } else if (code === at) {
      if (index === 0) return 'local_part_empty'
      return index === atomStart ? 'local_part_dot' : index
    } else if (code < 128) return isControl(code) ? 'control_character' : 'local_part_character'
  }
  return 'no_at_sign'
}

/** The index of the `@` after a Quoted-string, which can be empty. RFC 6531 allows no backslash before a non-ASCII character. */
export const endOfQuoted = (text: string): number | SyntaxReason => {
  for (let index = 1; index < text.length; index++) {
    const code = text.charCodeAt(index)
    if (isControl(code)) return 'control_character'
    if (code === quote) return text.charCodeAt(index + 1) === at ? index + 1 : 'quoted_string'
    if (code !== backslash) continue
    const escaped = text.charCodeAt(++index)
    // NaN at the end of the text fails the first comparison.
    if (!(escaped < 128)) return 'quoted_string'
    if (isControl(escaped)) return 'control_character'
  }
  return 'quoted_string'
}

/** The shortest spelling of the same mailbox, because quotes and backslashes are not part of its name (RFC 5321 §4.1.2). */
export const withoutNeedlessQuotes = (given: string, asciiDomain: string): string => {
  const content = given.slice(1, -1).replace(/\\(.)/gsu, '$1')
  const plain = !content.includes('@') && typeof endOfUnquoted(`${content}@${asciiDomain}`) === 'number'
  return plain ? content : `"${content.replace(/["\\]/g, '\\$&')}"`
}

/**
 * Characters that RFC 6531 allows but people can neither see nor type: separators, controls, direction marks, unassigned and
 * private characters, and the replacement character. With them, two different mailboxes could look alike. The selectors of
 * text and emoji style are allowed, as in pasted text.
 */
const unseen = /[[\p{C}\p{Z}\p{Default_Ignorable_Code_Point}\uFFFD]--[\u0020\u200C\u200D\uFE0E\uFE0F]]/v

/** A leading mark would combine with the character before the address, wherever the address is printed. */
const leadingMark = /^"?\p{M}/u

export const isUnicodeLocalPart = (given: string): boolean => {
  if (unseen.test(given) || leadingMark.test(given)) return false
  return joinersInContext(given)
}
