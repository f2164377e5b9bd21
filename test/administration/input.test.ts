import { describe, expect, test } from 'vitest'
import { z } from 'zod'
import { valuesOf } from '../../src/administration/declare.ts'
import { line, reference } from '../../src/administration/fields.ts'
import {
  amountOf,
  durationMsOf,
  expiryOf,
  futureExpiryOf,
  InputFault,
  instantOf,
  keyIdOf,
  labelOf,
  signedAmountOf,
  wholeNumber,
} from '../../src/administration/input.ts'
import { allowedCidrsOf, permissionsOf } from '../../src/administration/keys/key-request.ts'
import { priceRulesOf } from '../../src/administration/prices/price-file.ts'
import { faultOf } from '../../src/dashboard/form.ts'
import { composeApiKey } from '../../src/keys/api-key.ts'

/** Every rule for operator input names the refused field, so that interfaces do not have to parse the message. */

const nowMs = Date.parse('2026-11-22T12:00:00Z')

const named = z.object({ name: line({ label: 'Name', help: 'any name' }) })
const referenced = z.object({ reference: reference() })
const refused = (text: string) => () => valuesOf(referenced, { reference: text })
const inFile = { field: 'file', base: [] }

const refusals: readonly (readonly [field: string, message: string, read: () => unknown])[] = [
  ['name', 'it contains only white space', () => labelOf('name', '  ')],
  [
    'priority',
    '"1001" is not a whole number from 0 to 1000',
    () => wholeNumber('priority', '1001', { min: 0, max: 1000 }),
  ],
  [
    'at',
    '"tomorrow" is not an ISO 8601 instant such as 2027-01-31T00:00:00Z',
    () => instantOf('at', 'tomorrow'),
  ],
  [
    'expires-at',
    '2026-11-22T12:00:00Z is in the past',
    () => futureExpiryOf('expires-at', '2026-11-22T12:00:00Z', nowMs),
  ],
  [
    'grace',
    '"1 day" is not a duration such as 90s, 15m, 24h or 7d',
    () => durationMsOf('grace', '1 day', { daysMax: 90 }),
  ],
  [
    'amount',
    '"0" is not a positive decimal number of credits, such as 100 or 1.5 (at most 1000000000, with up to 6 decimal places)',
    () => amountOf('amount', '0', { zero: false }),
  ],
  [
    'amount',
    '"-0.0000001" is not a decimal number of credits, such as 100 or -1.5 (at most 1000000000, with up to 6 decimal places, and not 0)',
    () => signedAmountOf('amount', '-0.0000001'),
  ],
  [
    'allow',
    'give an address or a CIDR block such as 203.0.113.0/24, or omit this field to allow any address',
    () => allowedCidrsOf([]),
  ],
  ['permissions', expect.stringMatching(/^give at least one of /), () => permissionsOf([])],
  ['permissions', expect.stringMatching(/^there is no permission "all"; /), () => permissionsOf(['all'])],
  [
    'file',
    expect.stringMatching(/^rule whoami: "-1" is not a decimal number of credits, /),
    () => priceRulesOf([{ rule: 'whoami', rule_version: 1, sku: null, amount: '-1' }], inFile),
  ],
  // References that look like INV 1, or like Müller.
  ['reference', expect.stringContaining('contains U+00A0, so it can look'), refused('INV\u{a0}1')],
  ['reference', expect.stringContaining('contains U+200B, so it can look'), refused('INV\u{200b} 1')],
  ['reference', expect.stringContaining('contains two spaces in a row, so it'), refused('INV  1')],
  ['reference', expect.stringContaining('is not in Unicode normal form C'), refused('Mu\u{308}ller')],
  ['limit', 'this field does not exist; there are no fields', () => valuesOf(z.object({}), { limit: '1' })],
  ['naem', 'this field does not exist; the fields are name', () => valuesOf(named, { naem: 'a' })],
  ['name', 'the value must have the JSON type string', () => valuesOf(named, { name: 5 })],
]

test.each(refusals)('%s: %s', (field, message, read) => {
  expect(read).toThrow(InputFault)
  expect(read).toThrow(expect.objectContaining({ field, message }))
})

test('surrounding white space is removed from input, and values are normalized', () => {
  expect(labelOf('name', ' Acme ')).toBe('Acme')
  expect(valuesOf(referenced, { reference: '\u{a0}M\u{fc}ller/2026 17 ' })).toEqual({
    reference: 'Müller/2026 17',
  })
  expect(wholeNumber('from', ' 7 ', { min: 0, max: 10 })).toBe(7)
  expect(instantOf('at', ' 2027-01-31T01:00:00+01:00 ')).toBe('2027-01-31T00:00:00.000Z')
  for (const [text, instant] of [
    ['2028-02-29', '2028-02-29T00:00:00.000Z'],
    ['2027-01-31 10:00', '2027-01-31T10:00:00.000Z'],
    ['2027-01-31t10:00:00.5z', '2027-01-31T10:00:00.500Z'],
    ['2027-01-01T00:30+0100', '2026-12-31T23:30:00.000Z'],
  ] as const)
    expect(instantOf('at', text), text).toBe(instant)
  expect(expiryOf('at', '2026-12-31')).toBe('2026-12-31T23:59:59.999Z')
  expect(expiryOf('at', '2026-12-31T00:00Z')).toBe('2026-12-31T00:00:00.000Z')
  expect(durationMsOf('grace', ' 15m ', { daysMax: 1 })).toBe(900_000)
  expect(amountOf('amount', '1.50', { zero: false })).toBe(1_500_000n)
})

test('8 an operator cannot enter more credits than the read models can store', () => {
  expect(amountOf('amount', '1000000000', { zero: false })).toBe(1_000_000_000_000_000n)
  for (const text of ['1000000000.000001', '10000000000000', '-1', '1e3', '', '1.0000001'])
    expect(() => amountOf('amount', text, { zero: false }), text).toThrow(InputFault)
  expect(amountOf('amount', '0', { zero: true })).toBe(0n)
})

test('a day that does not exist is refused, not read as a day in the next month', () => {
  for (const text of [
    '2026-02-30',
    '0000-01-01',
    '2026-11-31T23:59:59+01:00',
    '2026-13-01',
    '2026-01-01T25:00Z',
    '2026-01-01T00:00:00Z and more',
    '0000-01-01T00:00+01:00',
    '',
  ])
    expect(() => expiryOf('at', text), text).toThrow(expect.objectContaining({ field: 'at' }))
})

test('text without a time zone is read as UTC, in any local time zone', () => {
  const { TZ } = process.env
  try {
    process.env.TZ = 'America/New_York'
    expect(instantOf('at', '2027-01-31T20:00')).toBe('2027-01-31T20:00:00.000Z')
  } finally {
    if (TZ === undefined) delete process.env.TZ
    else process.env.TZ = TZ
  }
})

describe('an API key', () => {
  const { apiKey, keyId } = composeApiKey(Buffer.from(Array.from({ length: 128 }, (_, i) => (i * 37) % 248)))

  test.each([
    ['whole', apiKey],
    ['by its id', keyId],
    ['with its prefix', `enl_live_${keyId}`],
    ['with white space around it', ` ${apiKey}\n`],
  ])('%s is the same key', (_, text) => {
    expect(keyIdOf('key', text)).toBe(keyId)
  })

  test('that was truncated is refused without repeating its secret', () => {
    const cutOff = apiKey.slice(0, -3)
    expect(() => keyIdOf('key', cutOff)).toThrow('cut off or mistyped')
    expect(() => keyIdOf('key', cutOff)).not.toThrow(cutOff.slice(26, 40))
  })
})

test('a form shows the error next to its field', () => {
  expect(faultOf(new InputFault('grace', 'at most 90d; it is 91d'))).toEqual({
    field: 'grace',
    message: 'At most 90d; it is 91d.',
  })
  expect(faultOf(new Error('--grace: not for people'))).toBeNull()
})
