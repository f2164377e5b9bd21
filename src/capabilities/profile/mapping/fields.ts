import { itemsMax } from '../sources/provider.ts'

/**
 * Reads a source's answer: members may be missing, of another type, empty or endless. Every function accepts
 * anything, throws nothing, and returns a bounded value or null.
 */

export type Fields = Readonly<Record<string, unknown>>

export const isFields = (value: unknown): value is Fields =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

export const fieldsOf = (value: unknown): Fields => (isFields(value) ? value : {})

/** A member of the source's own: never one that every object inherits, such as `constructor`. */
export const memberOf = (value: unknown, name: string): unknown =>
  isFields(value) && Object.hasOwn(value, name) ? value[name] : undefined

/** A list's items, a single value as a list with one item, nothing for null. Reads no more than a profile may hold. */
export const itemsOf = (value: unknown): readonly unknown[] => {
  if (value === undefined || value === null) return []
  return Array.isArray(value) ? value.slice(0, itemsMax) : [value]
}

/** For names, titles and the like. Prose may have the full length that the contract allows. */
export const shortTextBytesMax = 1_000

/** How sources hide a value from visitors who have not paid or signed in: a partly hidden value must not be taken for the value. */
const mask = '***'

/**
 * A text without outer spaces and control characters, cut to `bytesMax` of UTF-8 at a character; numbers as text.
 * Null for empty and masked texts.
 */
export const textOf = (value: unknown, bytesMax = shortTextBytesMax): string | null => {
  if (typeof value === 'number') return Number.isFinite(value) ? String(value) : null
  if (typeof value !== 'string' || value.includes(mask)) return null
  // UTF-16 code units never outnumber the bytes they become, so nothing that would be kept is left out here.
  const wellFormed = value.slice(0, bytesMax).toWellFormed()
  const text = cut(wellFormed.replaceAll(/(?![\n\t])\p{Cc}/gu, ' ').trim(), bytesMax)
  return text === '' ? null : text
}

const cut = (text: string, bytesMax: number): string => {
  if (text.length * 3 <= bytesMax) return text
  const bytes = Buffer.from(text)
  if (bytes.length <= bytesMax) return text
  let end = bytesMax
  // Not within a character: continuation bytes start with 10.
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

/** The values that are not null, once each. */
export const known = (values: readonly (string | null)[]): string[] => [
  ...new Set(values.filter((value) => value !== null)),
]
