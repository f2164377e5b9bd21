import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { type DnsQuestion, decodeResponse, encodeQuestion } from '../../src/egress/dns-message.ts'
import { randomCases } from '../support/exhaustive.ts'

const question: DnsQuestion = { id: 0x1234, name: 'a.test', type: 'MX' }
const asked = '01 61 04 74657374 00 000f 0001'

const bytes = (...hex: string[]): Buffer => Buffer.from(hex.join('').replaceAll(' ', ''), 'hex')
/** A response to the question, with the numbers of answers and authorities. */
const response = (answers: number, authorities: number, ...records: string[]): Buffer =>
  bytes('1234 8180 0001', word(answers), word(authorities), '0000', asked, ...records)
const word = (value: number): string => value.toString(16).padStart(4, '0')
const pointer = (at: number): string => word(0xc000 + at)
/** An MX record for the name in the question, which is at offset 12. */
const mx = (exchange: string, ttl = '0000003c'): string => {
  const length = bytes(exchange).length + 2
  return `c00c 000f 0001 ${ttl} ${word(length)} 000a ${exchange}`
}
const exchange = '026d78 c00c'

describe('a question', () => {
  test('is one query for the Internet class with recursion desired', () => {
    expect(encodeQuestion(question)?.toString('hex')).toBe(
      bytes('1234 0100 0001 0000 0000 0000', asked).toString('hex'),
    )
  })

  test.each([
    '',
    '.',
    'a..test',
    '.a',
    'a.',
    'a b.test',
    'a\r\n.test',
    'ä.test',
    `${'a'.repeat(64)}.test`,
    `${'a.'.repeat(127)}a`,
    'a\\046b',
  ])('is refused for an invalid host name: %j', (name) => {
    expect(encodeQuestion({ ...question, name })).toBeNull()
  })

  test('may name the longest possible host name', () => {
    const name = `${'a'.repeat(63)}.${'b'.repeat(63)}.${'c'.repeat(63)}.${'d'.repeat(61)}`
    expect(name).toHaveLength(253)
    expect(encodeQuestion({ ...question, name })).toHaveLength(12 + 255 + 4)
  })
})

describe('an answer', () => {
  test('contains its records, and the smallest of their TTLs', () => {
    expect(decodeResponse(response(2, 0, mx(exchange), mx('00', '00000005')), question)).toEqual({
      kind: 'records',
      records: [
        { value: 'mx.a.test', priority: 10 },
        { value: '', priority: 10 },
      ],
      ttlSeconds: 5,
    })
  })

  test('whose TTL has its top bit set may not be cached', () => {
    expect(decodeResponse(response(1, 0, mx(exchange, '80000001')), question)).toMatchObject({
      ttlSeconds: 0,
    })
  })

  test.each([
    ['another id', bytes('1235 8180 0001 0000 0000 0000', asked)],
    ['a query', bytes('1234 0100 0001 0000 0000 0000', asked)],
    ['another operation', bytes('1234 a980 0001 0000 0000 0000', asked)],
    ['no question', bytes('1234 8180 0000 0000 0000 0000')],
    ['another name', bytes('1234 8180 0001 0000 0000 0000 01 62 04 74657374 00 000f 0001')],
    ['another type', bytes('1234 8180 0001 0000 0000 0000 01 61 04 74657374 00 0001 0001')],
    ['another class', bytes('1234 8180 0001 0000 0000 0000 01 61 04 74657374 00 000f 0003')],
    ['nothing', Buffer.alloc(0)],
  ])('to another question is ignored: %s', (_, message) => {
    expect(decodeResponse(message, question)).toBeNull()
  })

  test('may repeat the name in another case', () => {
    const message = bytes('1234 8180 0001 0000 0000 0000 01 41 04 54455354 00 000f 0001')
    expect(decodeResponse(message, question)).toEqual({ kind: 'no_data', ttlSeconds: null })
  })

  test('ignores records of names that were not requested', () => {
    const stranger = `01 62 00 000f 0001 0000003c 0003 000a 00`
    expect(decodeResponse(response(1, 0, stranger), question)).toEqual({ kind: 'no_data', ttlSeconds: null })
  })

  test('that is negative is cached according to RFC 2308: the smaller of the TTL and the minimum of the SOA', () => {
    const soa = (ttl: string, minimum: string) =>
      `c00c 0006 0001 ${ttl} 0016 00 00 00000001 00000001 00000001 00000001 ${minimum}`
    const seconds = [soa('00000010', '00000020'), soa('00000020', '00000010')].map((record) =>
      decodeResponse(response(0, 1, record), question),
    )
    expect(seconds).toEqual([
      { kind: 'no_data', ttlSeconds: 16 },
      { kind: 'no_data', ttlSeconds: 16 },
    ])
  })

  const nameServer = 'c00c 0002 0001 00000e10 0004 026e73 00'
  const authority = 'c00c 0006 0001 00000010 0016 00 00 00000001 00000001 00000001 00000001 00000020'

  test('that only names other servers is a failure: this server does not resolve for us, and nothing is known', () => {
    expect(decodeResponse(response(0, 1, nameServer), question)).toEqual({ kind: 'failed', code: 'EBADRESP' })
    expect(decodeResponse(response(0, 2, nameServer, nameServer), question)).toMatchObject({ kind: 'failed' })
  })

  test('that is an alias without its target is a failure, unless an SOA shows that the answer is complete', () => {
    const alias = 'c00c 0005 0001 0000003c 0004 0162 c00e'
    expect(decodeResponse(response(1, 0, alias), question)).toEqual({ kind: 'failed', code: 'EBADRESP' })
    expect(decodeResponse(response(1, 1, alias, authority), question)).toEqual({
      kind: 'no_data',
      ttlSeconds: 16,
    })
  })

  test('that names other servers next to the requested records, or next to an SOA, is an answer', () => {
    expect(decodeResponse(response(1, 1, mx(exchange), nameServer), question)).toMatchObject({
      kind: 'records',
    })
    const noData = { kind: 'no_data', ttlSeconds: 16 }
    expect(decodeResponse(response(0, 2, nameServer, authority), question)).toEqual(noData)
    expect(decodeResponse(response(0, 2, authority, nameServer), question)).toEqual(noData)
    const noSuchName = response(0, 1, nameServer)
    noSuchName.writeUInt16BE(0x8183, 2)
    expect(decodeResponse(noSuchName, question)).toEqual({ kind: 'not_found', ttlSeconds: null })
  })

  test.each([
    ['1', 'EFORMERR'],
    ['2', 'ESERVFAIL'],
    ['4', 'ENOTIMP'],
    ['5', 'EREFUSED'],
    ['9', 'EBADRESP'],
  ])('with response code %s is a failure: %s', (rcode, code) => {
    const message = bytes(`1234 818${rcode} 0001 0000 0000 0000`, asked)
    expect(decodeResponse(message, question)).toEqual({ kind: 'failed', code })
  })

  test('that is truncated has to be requested again, no matter what it contains', () => {
    const message = response(1, 0, mx(exchange))
    message.writeUInt16BE(0x8380, 2)
    expect(decodeResponse(message, question)).toEqual({ kind: 'truncated' })
    expect(decodeResponse(message.subarray(0, message.length - 3), question)).toEqual({ kind: 'truncated' })
  })

  const at = 12 + 12 // The first record follows the header and the question.
  test.each([
    ['a pointer to itself', `${pointer(at)} 000f 0001 0000003c 0003 000a 00`],
    ['a pointer ahead', `${pointer(at + 20)} 000f 0001 0000003c 0003 000a 00`],
    ['a label in front of a pointer to that label', mx(`02 6d78 ${pointer(at + 14)}`)],
    ['a reserved kind of label', mx('80 00')],
    ['more records than bytes', ''],
    ['a name past the end', mx('3f 61')],
    ['an exchanger without a name', 'c00c 000f 0001 0000003c 0001 00'],
    ['a name of more than 255 octets', mx(`${`3f${'61'.repeat(63)}`.repeat(4)}00`)],
  ])('that is malformed is EBADRESP: %s', (_, record) => {
    expect(decodeResponse(response(1, 0, record), question)).toEqual({ kind: 'failed', code: 'EBADRESP' })
  })

  test('that ends in the middle of an address is EBADRESP', () => {
    const message = bytes(
      '1234 8180 0001 0001 0000 0000 01 61 04 74657374 00 0001 0001',
      'c00c 0001 0001 0000003c 0003 080808',
    )
    expect(decodeResponse(message, { ...question, type: 'A' })).toEqual({ kind: 'failed', code: 'EBADRESP' })
  })

  test('that announces thousands of records is not read', () => {
    expect(decodeResponse(response(0xffff, 0xffff, mx(exchange)), question)).toEqual({
      kind: 'failed',
      code: 'EBADRESP',
    })
  })

  test('with a loop of aliases is EBADRESP', () => {
    const alias = 'c00c 0005 0001 0000003c 0002 c00c'
    expect(decodeResponse(response(1, 0, alias), question)).toEqual({ kind: 'failed', code: 'EBADRESP' })
  })

  test('contains no octets that could be mistaken for syntax', () => {
    // The labels are "a b", CR LF, an octet that is not UTF-8, and upper-case letters.
    const strange = '03 612062 02 0d0a 01 ff 02 4d58 00'
    expect(decodeResponse(response(1, 0, mx(strange)), question)).toMatchObject({
      records: [{ value: 'a\\032b.\\013\\010.\\65533.mx' }],
    })
  })

  test('of random bytes ends and returns a value', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 600 }), fc.boolean(), (tail, headed) => {
        const message = headed ? response(3, 2, Buffer.from(tail).toString('hex')) : Buffer.from(tail)
        const decoded = decodeResponse(message, question)
        expect(decoded === null || typeof decoded.kind === 'string').toBe(true)
      }),
      { numRuns: randomCases(1_000) },
    )
  })

  test('with any one octet changed or the end cut off ends and returns a value', () => {
    const whole = response(2, 0, mx(exchange), mx('01 62 c01a'))
    fc.assert(
      fc.property(fc.nat(whole.length - 1), fc.nat(255), fc.nat(whole.length), (at, octet, length) => {
        const message = Buffer.from(whole)
        message[at] = octet
        const decoded = decodeResponse(message.subarray(0, length), question)
        expect(decoded === null || typeof decoded.kind === 'string').toBe(true)
      }),
      { numRuns: randomCases(1_000) },
    )
  })
})
