import { itemsMax } from '../sources/provider.ts'

/**
 * Reads a source's answer, whose members can be missing, empty, very long or of another type. Every function accepts any value, never throws,
 * and returns a bounded value or null.
 */

export type Fields = Readonly<Record<string, unknown>>

export const isFields = (value: unknown): value is Fields =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

export const fieldsOf = (value: unknown): Fields => (isFields(value) ? value : {})

/** Returns a member of the source's object, but never an inherited member such as `constructor`. */
export const memberOf = (value: unknown, name: string): unknown =>
  isFields(value) && Object.hasOwn(value, name) ? value[name] : undefined

/** Returns a list's items, a single value as a list, or an empty list for null. Reads at most `itemsMax`. */
export const itemsOf = (value: unknown): readonly unknown[] => {
  if (value === undefined || value === null) return []
  return Array.isArray(value) ? value.slice(0, itemsMax) : [value]
}

/** The maximum length of names, titles and similar strings. Prose can have the full length that the contract allows. */
export const shortTextBytesMax = 1_000

/** The text with which sources replace a part of a value for visitors who have not paid or signed in. A masked value is not used. */
const mask = '***'

/**
 * Returns a string without outer spaces and control characters, cut to `bytesMax` of UTF-8; numbers become text. Null for empty
 * and masked strings.
 */
export const textOf = (value: unknown, bytesMax = shortTextBytesMax): string | null => {
  if (typeof value === 'number') return Number.isFinite(value) ? String(value) : null
  if (typeof value !== 'string' || value.includes(mask)) return null
  // A string does not have more UTF-16 code units than bytes, so this cut removes nothing that would be returned.
  const wellFormed = value.slice(0, bytesMax).toWellFormed()
  const text = cut(wellFormed.replaceAll(/(?![\n\t])\p{Cc}/gu, ' ').trim(), bytesMax)
  return text === '' ? null : text
}

const cut = (text: string, bytesMax: number): string => {
  if (text.length * 3 <= bytesMax) return text
  const bytes = Buffer.from(text)
  if (bytes.length <= bytesMax) return text
  let end = bytesMax
  // Moves the cut before a character that it would split. Continuation bytes start with the bits 10.
  while (end > 0 && ((bytes[end] ?? 0) & 0xc0) === 0x80) end--
  return bytes.toString('utf8', 0, end).trimEnd()
}

/** A count such as 512, "512" or "500+". */
export const countOf = (value: unknown): number | null => {
  const count =
    typeof value === 'string' && value.length <= shortTextBytesMax && /^\d{1,12}\+?$/.test(value.trim())
      ? Number.parseInt(value, 10)
      : value
  return typeof count === 'number' && Number.isSafeInteger(count) && count >= 0 ? count : null
}

/** Removes nulls and duplicates. */
export const known = (values: readonly (string | null)[]): string[] => [
  ...new Set(values.filter((value) => value !== null)),
]
