/** Like `JSON.parse`, but also throws a `SyntaxError` if an object has the same member more than once. */
export const parseJson = (text: string): unknown => {
  const value: unknown = JSON.parse(text)
  if (hasRepeatedMember(text, value)) throw new SyntaxError('an object has the same member more than once')
  return value
}

/**
 * Whether an object in a JSON text has the same member twice. `JSON.parse` silently keeps the last one, but another program may use
 * the first. `value` is the parsed text. Each member in the text has one colon outside strings, but `value` has only the kept
 * members, so the two counts differ if a member is repeated.
 */
export const hasRepeatedMember = (text: string, value: unknown): boolean =>
  colonsIn(text) !== membersOf(value)

const quote = 0x22
const colon = 0x3a
const backslash = 0x5c

const colonsIn = (text: string): number => {
  let colons = 0
  for (let i = 0; i < text.length; i++) {
    const code = text.charCodeAt(i)
    if (code === colon) colons++
    else if (code === quote)
      for (i++; text.charCodeAt(i) !== quote; i++) if (text.charCodeAt(i) === backslash) i++
  }
  return colons
}

/** Avoids recursion, because JSON can be nested as deeply as its text is long. */
const membersOf = (value: unknown): number => {
  const open: unknown[] = [value]
  let members = 0
  for (let next = open.pop(); next !== undefined; next = open.pop()) {
    if (typeof next !== 'object' || next === null) continue
    const values = Object.values(next)
    if (!Array.isArray(next)) members += values.length
    for (const one of values) if (typeof one === 'object') open.push(one)
  }
  return members
}
