/** No document that people write is nested this deeply. Functions that read its values can be recursive. */
const nestedMax = 100

/** Like `JSON.parse`, but also throws a `SyntaxError` if an object has the same member more than once, or a value is nested too deeply. */
export const parseJson = (text: string): unknown => {
  const value: unknown = JSON.parse(text)
  if (isNestedTooDeeply(value)) throw new SyntaxError(`it is nested more than ${nestedMax} levels deep`)
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

const isNestedTooDeeply = (value: unknown): boolean => {
  let level: unknown[] = [value]
  for (let depth = 0; depth <= nestedMax; depth++) {
    level = level.flatMap((one) => (typeof one === 'object' && one !== null ? Object.values(one) : []))
    if (level.length === 0) return false
  }
  return true
}

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
