export const dot = 46
export const hyphen = 45
export const at = 64
export const quote = 34
export const backslash = 92
export const openBracket = 91
const del = 127

export const isAtext = 1
export const isLetter = 2
export const isDigit = 4
export const isUpper = 8
export const isHyphen = 16
export const isNotAscii = 32
const lowerLetters = 'abcdefghijklmnopqrstuvwxyz'

/** What each ASCII character can be in an address, as a sum of the flags above. A domain's hyphen is handled separately. */
export const kinds = new Uint8Array(128)
for (const [characters, kind] of [
  [lowerLetters, isAtext | isLetter],
  [lowerLetters.toUpperCase(), isAtext | isLetter | isUpper],
  ['0123456789', isAtext | isDigit],
  ["!#$%&'*+-/=?^_`{|}~", isAtext],
] as const) {
  for (const character of characters) kinds[character.charCodeAt(0)] = kind
}

export const isControl = (code: number): boolean => code < 32 || code === del

export const hasControl = (text: string): boolean => {
  for (let index = 0; index < text.length; index++) if (isControl(text.charCodeAt(index))) return true
  return false
}

export const isAscii = (text: string): boolean => {
  for (let index = 0; index < text.length; index++) if (text.charCodeAt(index) > del) return false
  return true
}
