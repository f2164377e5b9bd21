/**
 * Decides from the characters alone whether a string is an address that an SMTP client may put between the angle brackets of RCPT TO (Mailbox
 * of RFC 5321 §4.1.2 with the extensions of RFC 6531 §3.3). Forms that exist only in message headers, such as display names and comments, are
 * refused. Nothing is trimmed, because `as-meant.ts` runs before.
 *
 * Takes linear time. Text longer than `lengthMax` is refused without being read.
 */
import { isIP } from 'node:net'
import { formatIPv6 } from '../../../egress/address.ts'
import type { ParsedEmail, SyntaxReason } from '../evidence.ts'
import { isAscii, joinersInContext, parseIdna } from './idna.ts'

/** In UTF-16 units. The longest local part, `@` and the longest domain have 318 characters. */
const lengthMax = 320
/** RFC 5321 §4.5.3.1.1, including quotes and backslashes, because they are sent as well. */
const localOctetsMax = 64
/** RFC 5321 §4.5.3.1.2 allows 255, but the DNS needs two of them for length octets (RFC 1035 §2.3.4). */
const domainOctetsMax = 253
/** RFC 1035 §2.3.4. */
const labelOctetsMax = 63
/** RFC 5321 §4.5.3.1.3: a path has at most 256 octets, and two of them are angle brackets. */
const addressOctetsMax = 254

const refuse = (reason: SyntaxReason): ParsedEmail => ({ valid: false, reason })

/**
 * Parses one address under RFC 5321, RFC 6531 and IDNA2008; never throws. `normalized` parses to the same address again.
 *
 * Text outside ASCII is first converted to NFC (U+037E becomes `;`, and is refused). Both forms of an internationalized address, with
 * U-labels and with A-labels, must have at most 254 octets in UTF-8, because either can be sent.
 */
export const parseEmail = (text: string): ParsedEmail => {
  if (text === '') return refuse('empty')
  if (text.length > lengthMax) return refuse('too_long')
  return isAscii(text) ? parseNormal(text, true) : parseUnicode(text)
}

const parseUnicode = (text: string): ParsedEmail => {
  // UTF-8 cannot represent a lone surrogate.
  if (!text.isWellFormed()) return refuse('not_normalizable')
  if (control.test(text)) return refuse('control_character')
  const normal = text.normalize('NFC')
  return parseNormal(normal, isAscii(normal))
}

const parseNormal = (text: string, ascii: boolean): ParsedEmail => {
  const quoted = text.startsWith('"')
  const atIndex = quoted ? endOfQuoted(text) : endOfUnquoted(text)
  if (typeof atIndex === 'string') return refuse(atIndex)
  const given = text.slice(0, atIndex)
  const smtputf8 = !ascii && !isAscii(given)
  if (smtputf8 && !isUnicodeLocalPart(given)) return refuse('local_part_character')
  const localOctets = smtputf8 ? Buffer.byteLength(given) : given.length
  if (localOctets > localOctetsMax) return refuse('local_part_too_long')

  const domain = parseDomain(text.slice(atIndex + 1))
  if (typeof domain === 'string') return refuse(domain)
  if (localOctets + 1 + domain.octets > addressOctetsMax) return refuse('too_long')

  const localPart = quoted ? withoutNeedlessQuotes(given) : given
  return {
    valid: true,
    address: {
      normalized: quoted || domain.changed ? `${localPart}@${domain.unicode}` : text,
      localPart,
      domain: domain.unicode,
      asciiDomain: domain.ascii,
      smtputf8,
      quoted: quoted && localPart.startsWith('"'),
      domainLiteral: domain.literal,
    },
  }
}

type Domain = {
  readonly unicode: string
  readonly ascii: string
  readonly literal: boolean
  readonly octets: number
  readonly changed: boolean
}

const parseDomain = (given: string): Domain | SyntaxReason => {
  if (given === '') return 'domain_empty'
  if (given.startsWith('[')) return parseLiteral(given)
  const labels = given.split('.')
  for (const label of labels) {
    const fault = faultOf(label)
    if (fault !== null) return fault
  }
  // A numeric top-level domain does not exist (RFC 1123 §2.1, RFC 3696 §2): `a@192.0.2.1` is an IP address without its brackets.
  if (/^[0-9]+$/.test(labels.at(-1) ?? '')) return 'domain_character'
  if (!isAscii(given) || aLabel.test(given)) return parseInternational(given)
  if (given.length > domainOctetsMax) return 'domain_too_long'
  const domain = given.toLowerCase()
  return { unicode: domain, ascii: domain, literal: false, octets: domain.length, changed: domain !== given }
}

const aLabel = /(?:^|\.)xn--/i
const notInLabel = /[^A-Za-z0-9\u0080-\uFFFF-]/

const faultOf = (label: string): SyntaxReason | null => {
  if (label === '') return 'domain_dot'
  const wrong = label.search(notInLabel)
  if (wrong >= 0) return control.test(label.charAt(wrong)) ? 'control_character' : 'domain_character'
  // Only the A-label shows the length of a non-ASCII label.
  if (label.length > labelOctetsMax && isAscii(label)) return 'label_too_long'
  if (label.startsWith('-') || label.endsWith('-')) return 'label_hyphen'
  // Hyphens at these positions are reserved for prefixes; `xn--` is the only one that exists (RFC 5890 §2.3.1).
  return label.startsWith('--', 2) && !aLabel.test(label) ? 'label_hyphen' : null
}

const parseInternational = (given: string): Domain | SyntaxReason => {
  const domain = parseIdna(given)
  if (domain === null) return 'label_idna'
  if (domain.ascii.split('.').some((label) => label.length > labelOctetsMax)) return 'label_too_long'
  if (domain.ascii.length > domainOctetsMax) return 'domain_too_long'
  const octets = Math.max(domain.ascii.length, Buffer.byteLength(domain.unicode))
  return { ...domain, literal: false, octets, changed: domain.unicode !== given }
}

const literalForm = /^\[(?:(ipv6):)?([0-9a-f.:]+)\]$/i
const octetForm = /^[0-9]{1,3}$/

/** Address-literal of RFC 5321 §4.1.3. `[tag:content]` is allowed only with a registered tag, and `IPv6` is the only one. */
const parseLiteral = (given: string): Domain | SyntaxReason => {
  if (control.test(given)) return 'control_character'
  const [, tag, content = ''] = literalForm.exec(given) ?? []
  const address = tag === undefined ? normalIPv4(content) : normalIPv6(content)
  if (address === null) return 'domain_literal'
  const literal = tag === undefined ? `[${address}]` : `[IPv6:${address}]`
  return { unicode: literal, ascii: literal, literal: true, octets: given.length, changed: literal !== given }
}

/** Returns the canonical form. Octets with leading zeros are decimal. */
const normalIPv4 = (content: string): string | null => {
  const octets = content.split('.')
  if (octets.length !== 4) return null
  const fine = octets.every((octet) => octetForm.test(octet) && Number(octet) <= 255)
  return fine ? octets.map(Number).join('.') : null
}

/** Returns the form of RFC 5952. In an address literal, `::` must replace at least two groups. */
const normalIPv6 = (content: string): string | null => {
  const tailStart = content.lastIndexOf(':') + 1
  const tail = content.slice(tailStart)
  const dotted = tail.includes('.')
  const ipv4 = dotted ? normalIPv4(tail) : tail
  const text = `${content.slice(0, tailStart)}${ipv4}`
  if (isIP(text) !== 6 || text.includes('%')) return null
  const groups = content.split(':').filter((group) => group !== '').length + (dotted ? 1 : 0)
  return content.includes('::') && groups > 6 ? null : formatIPv6(text)
}

/** The part before the `@`: a Dot-string or a Quoted-string of RFC 5321 §4.1.2, with the extensions of RFC 6531 §3.3. */

const control = /\p{Cc}/u

const notInDotAtom = /[^\w!#$%&'*+/=?^`{|}~.\u0080-\uFFFF-]/

/** The index of the `@` after a local part without quotes, which is a Dot-string. */
const endOfUnquoted = (text: string): number | SyntaxReason => {
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
const endOfQuoted = (text: string): number | SyntaxReason => {
  const [unclosed = ''] = unclosedQuote.exec(text) ?? []
  const rest = text.slice(unclosed.length)
  if (rest.startsWith('"@')) return unclosed.length + 1
  return /^\\?\p{Cc}/u.test(rest) ? 'control_character' : 'quoted_string'
}

/** The shortest spelling of the same mailbox, because quotes and backslashes are not part of its name (RFC 5321 §4.1.2). */
const withoutNeedlessQuotes = (given: string): string => {
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

const isUnicodeLocalPart = (given: string): boolean => {
  if (unseen.test(given) || leadingMark.test(given)) return false
  return joinersInContext(given)
}
