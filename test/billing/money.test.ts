/** Credits are exact decimals with one spelling each, without floating point. */
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { microOf } from '../../projections/micro.ts'
import { formatCredits, microPerCredit, parseCredits } from '../../src/billing/money.ts'
import { creditAmount, signedCreditAmount } from '../../src/events/primitives.ts'
import { randomCases } from '../support/exhaustive.ts'

/** The widest text has 18 digits before the point and 6 after it. */
const widest = 10n ** 24n - 1n
const amounts = fc.oneof(
  fc.bigInt({ min: -widest, max: widest }),
  fc.bigInt({ min: -3_000_000n, max: 3_000_000n }),
  fc.bigInt({ min: -(10n ** 9n), max: 10n ** 9n }).map((whole) => whole * microPerCredit),
)
const seed = 20_260_914

describe('formatting and parsing', () => {
  test('a formatted amount parses to the same amount, to the micro-credit', () => {
    fc.assert(
      fc.property(amounts, (micro) => {
        expect(parseCredits(formatCredits(micro))).toBe(micro)
      }),
      { seed, numRuns: randomCases(1_000) },
    )
  })

  test('a formatted amount is canonical: events accept it, and no other text has the same meaning', () => {
    fc.assert(
      fc.property(amounts, (micro) => {
        const text = formatCredits(micro)
        expect(text).toMatch(/^(-(?!0$))?(0|[1-9]\d*)(\.\d{0,5}[1-9])?$/)
        expect(signedCreditAmount.safeParse(text).success).toBe(true)
        expect(creditAmount.safeParse(text).success).toBe(micro >= 0n)
        expect(formatCredits(parseCredits(text))).toBe(text)
      }),
      { seed, numRuns: randomCases(1_000) },
    )
  })

  test('texts have the order of their amounts: parsing neither rounds nor overflows', () => {
    fc.assert(
      fc.property(amounts, amounts, (a, b) => {
        expect(parseCredits(formatCredits(a)) - parseCredits(formatCredits(b))).toBe(a - b)
      }),
      { seed, numRuns: randomCases(1_000) },
    )
  })

  test('the read models read amounts like the ledger', () => {
    fc.assert(
      fc.property(amounts, (micro) => {
        expect(microOf(formatCredits(micro))).toBe(micro)
      }),
      { seed, numRuns: randomCases(1_000) },
    )
  })

  test.each([
    ['0', 0n],
    ['1', 1_000_000n],
    ['1.5', 1_500_000n],
    ['0.000001', 1n],
    ['-0.000001', -1n],
    ['-12.34', -12_340_000n],
    ['0.1', 100_000n],
    // As JavaScript numbers, integers of this size would no longer be exact.
    ['9007199253.999999', 9_007_199_253_999_999n],
    ['9007199254.740991', 9_007_199_254_740_991n],
    ['9007199254.740992', 9_007_199_254_740_992n],
    ['9007199254.740993', 9_007_199_254_740_993n],
    ['-9007199254.740991', -9_007_199_254_740_991n],
    ['-9007199254.740993', -9_007_199_254_740_993n],
    ['999999999999999999.999999', widest],
    ['-999999999999999999.999999', -widest],
  ])('%s is %d micro-credits', (text, micro) => {
    expect(parseCredits(text)).toBe(micro)
    expect(formatCredits(micro)).toBe(text)
  })

  test.each([
    ['1.50', '1.5'],
    ['1.000000', '1'],
    ['0.0', '0'],
    ['-2.10', '-2.1'],
  ])('%s, as people write it, is parsed as %s', (text, canonical) => {
    expect(formatCredits(parseCredits(text))).toBe(canonical)
    expect(signedCreditAmount.safeParse(text).success).toBe(false)
  })

  test('a tenth of a credit, ten times, is one credit: no float is involved', () => {
    const sum = Array.from({ length: 10 }, () => parseCredits('0.1')).reduce((a, b) => a + b)
    expect(formatCredits(sum)).toBe('1')
  })

  test('many consecutive amounts are formatted correctly', () => {
    for (let micro = 0n; micro < 10_000n; micro++)
      expect(parseCredits(formatCredits(micro * 7n))).toBe(micro * 7n)
  })
})

describe('refused, with the text in the error', () => {
  test.each([
    '',
    ' ',
    '-',
    '.',
    '1.',
    '.5',
    '-.5',
    '+1',
    '--1',
    '1-',
    '01',
    '-01',
    '00',
    '-0',
    '-0.0',
    '-0.000000',
    '1.0000001',
    '0.0000000',
    '1e3',
    '1E3',
    '0x10',
    '1,5',
    '1 000',
    ' 1',
    '1 ',
    '1\n',
    '1_000',
    '1.5.5',
    '١',
    '1n',
    'NaN',
    'Infinity',
    '1000000000000000000',
    '9'.repeat(1_000),
  ])('%j', (text) => {
    expect(() => parseCredits(text)).toThrow(RangeError)
    expect(() => parseCredits(text)).toThrow(`"${text.slice(0, 40)}"`)
    expect(signedCreditAmount.safeParse(text).success).toBe(false)
    expect(creditAmount.safeParse(text).success).toBe(false)
  })

  test('every text that events accept can be parsed, and a text that is not an amount cannot', () => {
    const nearly = fc.stringMatching(/^-?[0-9]{0,20}\.?[0-9]{0,8}$/)
    fc.assert(
      fc.property(nearly, (text) => {
        const read = (): bigint => parseCredits(text)
        if (/^-?(0|[1-9]\d{0,17})(\.\d{1,6})?$/.test(text) && !/^-[0.]+$/.test(text))
          expect(read).not.toThrow()
        else expect(read).toThrow(RangeError)
        if (signedCreditAmount.safeParse(text).success) expect(formatCredits(parseCredits(text))).toBe(text)
      }),
      { seed, numRuns: randomCases(1_000) },
    )
  })
})
