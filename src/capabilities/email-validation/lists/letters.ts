/** Pairs of keys that touch on a QWERTY keyboard, in both orders. */
export const neighbourKeys: ReadonlySet<string> = new Set(
  ['1234567890', 'qwertyuiop', 'asdfghjkl', 'zxcvbnm'].flatMap((row, rowAt, rows) =>
    [...row].flatMap((key, at) => {
      const below = rows[rowAt + 1] ?? ''
      return [row[at + 1], below[at - 1], below[at]]
        .filter((other) => other !== undefined)
        .flatMap((other) => [`${key}${other}`, `${other}${key}`])
    }),
  ),
)

/** Pairs of letters that look alike: the typed letter, then the intended one. */
export const lookAlikes: ReadonlySet<string> = new Set(['il', '1l', '1i', '0o'])

export const letterBits = (text: string): number => {
  let bits = 0
  for (let at = 0; at < text.length; at++) bits |= 1 << (text.charCodeAt(at) & 31)
  return bits
}

/** Returns the number of set bits, without a loop, because this runs for every name and every provider. */
export const bitCount = (bits: number): number => {
  const pairs = bits - ((bits >>> 1) & 0x55555555)
  const nibbles = (pairs & 0x33333333) + ((pairs >>> 2) & 0x33333333)
  return Math.imul((nibbles + (nibbles >>> 4)) & 0x0f0f0f0f, 0x01010101) >>> 24
}

/** Whether two names have the same letters, each equally often. */
export const isAnagram = (left: string, right: string): boolean =>
  left.length === right.length && [...left].sort().join('') === [...right].sort().join('')
