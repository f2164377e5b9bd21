/**
 * Reads pasted text as people mean it (decision 16).
 *
 * Pages, phones and input methods put characters that no one sees or intends around and into an address. Only those are
 * removed or replaced here. Everything else is left to the parser, which refuses it, and to `repair.ts`, which asks.
 */
import { isAscii } from './characters.ts'

/** UTF-16 units. No paste is longer; longer text is left as it is, and refused for its length. */
const pastedMax = 1_024

/** No glyph and no meaning in an address. Joiners and the selectors of emoji style are not among them: some scripts need them. */
const invisible = /[\u00AD\u061C\u180E\u200B\u200E\u200F\u2060-\u2064\uFEFF]/g
/** White space, and the marks that editors put around a text to keep its direction. */
const surrounding = /[\s\u0085\u202A-\u202E\u2066-\u2069]/
const joiners = /[\u200C\u200D]+/g
/** The full stops of East Asian input methods: ideographic, fullwidth and halfwidth. */
const wideDots = /[\u3002\uFF0E\uFF61]/g
const wideAt = '\uFF20'
/** All of these; most text outside ASCII contains none. */
const readOtherwise = /[\u00AD\u061C\u180E\u200B-\u200F\u2060-\u2064\uFEFF\u3002\uFF0E\uFF61\uFF20]/

/** Returns the same text if nothing has to change. Linear in its length. */
export const readAsMeant = (text: string): string => {
  if (text.length > pastedMax) return text
  if (isAscii(text)) return isTidy(text) ? text : withoutFinalDot(trimmed(text))
  if (!readOtherwise.test(text)) return withoutFinalDot(trimmed(text))
  const seen = withoutIdleJoiners(text.replace(invisible, ''))
  return withoutFinalDot(withPlainSigns(trimmed(seen)))
}

const space = 32
const fullStop = 46

const isTidy = (text: string): boolean => {
  const last = text.charCodeAt(text.length - 1)
  return text.charCodeAt(0) > space && last > space && last !== fullStop
}

const trimmed = (text: string): string => {
  let start = 0
  let end = text.length
  while (start < end && surrounding.test(text.charAt(start))) start++
  while (end > start && surrounding.test(text.charAt(end - 1))) end--
  return text.slice(start, end)
}

/** A joiner next to ASCII, or at an end, joins nothing. */
const withoutIdleJoiners = (text: string): string =>
  text.replace(joiners, (run, start: number) =>
    isJoinable(text.charCodeAt(start - 1)) && isJoinable(text.charCodeAt(start + run.length)) ? run : '',
  )

/** False beyond the ends, where there is no character code. */
const isJoinable = (code: number): boolean => code > 127

/** Inside quotes every character is literal. */
const withPlainSigns = (text: string): string => {
  const at = Math.max(text.lastIndexOf('@'), text.lastIndexOf(wideAt), 0)
  const quotedTo = text.startsWith('"') ? at : 0
  const rest = text.slice(quotedTo).replace(wideDots, '.').replaceAll(wideAt, '@')
  return text.slice(0, quotedTo) + rest
}

/** The root of the DNS, or the end of the sentence. One dot can be either; two are a slip. */
const withoutFinalDot = (text: string): string => {
  if (!text.endsWith('.') || !text.includes('@')) return text
  return '.@]'.includes(text.charAt(text.length - 2)) ? text : text.slice(0, -1)
}
