/** The IP lookup: Specification 2.3 and 4.2, with decisions 1, 4, 5, 7, 11, 18 and 19. */
import { describe, expect, test } from 'vitest'
import { defaultPriceBook, priceBookOf } from '../../src/billing/price-book.ts'
import { london, nowhere } from '../ip-lookup/locations.ts'
import { type AnswerAndFacts, houseForFile, places } from '../support/house.ts'
import { bare, expectRefusedCall, jsonType, rateLimitsOf, ulid } from './wire.ts'

const house = await houseForFile()
const partner = await house.partner({ credits: '1000000' })

const keyUsed = (facts: { success: boolean; country_code: string | null }) => ({
  key_id: partner.keyId,
  capability: 'ip_lookup',
  outcome: 'answered',
  facts: { kind: 'ip_lookup', ...facts, address_hmac: expect.stringMatching(/^[\w-]{43}$/) },
})

const chargedLookup = (countryCode: string) => [
  { type: 'KeyUsed', data: keyUsed({ success: true, country_code: countryCode }) },
  {
    type: 'CreditCharged',
    data: {
      charge_id: expect.stringMatching(/^[0-9a-f-]{36}$/),
      sku: 'ip_lookup',
      amount: '1',
      lines: [{ sku: 'ip_lookup', amount: '1', rule: 'ip_lookup.located', rule_version: 1 }],
      rule: 'ip_lookup.located',
      rule_version: 1,
      price_book_version: 1,
      price_book_digest: priceBookOf(defaultPriceBook).digest,
      allocations: [{ grant_id: expect.any(String), amount: '1' }],
    },
  },
]

/** Expects an answer without a location, recorded free of charge. */
const expectNowhere = (answer: AnswerAndFacts, ip: string): void => {
  const type = ip.includes(':') ? 'IPv6' : 'IPv4'
  expect(answer.status).toBe(200)
  expect(answer.body.result).toEqual({ ip, success: false, type, ...nowhere })
  expect(answer.headers.get('credits-charged')).toBe('0')
  expect(bare(answer.events)).toEqual([
    {
      type: 'KeyUsed',
      data: {
        ...keyUsed({ success: false, country_code: null }),
        free_by: { rule: 'ip_lookup.not_located', rule_version: 1 },
      },
    },
  ])
}

const malformed = (ip: string) => ({
  status: 400,
  error: 'validation_error',
  code: 'IP_001',
  details: { ip, supported_formats: ['IPv4', 'IPv6'] },
})
const missingIp = {
  status: 400,
  error: 'bad_request',
  code: 'REQ_002',
  details: { missing_parameter: 'ip', parameter_type: 'string' },
}

describe('2.3 the IP lookup response', () => {
  test('has result, processing_time_ms and request_id, and nothing else', async () => {
    const { status, headers, body } = await house.lookup(partner, { ip: places.london })
    expect(status).toBe(200)
    expect(Object.keys(body)).toEqual(['result', 'processing_time_ms', 'request_id'])
    expect(body.processing_time_ms).toBeTypeOf('number')
    expect(body.processing_time_ms).toBeGreaterThan(0)
    expect(body.request_id).toMatch(ulid)
    expect(headers.get('x-request-id')).toBe(body.request_id)
    expect(headers.get('content-type')).toBe(jsonType)
    expect(Object.keys(rateLimitsOf({ status, headers, text: '', body }))).toEqual(['minute', 'day'])
  })

  test('a located address has every field, with the largest subdivision as its region', async () => {
    const { body } = await house.lookup(partner, { ip: places.london })
    expect(body.result).toEqual({ ip: '81.2.69.142', success: true, type: 'IPv4', ...london })
  })

  test.each([
    ['without a country in the database', places.nowhere],
    ['unknown to the database', places.unknown],
  ])('an address %s is success false with every field null and is_eu false', async (_, ip) => {
    expectNowhere(await house.lookup(partner, { ip }), ip)
  })
})

describe('4.2 POST /v1/ip/lookup', () => {
  test('4.2.1 a public address is success true and costs its price, in one fact and the charge right after it', async () => {
    const answer = await house.lookup(partner, { ip: places.london })
    expect(bare(answer.events)).toEqual(chargedLookup('GB'))
    expect(JSON.stringify(answer.events)).not.toContain('81.2.69')
    const [fact, charge] = answer.events
    expect(charge?.metadata).toMatchObject({ causation_id: fact?.id, request_id: answer.body.request_id })
    expect(fact?.metadata).toMatchObject({
      request_id: answer.body.request_id,
      actor: `key:${partner.keyId}`,
    })
    expect(answer.headers.get('credits-charged')).toBe('1')
  })

  test.each(['10.0.0.0', '192.168.0.1'])(
    '4.2.2 the private address %s is success false with all location fields null, and costs nothing',
    async (ip) => {
      expectNowhere(await house.lookup(partner, { ip }), ip)
    },
  )

  test('4.2.2 a private address is success false even where the database has an answer', async () => {
    expectNowhere(await house.lookup(partner, { ip: places.private }), places.private)
  })

  test.each(['127.0.0.1', '2001:db8::1', '4000::1'])(
    'decision 18: %s is special-purpose or unallocated: success false, free',
    async (ip) => {
      expectNowhere(await house.lookup(partner, { ip }), ip)
    },
  )

  describe('4.2.3 a malformed address gets IP_001 and costs nothing', () => {
    test.each([
      ['empty', ''],
      ['an octet out of range', '256.1.1.1'],
      ['a CIDR block', '81.2.69.142/32'],
      ['an octal octet', '010.8.8.8'],
      ['a zone id', 'fe80::1%eth0'],
    ])('%s', async (_, ip) => {
      const answer = await house.lookup(partner, { ip })
      expectRefusedCall(answer, partner, malformed(ip))
      expect(answer.body).not.toHaveProperty('result')
    })

    test.each([
      ['a number', 134744072],
      ['an object', { v4: '81.2.69.142' }],
    ])('decision 3: %s instead of a string gets REQ_003', async (_, ip) => {
      const wrongType = {
        status: 400,
        error: 'validation_error',
        code: 'REQ_003',
        details: { parameter: 'ip', expected: 'a string' },
      }
      expectRefusedCall(await house.lookup(partner, { ip }), partner, wrongType)
    })

    test('the submitted text is repeated, cut to 1,024 characters', async () => {
      // Ids, digests and times in the events never contain this character.
      const ip = `${'?'.repeat(1_023)}xyz`
      const answer = await house.lookup(partner, { ip })
      expectRefusedCall(answer, partner, malformed(`${'?'.repeat(1_023)}x`))
      expect(JSON.stringify(answer.events)).not.toContain('?')
    })
  })

  test.each([
    ['absent', {}],
    ['null', { ip: null }],
    ['misspelled', { IP: '81.2.69.142' }],
  ])('4.2.4 an ip that is %s gets REQ_002 and costs nothing', async (_, body) => {
    expectRefusedCall(await house.lookup(partner, body), partner, missingIp)
  })

  test('4.2.5 IPv4 and IPv6 give the same response structure', async () => {
    const v4 = await house.lookup(partner, { ip: places.london })
    const v6 = await house.lookup(partner, { ip: places.londonIPv6 })
    expect(v6.body.result).toEqual({ ip: places.londonIPv6, success: true, type: 'IPv6', ...london })
    expect(Object.keys(Object(v6.body.result))).toEqual(Object.keys(Object(v4.body.result)))
    expect(bare(v6.events)).toEqual(chargedLookup('GB'))
    const nobody = await house.lookup(partner, { ip: '2a02:fff::1' })
    expectNowhere(nobody, '2a02:fff::1')
    expect(Object.keys(Object(nobody.body.result))).toEqual(Object.keys(Object(v4.body.result)))
  })

  test('decision 18: an IPv4-mapped address is answered for the IPv4 address inside it and stays IPv6', async () => {
    const answer = await house.lookup(partner, { ip: '::FFFF:5102:458E' })
    expect(answer.body.result).toEqual({ ip: '::ffff:81.2.69.142', success: true, type: 'IPv6', ...london })
    expect(bare(answer.events)).toEqual(chargedLookup('GB'))
    expectNowhere(await house.lookup(partner, { ip: '::ffff:a00:1' }), '::ffff:10.0.0.1')
  })

  test('decision 19: two spellings of one address are one address in the facts', async () => {
    const spelled = await house.lookup(partner, { ip: '2A02:0C7C:0001::0007' })
    const plain = await house.lookup(partner, { ip: places.londonIPv6 })
    expect(spelled.body.result).toMatchObject({ ip: '2a02:c7c:1::7' })
    expect(spelled.events[0]?.data.facts).toEqual(plain.events[0]?.data.facts)
  })

  test('decision 7: unknown members are ignored', async () => {
    const answer = await house.lookup(partner, {
      ip: places.london,
      language: 'de',
      nested: { ip: '1.2.3.4' },
      constructor: 'x',
    })
    expect(answer.status).toBe(200)
    expect(bare(answer.events)).toEqual(chargedLookup('GB'))
  })
})
