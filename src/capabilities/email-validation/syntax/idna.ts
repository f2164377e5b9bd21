/**
 * Internationalized domain names under IDNA2008 (RFC 5890 to 5893).
 *
 * `node:url` implements UTS 46 for browsers: it accepts emoji, maps `㎏` to `kg` and leaves a broken A-label unchanged. This file
 * adds the missing checks. Only case is mapped (RFC 5895 §2.1), so a look-alike such as `ｇｍａｉｌ` is refused.
 */
import { domainToASCII, domainToUnicode } from 'node:url'

type IdnaDomain = {
  readonly unicode: string
  readonly ascii: string
}

const acePrefix = 'xn--'

/**
 * The code points allowed in a label: PVALID, CONTEXTJ and CONTEXTO of RFC 5892 §3, derived from Unicode properties as in §2
 * (letters, marks and digits that case folding and compatibility mapping do not change), with the exceptions of §2.6.
 */
const labelForm =
  /^[[[\p{Ll}\p{Lu}\p{Lo}\p{Lm}\p{Mn}\p{Mc}\p{Nd}]--[\p{Changes_When_NFKC_Casefolded}\p{Default_Ignorable_Code_Point}\u0640\u07FA\u302E\u302F\u3031-\u3035\u303B\u1100-\u11FF\uA960-\uA97F\uD7B0-\uD7FF\u20D0-\u20FF\u{1D100}-\u{1D24F}]][\-a-z0-9ßς\u06FD\u06FE\u0F0B\u3007\u200C\u200D\u00B7\u0375\u05F3\u05F4\u30FB]]+$/v

/** CONTEXTO violations (RFC 5892 appendices A.3 to A.9). Each pattern looks at most one code point around its match. */
const outOfContext = [
  /(?<!l)\u00B7|\u00B7(?!l)/u,
  /\u0375(?!\p{Script=Greek})/u,
  /(?<!\p{Script=Hebrew})[\u05F3\u05F4]/u,
]
const katakanaMiddleDot = '\u30FB'
const kanaOrHan = /[\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Han}]/u
const arabicIndicDigit = /[\u0660-\u0669]/u
const extendedArabicIndicDigit = /[\u06F0-\u06F9]/u

/** The upper-case letters that are folded. Cherokee is not included, because its case folding changes lower-case letters. */
const foldedUpper = /[\p{Lu}&&\p{Changes_When_NFKC_Casefolded}]/gv
/**
 * Returns the U-labels and A-labels of a domain that has at least one of either; null if IDNA2008 refuses a label (RFC 5891 §4.2,
 * §5.4) or the domain breaks the Bidi rule. The caller checks dots, hyphens, lengths and ASCII characters.
 */
export const parseIdna = (domain: string): IdnaDomain | null => {
  // Case is folded character by character, because `toLowerCase` of a whole word would turn a final Σ into ς, and the domain would be
  // different.
  const folded = domain.replace(foldedUpper, (upper) => upper.toLowerCase()).normalize('NFC')
  const unicode: string[] = []
  const ascii: string[] = []
  for (const label of folded.split('.')) {
    const both = label.startsWith(acePrefix) ? parseALabel(label) : parseLabel(label)
    if (both === null) return null
    unicode.push(both.unicode)
    ascii.push(both.ascii)
  }
  return keepsBidiRule(unicode) ? { unicode: unicode.join('.'), ascii: ascii.join('.') } : null
}

const parseLabel = (label: string): IdnaDomain | null => {
  if (isAscii(label)) return { unicode: label, ascii: label }
  if (!isULabel(label)) return null
  const ascii = domainToASCII(label)
  return ascii.startsWith(acePrefix) && domainToUnicode(ascii) === label ? { unicode: label, ascii } : null
}

/** Refuses a fake A-label (RFC 5890 §2.3.2.1): one that does not decode to a U-label, or whose U-label encodes to different text. */
const parseALabel = (ascii: string): IdnaDomain | null => {
  const unicode = domainToUnicode(ascii)
  return !isAscii(unicode) && isULabel(unicode) && domainToASCII(unicode) === ascii
    ? { unicode, ascii }
    : null
}

const isULabel = (label: string): boolean => {
  if (!labelForm.test(label) || /^\p{M}/u.test(label)) return false
  if (label.startsWith('-') || label.endsWith('-') || label.startsWith('--', 2)) return false
  if (outOfContext.some((violation) => violation.test(label))) return false
  if (!joinersInContext(label)) return false
  if (label.includes(katakanaMiddleDot) && !kanaOrHan.test(label.replaceAll(katakanaMiddleDot, '')))
    return false
  return !(arabicIndicDigit.test(label) && extendedArabicIndicDigit.test(label))
}

export const isAscii = (text: string): boolean => !/[\u0080-\uFFFF]/.test(text)

// --- CONTEXTJ, RFC 5892 appendices A.1 and A.2. Node.js is less strict, because it allows a non-joiner after any letter. ---

/** Joining_Type D in Arabic, Syriac and Mongolian. In other scripts, a non-joiner is refused, as in Node.js. */
const dualJoining =
  String.raw`\u0620\u0626\u0628\u062A-\u062E\u0633-\u063F\u0641-\u0647\u0649-\u064A\u066E-\u066F\u0678-\u0687` +
  String.raw`\u069A-\u06BF\u06C1-\u06C2\u06CC\u06CE\u06D0-\u06D1\u06FA-\u06FC\u06FF\u0712-\u0714\u071A-\u071D` +
  String.raw`\u071F-\u0727\u0729\u072B\u072D-\u072E\u074E-\u0758\u075C-\u076A\u076D-\u0770\u0772\u0775-\u0777` +
  String.raw`\u077A-\u077F\u08A0-\u08A9\u08AF-\u08B0\u08B3-\u08B8\u08BA-\u08C8\u1820-\u1878`
/** Joining_Type R: joined to the preceding letter, never to the following one. */
const rightJoining =
  String.raw`\u0622-\u0625\u0627\u0629\u062F-\u0632\u0648\u0671-\u0673\u0675-\u0677\u0688-\u0699\u06C0` +
  String.raw`\u06C3-\u06CB\u06CD\u06CF\u06D2-\u06D3\u06D5\u06EE-\u06EF\u0710\u0715-\u0719\u071E\u0728\u072A` +
  String.raw`\u072C\u072F\u074D\u0759-\u075B\u076B-\u076C\u0771\u0773-\u0774\u0778-\u0779\u08AA-\u08AC\u08AE` +
  String.raw`\u08B1-\u08B2\u08B9`
/** A non-joiner between two cursive letters, with or without vowel signs. */
// recheck: of an address of at most 320 characters.
const letterSeparator = new RegExp(
  `(?<=[${dualJoining}]\\p{Mn}*)\\u200C(?=\\p{Mn}*[${dualJoining}${rightJoining}])`,
  'gu',
)
const joiner = /[\u200C\u200D]/
const joinerAfter = /(.?)[\u200C\u200D]/gsu

/** Whether every zero-width joiner and non-joiner is where RFC 5892 allows it: after a virama, or between cursive letters. */
export const joinersInContext = (text: string): boolean => {
  if (!joiner.test(text)) return true
  for (const [, before = ''] of text.replaceAll(letterSeparator, ' ').matchAll(joinerAfter))
    if (!isVirama(before)) return false
  return true
}

/**
 * Tests for Canonical_Combining_Class 9 (a virama) with the check of joiners in Node.js, which allows a joiner between two letters क only
 * after a virama.
 */
const isVirama = (character: string): boolean =>
  /^\p{M}$/u.test(character) && domainToASCII(`\u0915${character}\u200D\u0915`) !== ''

// --- The Bidi rule, RFC 5893 §2. JavaScript has no Bidi_Class property, so these are the classes that labels can contain. ---

const nonspacing = /^\p{Mn}$/u
const europeanDigit = /^[0-9\u06F0-\u06F9]$/u
const arabicDigit = /^[\u0660-\u0669\u{10D30}-\u{10D39}]$/u
/** These are whole blocks, because digits and nonspacing marks in them have already been matched. */
const rightToLeft = /[\u0590-\u08FF\uFB1D-\uFDFF\uFE70-\uFEFF\u{10800}-\u{10FFF}\u{1E800}-\u{1EFFF}]/u
/** Letters, except the modifier letters that are neutral. */
const leftToRight =
  /^[[\p{L}\p{Mc}\p{Nd}]--[\u02B9\u02BA\u02C6-\u02CF\u02EC\u2E2F\uA67F\uA717-\uA71F\uA788]]$/v

type BidiClass = 'R' | 'L' | 'EN' | 'AN' | 'NSM' | 'neutral'

const bidiClass = (character: string): BidiClass => {
  if (nonspacing.test(character)) return 'NSM'
  if (europeanDigit.test(character)) return 'EN'
  if (arabicDigit.test(character)) return 'AN'
  if (rightToLeft.test(character)) return 'R'
  return leftToRight.test(character) ? 'L' : 'neutral'
}

/** If one label is right-to-left, the rule applies to all labels of the domain, including ASCII ones. */
const keepsBidiRule = (labels: readonly string[]): boolean => {
  if (!labels.some((label) => rightToLeft.test(label))) return true
  const classes = labels.map((label) => Array.from(label, bidiClass))
  const bidi = classes.some((label) => label.includes('R') || label.includes('AN'))
  return !bidi || classes.every(isBidiLabel)
}

const isBidiLabel = (label: readonly BidiClass[]): boolean => {
  const [first] = label
  const last = label.findLast((one) => one !== 'NSM')
  if (first === 'L') return !label.includes('R') && !label.includes('AN') && (last === 'L' || last === 'EN')
  return (
    first === 'R' &&
    !label.includes('L') &&
    !(label.includes('EN') && label.includes('AN')) &&
    (last === 'R' || last === 'EN' || last === 'AN')
  )
}
