/** The pixel controls over HTTP, with their records in the ledger: Specification 4.5 and 4.6, with decisions 22 and 23. */
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import type { z } from 'zod'
import {
  pixelBlock,
  pixelBlockRemoval,
  pixelBlocks,
  pixelDecision,
  pixelLimit,
  pixelLimitRemoval,
  pixelLimits,
} from '../../src/capabilities/pixel/contract.ts'
import { hitHash } from '../../src/capabilities/pixel/counters.ts'
import { decodeEvent } from '../../src/event-log/stored-event.ts'
import type { PixelFacts } from '../../src/events/pixel.ts'
import { pixelStream } from '../../src/events/streams.ts'
import { type AnswerAndFacts, houseForFile, type Partner } from '../support/house.ts'
import { type Bare, bare, expectCredits, expectErrorObject, rateLimitsOf, ulid } from './wire.ts'

const house = await houseForFile({ clock: 'movable' })
const moveTo = (iso: string): void => house.moveClock(Date.parse(iso) - Date.now())
// The time is far from the end of a day or month, so no period ends during a test.
moveTo('2031-05-14T12:00:00.000Z')

const limits = { requests_per_minute: 100_000, requests_per_day: 1_000_000 }
const newPartner = (): Promise<Partner> =>
  house.partner({ permissions: ['pixel_control'], credits: '5', limits })

type Path = '/pixel/limit' | '/pixel/block' | '/pixel/decide'

const send = (
  partner: Partner,
  method: 'POST' | 'DELETE',
  path: Path,
  body: unknown,
  headers: Readonly<Record<string, string>> = {},
): Promise<AnswerAndFacts> =>
  house.ask(partner, { method, path, body, headers: { 'content-type': 'application/json', ...headers } })

const listOf = (partner: Partner, path: Path): Promise<AnswerAndFacts> =>
  house.ask(partner, { method: 'GET', path })

const resultOf = <Result>(answer: AnswerAndFacts, schema: z.ZodType<Result>): Result => {
  expect({ status: answer.status, text: answer.text }).toMatchObject({ status: 200 })
  return schema.parse(answer.body.result)
}

const setLimit = async (partner: Partner, domain: string, number: number, period = 'day') =>
  resultOf(await send(partner, 'POST', '/pixel/limit', { domain, period, number }), pixelLimit)
const block = async (partner: Partner, domain: string) =>
  resultOf(await send(partner, 'POST', '/pixel/block', { domain }), pixelBlock)
const decide = async (partner: Partner, url: string, hitId?: string) =>
  resultOf(
    await send(partner, 'POST', '/pixel/decide', { url, ...(hitId === undefined ? {} : { hit_id: hitId }) }),
    pixelDecision,
  )
const firesOf = async (partner: Partner, ...urls: string[]): Promise<boolean[]> => {
  const fires: boolean[] = []
  for (const url of urls) fires.push((await decide(partner, url)).fire)
  return fires
}

const used = (
  { keyId }: Partner,
  action: PixelFacts['action'],
  domain: string | null = null,
  fire: boolean | null = null,
): Bare => ({
  type: 'KeyUsed',
  data: {
    key_id: keyId,
    capability: 'pixel',
    outcome: 'answered',
    facts: { kind: 'pixel', action, domain, fire },
    free_by: { rule: 'pixel', rule_version: 1 },
  },
})

const rulesRecorded = async ({ organizationId }: Partner): Promise<Bare[]> =>
  (await house.foundation.eventLog.read(pixelStream(organizationId), { max: 1_000 })).map((one) => {
    const { type, data } = decodeEvent(one)
    return { type, data }
  })

const tomorrow = (): string => new Date(Math.floor(Date.now() / 86_400_000 + 1) * 86_400_000).toISOString()
const nextMonth = (): string => {
  const now = new Date()
  return new Date(Date.UTC(now.getUTCFullYear(), now.getUTCMonth() + 1, 1)).toISOString()
}

describe('4.5 POST /pixel/limit', () => {
  test('sets a limit, returns it in full, records the rule and a free call', async () => {
    const partner = await newPartner()
    const answer = await send(partner, 'POST', '/pixel/limit', {
      domain: 'WWW.Example.com.',
      period: 'month',
      number: 100,
    })
    expect(answer.body).toEqual({
      result: {
        domain: 'www.example.com',
        period: 'month',
        number: 100,
        used: 0,
        remaining: 100,
        resets_at: nextMonth(),
      },
      processing_time_ms: expect.any(Number),
      request_id: expect.stringMatching(ulid),
    })
    expect(bare(answer.events)).toEqual([used(partner, 'limit_set', 'www.example.com')])
    expect(await rulesRecorded(partner)).toEqual([
      {
        type: 'PixelLimitSet',
        data: {
          organization_id: partner.organizationId,
          domain: 'www.example.com',
          period: 'month',
          number: 100,
        },
      },
    ])
    expectCredits(answer, '0', '5')
    rateLimitsOf(answer)
  })

  test('applies from the moment of the answer, to the domain and everything below it, and to nothing else', async () => {
    const partner = await newPartner()
    await setLimit(partner, 'example.com', 2)
    expect(
      await firesOf(
        partner,
        'https://example.com/',
        'http://a.b.EXAMPLE.com:8080/x?y#z',
        'https://example.com./',
        'https://a.example.com/',
        'https://badexample.com/',
        'https://example.com.evil.org/',
        'https://example.org/',
      ),
    ).toEqual([true, true, false, false, true, true, true])
  })

  test.each([1, 5.0, 1_000_000_000])('a number of %s is accepted', async (number) => {
    const partner = await newPartner()
    expect(await setLimit(partner, 'example.com', number)).toMatchObject({ number, remaining: number })
  })
})

describe('4.5 DELETE and GET /pixel/limit', () => {
  test('a removed limit no longer applies, but the other period does; the answer reports the removal', async () => {
    const partner = await newPartner()
    await setLimit(partner, 'example.com', 1, 'day')
    await setLimit(partner, 'example.com', 2, 'month')
    expect(await firesOf(partner, 'https://example.com/', 'https://example.com/')).toEqual([true, false])
    const answer = await send(partner, 'DELETE', '/pixel/limit', { domain: 'example.com', period: 'day' })
    expect(resultOf(answer, pixelLimitRemoval)).toEqual({
      domain: 'example.com',
      period: 'day',
      removed: true,
    })
    expect(bare(answer.events)).toEqual([used(partner, 'limit_removed', 'example.com')])
    expect(await firesOf(partner, 'https://example.com/', 'https://example.com/')).toEqual([true, false])
    expect((await rulesRecorded(partner)).at(-1)).toEqual({
      type: 'PixelLimitRemoved',
      data: { organization_id: partner.organizationId, domain: 'example.com', period: 'day' },
    })
    const again = await send(partner, 'DELETE', '/pixel/limit', { domain: 'example.com', period: 'day' })
    expect(resultOf(again, pixelLimitRemoval)).toMatchObject({ removed: false })
    expect(await rulesRecorded(partner)).toHaveLength(3)
  })

  test('limits are listed by domain with their use, and only those of the organization', async () => {
    const [partner, other] = [await newPartner(), await newPartner()]
    expect(resultOf(await listOf(partner, '/pixel/limit'), pixelLimits)).toEqual({ limits: [] })
    await setLimit(partner, 'example.org', 5)
    await setLimit(partner, 'example.com', 5)
    await setLimit(other, 'example.net', 5)
    await decide(partner, 'https://example.com/')
    const answer = await listOf(partner, '/pixel/limit')
    expect(
      resultOf(answer, pixelLimits).limits.map(({ domain, used: counted }) => [domain, counted]),
    ).toEqual([
      ['example.com', 1],
      ['example.org', 0],
    ])
    expect(bare(answer.events)).toEqual([used(partner, 'limits_listed')])
  })
})

describe('4.6 /pixel/block', () => {
  test('stops every URL of the domain and below it, immediately, and no other', async () => {
    const partner = await newPartner()
    const answer = await send(partner, 'POST', '/pixel/block', { domain: 'example.com' })
    expect(resultOf(answer, pixelBlock)).toMatchObject({ domain: 'example.com', blocked: true })
    expect(bare(answer.events)).toEqual([used(partner, 'blocked', 'example.com')])
    expect(await decide(partner, 'https://a.b.example.com/x')).toEqual({
      fire: false,
      reason: 'blocked',
      domain: 'example.com',
      remaining: null,
      resets_at: null,
    })
    expect(
      await firesOf(
        partner,
        'https://example.com/',
        'http://EXAMPLE.COM./',
        'https://user@example.com:444/',
        'https://_dmarc.example.com/',
        'https://badexample.com/',
        'https://example.com.evil.org/',
        'https://evil.org/?u=https://example.com/',
        'https://example.com@evil.org/',
      ),
    ).toEqual([false, false, false, false, true, true, true, true])
  })

  test('a domain that is blocked twice has one block; after it is unblocked, its pixels fire again; unblocking twice is not an error', async () => {
    const partner = await newPartner()
    const first = await block(partner, 'example.com')
    house.moveClock(60_000)
    expect(await block(partner, 'example.com')).toEqual(first)
    const answer = await send(partner, 'DELETE', '/pixel/block', { domain: 'example.com' })
    expect(resultOf(answer, pixelBlockRemoval)).toEqual({
      domain: 'example.com',
      blocked: false,
      blocked_at: null,
      removed: true,
    })
    expect(bare(answer.events)).toEqual([used(partner, 'unblocked', 'example.com')])
    expect(await decide(partner, 'https://example.com/')).toMatchObject({ fire: true, reason: 'no_rule' })
    expect(
      resultOf(await send(partner, 'DELETE', '/pixel/block', { domain: 'example.com' }), pixelBlockRemoval),
    ).toMatchObject({ removed: false })
    expect((await rulesRecorded(partner)).map(({ type }) => type)).toEqual(['PixelBlocked', 'PixelUnblocked'])
  })

  test('blocks are listed by domain with the time each was set', async () => {
    const partner = await newPartner()
    const org = await block(partner, 'example.org')
    const com = await block(partner, 'example.com')
    const answer = await listOf(partner, '/pixel/block')
    expect(resultOf(answer, pixelBlocks)).toEqual({ blocks: [com, org] })
    expect(bare(answer.events)).toEqual([used(partner, 'blocks_listed')])
  })
})

describe('a DELETE reads its parameters from the query too', () => {
  const remove = (partner: Partner, pathAndQuery: string, body?: unknown) =>
    house.ask(partner, {
      method: 'DELETE',
      path: pathAndQuery,
      ...(body === undefined ? {} : { body, headers: { 'content-type': 'application/json' } }),
    })

  test('without a body, and without a content type', async () => {
    const partner = await newPartner()
    await setLimit(partner, 'example.com', 5)
    await block(partner, 'xn--mnchen-3ya.example.com')
    const limit = await remove(partner, '/pixel/limit?period=day&domain=Example.com')
    expect(resultOf(limit, pixelLimitRemoval)).toMatchObject({ domain: 'example.com', removed: true })
    expect(bare(limit.events)).toEqual([used(partner, 'limit_removed', 'example.com')])
    const blocked = await remove(partner, `/pixel/block?domain=${encodeURIComponent('münchen.example.com')}`)
    expect(resultOf(blocked, pixelBlockRemoval)).toMatchObject({ removed: true })
    expect(resultOf(await listOf(partner, '/pixel/limit'), pixelLimits)).toEqual({ limits: [] })
    expect(resultOf(await listOf(partner, '/pixel/block'), pixelBlocks)).toEqual({ blocks: [] })
  })

  test('together with a body, whose members take precedence', async () => {
    const partner = await newPartner()
    await setLimit(partner, 'example.com', 5)
    await setLimit(partner, 'example.org', 5)
    const answer = await remove(partner, '/pixel/limit?period=day&domain=example.org', {
      domain: 'example.com',
    })
    expect(resultOf(answer, pixelLimitRemoval)).toMatchObject({ domain: 'example.com', removed: true })
    expect(resultOf(await listOf(partner, '/pixel/limit'), pixelLimits).limits).toHaveLength(1)
  })

  test.each([
    ['', 'REQ_002', { missing_parameter: 'domain', parameter_type: 'string' }],
    ['?domain=a.com&domain=b.com&period=day', 'REQ_003', { parameter: 'domain' }],
  ])('and refuses %j as in a body', async (query, code, details) => {
    const answer = await remove(await newPartner(), `/pixel/limit${query}`)
    expect({ status: answer.status, body: answer.body }).toMatchObject({
      status: 400,
      body: { code, details },
    })
  })

  test('but no other method does: a POST without a body gets REQ_001', async () => {
    const answer = await house.ask(await newPartner(), { path: '/pixel/block?domain=example.com' })
    expect({ status: answer.status, code: answer.body.code }).toEqual({ status: 415, code: 'REQ_001' })
  })
})

describe('decision 23: POST /pixel/decide', () => {
  test('a hit under a limit is one free fact of the ledger, without the URL', async () => {
    const partner = await newPartner()
    await setLimit(partner, 'example.com', 1)
    const url = 'https://shop.example.com/secret-path?mail=somebody@example.com'
    const answer = await send(partner, 'POST', '/pixel/decide', { url })
    expect(resultOf(answer, pixelDecision)).toEqual({
      fire: true,
      reason: 'allowed',
      domain: 'example.com',
      remaining: 0,
      resets_at: tomorrow(),
    })
    expect(bare(answer.events)).toEqual([used(partner, 'decided', 'example.com', true)])
    expectCredits(answer, '0', '5')
    expect(JSON.stringify(answer.events)).not.toMatch(/secret-path|somebody/)
    const refused = await send(partner, 'POST', '/pixel/decide', { url })
    expect(bare(refused.events)).toEqual([used(partner, 'decided', 'example.com', false)])
  })

  test('a hit_id is stored as a keyed hash, so that a reader of the table cannot verify a guess', async () => {
    const partner = await newPartner()
    await setLimit(partner, 'example.com', 5)
    await decide(partner, 'https://example.com/', 'somebody@example.com')
    const rows = await house.query('select hit_hash from pixel_hits where organization_id = $1', [
      partner.organizationId,
    ])
    expect(rows).toHaveLength(1)
    expect(rows).not.toEqual([{ hit_hash: hitHash('example.com', 'somebody@example.com') }])
  })

  test("one organization's rules and counters do not affect another", async () => {
    const [one, other] = [await newPartner(), await newPartner()]
    await setLimit(one, 'example.com', 1)
    await setLimit(other, 'example.com', 1)
    await block(one, 'example.org')
    expect(
      await firesOf(one, 'https://example.com/', 'https://example.com/', 'https://example.org/'),
    ).toEqual([true, false, false])
    expect(await firesOf(other, 'https://example.com/', 'https://example.org/')).toEqual([true, true])
  })

  test('all keys of an organization share its counters', async () => {
    const partner = await newPartner()
    const second = await house.key(partner.organizationId, { permissions: ['pixel_control'], limits })
    await setLimit(partner, 'example.com', 2)
    expect([
      ...(await firesOf(partner, 'https://example.com/')),
      ...(await firesOf(second, 'https://example.com/', 'https://example.com/')),
    ]).toEqual([true, true, false])
  })

  test('a hit with an id gets its first answer again, even if limits have changed, unless it is blocked, and is counted once', async () => {
    const partner = await newPartner()
    await setLimit(partner, 'example.com', 2)
    const first = await decide(partner, 'https://example.com/', 'h1')
    expect(first).toMatchObject({ fire: true, remaining: 1 })
    await setLimit(partner, 'example.com', 50)
    expect(await decide(partner, 'https://example.com/', 'h1')).toEqual(first)
    await block(partner, 'example.com')
    for (const hit of ['h1', 'h2'])
      expect(await decide(partner, 'https://example.com/', hit)).toMatchObject({ reason: 'blocked' })
    await send(partner, 'DELETE', '/pixel/block', { domain: 'example.com' })
    expect(await decide(partner, 'https://example.com/', 'h1')).toEqual(first)
    expect(await decide(partner, 'https://example.com/', 'h2')).toMatchObject({ reason: 'blocked' })
    expect(await setLimit(partner, 'example.com', 50)).toMatchObject({ used: 1 })
  })
})

test('decision 22: at the end of a UTC day a new day begins, but not a new month', async () => {
  const [before, day, month] = [
    '2036-02-28T23:59:58.000Z',
    '2036-02-29T00:00:00.000Z',
    '2036-03-01T00:00:00.000Z',
  ]
  const hit = () => decide(partner, 'https://example.com/')
  moveTo(before)
  const partner = await newPartner()
  await setLimit(partner, 'example.com', 1, 'day')
  await setLimit(partner, 'example.com', 2, 'month')
  moveTo(before)
  expect(await hit()).toMatchObject({ fire: true, remaining: 0, resets_at: day })
  expect(await hit()).toMatchObject({ fire: false, resets_at: day })
  moveTo(day)
  expect(await hit()).toMatchObject({ fire: true, remaining: 0, resets_at: month })
  expect(await hit()).toMatchObject({ fire: false, resets_at: month })
})

describe('missing and invalid parameters', () => {
  const domainExpected =
    'a registrable domain or a subdomain, such as "example.com": no scheme, port, path, wildcard or IP address'
  const good = { domain: 'example.com', period: 'day', number: 5 }
  let partner: Partner
  let other: Partner
  beforeAll(async () => {
    partner = await newPartner()
    other = await house.partner({ permissions: ['ip_lookup'] })
  })
  // Only the first 60 refusals for each key and minute are recorded individually.
  beforeEach(() => house.moveClock(2_000))

  const expectRefused = (
    answer: AnswerAndFacts,
    refusal: { code: string; error: string; details: Readonly<Record<string, unknown>> },
  ): void => {
    expectErrorObject(answer, { status: 400, ...refusal })
    expect(bare(answer.events)).toEqual([
      {
        type: 'KeyUsed',
        data: {
          key_id: partner.keyId,
          capability: 'pixel',
          outcome: 'refused',
          code: refusal.code,
          facts: { kind: 'refusal', code: refusal.code },
          free_by: { rule: 'refusal', rule_version: 1 },
        },
      },
    ])
    expectCredits(answer, '0', '5')
  }
  const missing = (name: string, type: string) => ({
    error: 'bad_request',
    code: 'REQ_002',
    details: { missing_parameter: name, parameter_type: type },
  })
  const wrong = (parameter: string, expected: string) => ({
    error: 'validation_error',
    code: 'REQ_003',
    details: { parameter, expected },
  })

  afterAll(async () => {
    expect(resultOf(await listOf(partner, '/pixel/limit'), pixelLimits)).toEqual({ limits: [] })
    expect(resultOf(await listOf(partner, '/pixel/block'), pixelBlocks)).toEqual({ blocks: [] })
  })

  const noDomain = missing('domain', 'string')
  const wrongDomain = wrong('domain', domainExpected)
  const wrongPeriod = wrong('period', '"day" or "month"')
  const wrongNumber = wrong('number', 'a whole number from 1 to 1000000000')
  const wrongUrl = wrong('url', 'an absolute http or https URL of at most 8192 characters')
  const wrongHit = wrong('hit_id', 'a string of 1 to 128 characters')
  const url = 'https://example.com/'

  test.each([
    ['POST', '/pixel/limit', { ...good, domain: undefined }, noDomain],
    ['DELETE', '/pixel/limit', { ...good, domain: null }, noDomain],
    ['POST', '/pixel/block', {}, noDomain],
    ['DELETE', '/pixel/block', { domain: null }, noDomain],
    ['POST', '/pixel/limit', { ...good, domain: 5 }, wrongDomain],
    ['DELETE', '/pixel/limit', { ...good, domain: ['example.com'] }, wrongDomain],
    ['POST', '/pixel/block', { domain: 'co.uk' }, wrongDomain],
    ['DELETE', '/pixel/block', { domain: 'https://example.com/' }, wrongDomain],
    ['POST', '/pixel/limit', { ...good, period: undefined }, missing('period', 'string')],
    ['DELETE', '/pixel/limit', { ...good, period: null }, missing('period', 'string')],
    ['POST', '/pixel/limit', { ...good, period: 'Day' }, wrongPeriod],
    ['DELETE', '/pixel/limit', { ...good, period: ['day'] }, wrongPeriod],
    ['POST', '/pixel/limit', { ...good, number: null }, missing('number', 'number')],
    ...[0, -1, 1.5, 1_000_000_001, '5', true].map(
      (number) => ['POST', '/pixel/limit', { ...good, number }, wrongNumber] as const,
    ),
    ['POST', '/pixel/decide', { url: null }, missing('url', 'string')],
    ['POST', '/pixel/decide', { url: 'ftp://example.com/' }, wrongUrl],
    ['POST', '/pixel/decide', { url: [url] }, wrongUrl],
    ...['', 'x'.repeat(129), 5].map(
      (hit_id) => ['POST', '/pixel/decide', { url, hit_id }, wrongHit] as const,
    ),
  ] as const)('%s %s %j is refused', async (method, path, body, refusal) => {
    expectRefused(await send(partner, method, path, body), refusal)
  })

  test('a URL has at most 8192 characters', async () => {
    const decideOn = (characters: number) =>
      send(partner, 'POST', '/pixel/decide', { url: url.padEnd(characters, 'x') })
    expectRefused(await decideOn(8_193), wrongUrl)
    expect((await decideOn(8_192)).status).toBe(200)
  })

  test.each([
    ['POST', '/pixel/limit'],
    ['DELETE', '/pixel/limit'],
    ['GET', '/pixel/limit'],
    ['POST', '/pixel/block'],
    ['DELETE', '/pixel/block'],
    ['GET', '/pixel/block'],
    ['POST', '/pixel/decide'],
  ])('a key without pixel_control may not %s %s', async (method, path) => {
    const answer = await house.ask(other, { method, path, headers: { 'content-type': 'application/json' } })
    expectErrorObject(answer, {
      status: 403,
      error: 'forbidden',
      code: 'AUTH_002',
      details: { required_permission: 'pixel_control' },
    })
  })
})

describe('when the counters are unreachable', () => {
  const away = async (work: () => Promise<void>): Promise<void> => {
    await house.query('alter table pixel_counters rename to pixel_counters_away')
    try {
      await work()
    } finally {
      await house.query('alter table pixel_counters_away rename to pixel_counters')
    }
  }

  test('a limited pixel does not fire and gives the reason, and pixels without limits work', async () => {
    const partner = await newPartner()
    await setLimit(partner, 'example.com', 5)
    await block(partner, 'example.org')
    await away(async () => {
      const answer = await send(partner, 'POST', '/pixel/decide', { url: 'https://example.com/' })
      expect(resultOf(answer, pixelDecision)).toEqual({
        fire: false,
        reason: 'unavailable',
        domain: null,
        remaining: null,
        resets_at: null,
      })
      expect(bare(answer.events)).toEqual([used(partner, 'decided', null, false)])
      expect(await decide(partner, 'https://example.org/')).toMatchObject({ reason: 'blocked' })
      expect(await decide(partner, 'https://example.net/')).toMatchObject({ fire: true, reason: 'no_rule' })
    })
    expect(await decide(partner, 'https://example.com/')).toMatchObject({ fire: true, remaining: 4 })
  })

  test('rules can still be set and listed; their use is null', async () => {
    const partner = await newPartner()
    await away(async () => {
      expect(await setLimit(partner, 'example.com', 5)).toMatchObject({ used: null, remaining: null })
      const { limits: listed } = resultOf(await listOf(partner, '/pixel/limit'), pixelLimits)
      expect(listed).toMatchObject([{ number: 5, used: null, remaining: null }])
    })
    expect(await setLimit(partner, 'example.com', 5)).toMatchObject({ used: 0, remaining: 5 })
  })
})

describe('when the event log fails', () => {
  test('a rule that cannot be recorded gets 503 SYS_002 and does not apply', async () => {
    const partner = await newPartner()
    const mend = await house.breakLog()
    const answer = await send(partner, 'POST', '/pixel/block', { domain: 'example.com' })
    expect([answer.status, answer.body.code]).toEqual([503, 'SYS_002'])
    await mend()
    expect(await decide(partner, 'https://example.com/')).toMatchObject({ fire: true, reason: 'no_rule' })
    await block(partner, 'example.com')
    expect(await decide(partner, 'https://example.com/')).toMatchObject({ fire: false, reason: 'blocked' })
  })
})
