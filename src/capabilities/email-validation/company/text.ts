/** Without control characters and direction marks, which could make an answer look like another one; in NFC. */
export const cleanText = (text: unknown): string | null => {
  if (typeof text !== 'string') return null
  // The usual case: visible ASCII in single file.
  if (/^[!-~](?: ?[!-~])*$/.test(text)) return text
  const clean = text
    .replaceAll(/[\p{Cc}\u2028\u2029]/gu, ' ')
    .replaceAll(/[\u200b\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]/g, '')
    .replaceAll(/\s+/g, ' ')
    .trim()
    .normalize('NFC')
  return clean === '' ? null : clean
}

/** False where a text was broken before it came here. */
export const isText = (text: string): boolean => text.isWellFormed() && !text.includes('\ufffd')

/** A clean text of at most so many characters; null for what is none. */
export const textOf = (value: unknown, charactersMax: number): string | null => {
  if (typeof value === 'string' && value.length > 4 * charactersMax) return null
  const text = cleanText(value)
  return text === null || text.length > charactersMax || !isText(text) ? null : text
}
