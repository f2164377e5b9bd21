/**
 * Suggests the address that a malformed text probably stands for: `x@gmail,com`, `Name <x@gmail.com>`, `mailto:x@gmail.com`.
 *
 * A repair is only a suggestion, so the text stays invalid. If two addresses are possible, nothing is suggested. Pure.
 */
import type { EmailAddress, SyntaxReason } from '../evidence.ts'
import { isAscii } from './idna.ts'
import { parseEmail } from './parse.ts'

/** In UTF-16 units; enough for an address with a name before it. */
const repairableMax = 512

/**
 * Only strings refused for these reasons are repaired. All other refused strings are too long, or contain characters that people do not type by
 * mistake.
 */
const repairable: ReadonlySet<SyntaxReason> = new Set([
  'local_part_empty',
  'local_part_character',
  'local_part_dot',
  'quoted_string',
  'domain_character',
  'domain_dot',
  'label_idna',
])

/** Null if no similar text is well-formed. `text` is the result of `readAsMeant`, and `reason` explains its refusal. */
export const repairedAddress = (text: string, reason: SyntaxReason): EmailAddress | null => {
  if (!repairable.has(reason) || text.length > repairableMax) return null
  const bare = withOneAt(unwrapped(text))
  if (bare === null || bare === text) return null
  const parsed = parseEmail(bare)
  return parsed.valid ? parsed.address : null
}

const openers = `<([{'"\`«‹“‘„`
const closers = `>)]}'"\`»›”’“.,;:!?/`

const mailScheme = 'mailto:'

/** The text between angle brackets, or after `mailto:` or a label, without quotation marks and punctuation around it. */
const unwrapped = (text: string): string => {
  const open = text.lastIndexOf('<')
  const inner = open === -1 || !text.includes('@', open) ? text : text.slice(open + 1)
  const scheme = inner.toLowerCase().lastIndexOf(mailScheme)
  const bare = scheme === -1 ? inner : linked(inner.slice(scheme + mailScheme.length))
  return stripped(withoutLabel(bare))
}

const percentCodes = /%[0-7][0-9a-f]/gi

/** Returns the address in a `mailto:` link. It ends at `?`, and its characters can be percent-encoded (RFC 6068). */
const linked = (link: string): string =>
  (link.split('?', 1)[0] ?? '').replace(percentCodes, (code) =>
    String.fromCharCode(parseInt(code.slice(1), 16)),
  )

/** Matches `E-mail:x`, `Me: x` and `http://x`, but not `john:doe`, whose colon is a typo, nor `http://ada:password`. */
const label = /^[^:@"]*(?:mail:|:(?=\s)|:\/\/|^\/\/)(?=[^:@]*@)/i

const withoutLabel = (text: string): string => text.replace(label, '')

const stripped = (text: string): string => {
  let start = 0
  let end = text.length
  while (end > start && (closers.includes(text.charAt(end - 1)) || isBlank(text.charAt(end - 1)))) end--
  // The quotes of a quoted local part belong to the address.
  const quoted = text.startsWith('"') && text.slice(0, end).includes('"@')
  while (!quoted && start < end && (openers.includes(text.charAt(start)) || isBlank(text.charAt(start))))
    start++
  return text.slice(start, end)
}

const isBlank = (character: string): boolean => character <= ' ' || character === '\u00A0'

/** Repairs the text on both sides of the `@`; null if there is no `@`, or if there are several in different places. */
const withOneAt = (text: string): string | null => {
  const at = text.indexOf('@')
  if (at === -1 || text.startsWith('"')) return at === -1 ? null : text
  let end = at
  while (text.charAt(end) === '@') end++
  const localPart = narrowed(text.slice(0, at).trimEnd())
  const domain = narrowed(text.slice(end).trimStart())
  return domain.includes('@') ? null : `${withSingleDots(localPart)}@${repairedDomain(domain)}`
}

const strayDot = /\.\.|^\.|\.$/

const withSingleDots = (text: string): string =>
  strayDot.test(text)
    ? text
        .split('.')
        .filter((part) => part !== '')
        .join('.')
    : text

/** Converts wide letters, which result from an active East Asian input method. */
const narrowed = (text: string): string => (isAscii(text) ? text : text.normalize('NFKC'))

/** On the keyboard, the comma and the semicolon are next to the dot. */
const repairedDomain = (domain: string): string =>
  withSingleDots(domain.replace(/[,;]/g, '.').replace(/ ?\. ?/g, '.'))
