/**
 * Web pages, phones and input methods add characters to a pasted address that people neither see nor intend (decision 16). Only these
 * characters are removed or replaced here. The parser refuses all other mistakes.
 */
import { isAscii } from './idna.ts'

/** In UTF-16 units. A longer text is returned unchanged, and then refused by the parser because of its length. */
const pastedMax = 1_024

/** Characters without a glyph or a meaning in an address. Joiners and emoji selectors are not included, because some scripts need them. */
const invisible = /[\u00AD\u061C\u180E\u200B\u200E\u200F\u2060-\u2064\uFEFF]/g
/** White space, and the marks that editors put around a string to preserve its direction. */
const surrounding = /[\s\u0085\u202A-\u202E\u2066-\u2069]/
const joiners = /[\u200C\u200D]+/g
/** The full stops of East Asian input methods: ideographic, fullwidth and halfwidth. */
const wideDots = /[\u3002\uFF0E\uFF61]/g
const wideAt = '\uFF20'
/** A quick test for characters that may have to change. */
const readOtherwise = /[\u00AD\u061C\u180E\u200B-\u200F\u2060-\u2064\uFEFF\u3002\uFF0E\uFF61\uFF20]/

/** Removes the characters that were added by pasting, in linear time. */
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

/** Removes joiners next to ASCII or at an end of the text, where they have no effect. */
const withoutIdleJoiners = (text: string): string =>
  text.replace(joiners, (run, start: number) =>
    isJoinable(text.charCodeAt(start - 1)) && isJoinable(text.charCodeAt(start + run.length)) ? run : '',
  )

const isJoinable = (code: number): boolean => code > 127

/** Changes nothing inside quotes, where every character is literal. */
const withPlainSigns = (text: string): string => {
  const at = Math.max(text.lastIndexOf('@'), text.lastIndexOf(wideAt), 0)
  const quotedTo = text.startsWith('"') ? at : 0
  const rest = text.slice(quotedTo).replace(wideDots, '.').replaceAll(wideAt, '@')
  return text.slice(0, quotedTo) + rest
}

/** Removes one final dot, which is the DNS root or the end of a sentence. Two dots are a mistake and are kept. */
const withoutFinalDot = (text: string): string => {
  if (!text.endsWith('.') || !text.includes('@')) return text
  return '.@]'.includes(text.charAt(text.length - 2)) ? text : text.slice(0, -1)
}
