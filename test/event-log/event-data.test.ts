import { createHash } from 'node:crypto'
import { expect, test } from 'vitest'
import { EventDataError, encodeEvent, uuidV5 } from '../../src/event-log/stored-event.ts'
import { catalogue, type DomainEvent } from '../../src/events/catalogue.ts'

/** An event is written only if its own schema can read it again. */

const envelope = {
  id: '6f1c1f0e-8a1b-5c2d-9e3f-0123456789ab',
  actor: 'cli',
  effectiveAt: '2026-09-14T08:31:07.123Z',
}
const encode = (event: unknown): unknown => encodeEvent(event as DomainEvent, envelope)

const granted = {
  grant_id: envelope.id,
  amount: '5',
  priority: 100,
  expires_at: null,
  reason: 'bought',
  overdraft_repaid: '0',
  reference: null,
}
const book = {
  version: 2,
  effective_from: '2026-09-14T08:31:07.123Z',
  rules: [{ rule: 'whoami', rule_version: 1, sku: null, amount: '0' }],
  approver: 'finance',
  proposal: null,
  digest: null,
}

const hot = ['KeyUsed', 'CreditCharged']

test.each(Object.keys(catalogue).filter((type) => !hot.includes(type)))(
  'a %s whose data do not match the schema is refused',
  (type) => {
    expect(() => encode({ type, data: {} })).toThrow(EventDataError)
  },
)

test.each([
  ['reason: at most 200 characters; it has 201', 'CreditGranted', { ...granted, reason: 'a'.repeat(201) }],
  ['reason: at least 1 character; it has 0', 'CreditGranted', { ...granted, reason: '' }],
  ['priority: at most 1000; it is 1001', 'CreditGranted', { ...granted, priority: 1_001 }],
  ['reason: text is expected; it is missing', 'CreditGranted', { ...granted, reason: undefined }],
  ['priority: a number is expected', 'CreditGranted', { ...granted, priority: '1' }],
  [
    'approver: at most 200 characters; it has 300',
    'PriceBookPublished',
    { ...book, approver: 'a'.repeat(300) },
  ],
  ['rules: at least 1 entry; it has 0', 'PriceBookPublished', { ...book, rules: [] }],
  [
    'rules[0].sku: at most 64 characters; it has 65',
    'PriceBookPublished',
    { ...book, rules: [{ ...book.rules[0], sku: 's'.repeat(65) }] },
  ],
] as const)('the refusal names the member and its limit: %s', (sentence, type, data) => {
  expect(() => encode({ type, data })).toThrow(sentence)
})

test.each([
  ['reason: control characters are not allowed', 'bought\0'],
  ['reason: control characters are not allowed', 'bought\nsold'],
  ['reason: control characters are not allowed', 'bought\u0085'],
  ['reason: line and paragraph separators are not allowed', 'bought\u2028sold'],
  ['reason: characters that change the direction of text are not allowed', 'bought\u202esold'],
  ['reason: characters that change the direction of text are not allowed', '\u2066bought'],
  ['reason: it contains an incomplete character (a lone surrogate)', 'bought\ud800'],
])('no event is written with a text that is displayed as another text: %s', (sentence, reason) => {
  expect(() => encode({ type: 'CreditGranted', data: { ...granted, reason } })).toThrow(sentence)
})

test('invalid texts are found at any depth, and texts of all scripts are accepted', () => {
  const rules = [{ ...book.rules[0], sku: 'lookup\0' }]
  expect(() => encode({ type: 'PriceBookPublished', data: { ...book, rules } })).toThrow(
    'rules[0].sku: control characters',
  )
  const reason = 'Übertrag – «הוחזר» 返金 👩‍👩‍👧 می‌خواهم'
  expect(encode({ type: 'CreditGranted', data: { ...granted, reason } })).toBeDefined()
})

test('the refusal does not repeat the refused text', () => {
  const secret = 'somebody@example.com'.padEnd(201, '!')
  let refusal = ''
  try {
    encode({ type: 'CreditGranted', data: { ...granted, reason: secret } })
  } catch (error) {
    refusal = String(error)
  }
  expect(refusal).toContain('reason')
  expect(refusal).not.toContain('somebody')
})

test('data at its limits is written unchanged', () => {
  const data = { ...granted, reason: 'a'.repeat(200) }
  expect(encode({ type: 'CreditGranted', data })).toMatchObject({ data: JSON.stringify(data) })
})

test('the id of a name of any length is its UUIDv5', () => {
  const namespace = Buffer.from('5a1c9a1f7e0b5c1e9d7c3f6c2b8e4d10', 'hex')
  for (const name of [
    '',
    'a',
    'x'.repeat(1_008),
    'x'.repeat(1_009),
    'ü'.repeat(504),
    '金'.repeat(337),
    'x'.repeat(60_000),
  ]) {
    const bytes = createHash('sha1').update(namespace).update(name).digest().subarray(0, 16)
    bytes[6] = ((bytes[6] ?? 0) & 0x0f) | 0x50
    bytes[8] = ((bytes[8] ?? 0) & 0x3f) | 0x80
    expect(uuidV5(name).replaceAll('-', '')).toBe(bytes.toString('hex'))
  }
})
