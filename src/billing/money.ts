/** Credits are bigint micro-credits in code, and canonical decimal strings on the wire and in events (decision 8). They are never floats. */
export type MicroCredits = bigint

export const microPerCredit = 1_000_000n
const microNumber = Number(microPerCredit)
const fractionDigits = 6

const canonical = /^(-?)(0|[1-9]\d{0,17})(?:\.(\d{1,6}))?$/

/**
 * A cache of parsed prices: there are few, and every charge contains at least one. Long strings are not cached, because
 * a slice can keep a much larger string in memory.
 */
const parsed = new Map<string, MicroCredits>()
const parsedMax = 4_096
const parsedCharsMax = 12

/**
 * Parses a decimal amount with at most 6 fractional digits, possibly with trailing zeros or a leading minus. Throws a
 * RangeError that quotes the text.
 */
export const parseCredits = (text: string): MicroCredits => {
  const known = parsed.get(text)
  if (known !== undefined) return known
  const micro = microOf(text)
  if (text.length <= parsedCharsMax && parsed.size < parsedMax) parsed.set(text, micro)
  return micro
}

const microOf = (text: string): MicroCredits => {
  const match = canonical.exec(text)
  if (match === null || (text.startsWith('-0') && !/[1-9]/.test(text)))
    throw new RangeError(
      `"${text.slice(0, 40)}" is not a credit amount: use a decimal number with at most 6 fractional digits, such as 1.5`,
    )
  const [, sign, whole = '0', fraction = ''] = match
  const micro = BigInt(whole) * microPerCredit + BigInt(fraction.padEnd(fractionDigits, '0'))
  return sign === '-' ? -micro : micro
}

/** An amount with its unit, from its decimal string: "1 credit", "1.5 credits". */
export const creditsText = (amount: string): string =>
  `${amount} ${/^-?1$/.test(amount) ? 'credit' : 'credits'}`

/** The canonical decimal string, without trailing zeros. `parseCredits` reads it back. */
export const formatCredits = (micro: MicroCredits): string => {
  const magnitude = micro < 0n ? -micro : micro
  const sign = micro < 0n ? '-' : ''
  // The remainder of two safe integers is exact, and much faster with numbers than with bigints.
  const small = Number(magnitude)
  const exact = small <= Number.MAX_SAFE_INTEGER
  const rest = exact ? small % microNumber : Number(magnitude % microPerCredit)
  const whole = exact ? (small - rest) / microNumber : magnitude / microPerCredit
  if (rest === 0) return `${sign}${whole}`
  // recheck: the text has 6 digits.
  return `${sign}${whole}.${rest.toString().padStart(fractionDigits, '0').replace(/0+$/, '')}`
}
