/** Specification §4.5 and §4.6, decisions 22 and 23: the pixel controls, over HTTP, with their records in the ledger. */
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest'
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
import {
  type AnswerAndFacts,
  type BlockedLog,
  type House,
  openHouse,
  type Partner,
  until,
} from '../support/house.ts'
import { type Bare, bare, expectCredits, expectErrorObject, rateLimitsOf, ulid } from './wire.ts'

let house: House
beforeAll(async () => {
  house = await openHouse({ clock: 'movable' })
  // Far from the end of a day or month, so that no period ends during a test.
  moveTo('2031-05-14T12:00:00.000Z')
})
afterAll(() => house?.close())

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

/** Moves the house's clock forward to an instant. */
const moveTo = (iso: string): void => house.moveClock(Date.parse(iso) - Date.now())
/** The first instant of tomorrow and of next month. */
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

  test('a domain with its own limit and a limit of its parent counts against both; both must allow the hit', async () => {
    const partner = await newPartner()
    await setLimit(partner, 'example.com', 3)
    await setLimit(partner, 'a.example.com', 2)
    const decisions = []
    for (let n = 0; n < 4; n++) decisions.push(await decide(partner, 'https://a.example.com/'))
    expect(decisions.map(({ fire, domain, remaining }) => [fire, domain, remaining])).toEqual([
      [true, 'a.example.com', 1],
      [true, 'a.example.com', 0],
      [false, 'a.example.com', 0],
      [false, 'a.example.com', 0],
    ])
    // A refused hit counts against neither limit.
    expect(await decide(partner, 'https://b.example.com/')).toMatchObject({
      fire: true,
      domain: 'example.com',
      remaining: 0,
    })
    expect(await decide(partner, 'https://b.example.com/')).toMatchObject({ fire: false, reason: 'limit' })
  })

  test('a daily and a monthly limit apply together', async () => {
    const partner = await newPartner()
    await setLimit(partner, 'example.com', 2, 'day')
    await setLimit(partner, 'example.com', 3, 'month')
    expect(await firesOf(partner, ...Array.from({ length: 3 }, () => 'https://example.com/'))).toEqual([
      true,
      true,
      false,
    ])
    const { limits: listed } = resultOf(await listOf(partner, '/pixel/limit'), pixelLimits)
    expect(listed).toEqual([
      { domain: 'example.com', period: 'day', number: 2, used: 2, remaining: 0, resets_at: tomorrow() },
      { domain: 'example.com', period: 'month', number: 3, used: 2, remaining: 1, resets_at: nextMonth() },
    ])
  })

  test('another number applies immediately, and earlier use still counts', async () => {
    const partner = await newPartner()
    await setLimit(partner, 'example.com', 3)
    await firesOf(partner, 'https://example.com/', 'https://example.com/')
    expect(await setLimit(partner, 'example.com', 5)).toMatchObject({ number: 5, used: 2, remaining: 3 })
    expect(await setLimit(partner, 'example.com', 1)).toMatchObject({ number: 1, used: 2, remaining: 0 })
    expect(await decide(partner, 'https://example.com/')).toMatchObject({ fire: false, remaining: 0 })
    await setLimit(partner, 'example.com', 3)
    expect(await firesOf(partner, 'https://example.com/', 'https://example.com/')).toEqual([true, false])
  })

  test('the same limit again returns the same answer, and records no second rule', async () => {
    const partner = await newPartner()
    const first = await setLimit(partner, 'example.com', 3)
    expect(await setLimit(partner, 'Example.COM', 3)).toEqual(first)
    expect(await rulesRecorded(partner)).toHaveLength(1)
  })

  test('under one Idempotency-Key the first answer is returned again', async () => {
    const partner = await newPartner()
    const once = () =>
      send(
        partner,
        'POST',
        '/pixel/limit',
        { domain: 'example.com', period: 'day', number: 3 },
        {
          'idempotency-key': 'set-it',
        },
      )
    const first = await once()
    await decide(partner, 'https://example.com/')
    const again = await once()
    expect(again.headers.get('idempotent-replayed')).toBe('true')
    expect(again.body.result).toEqual(first.body.result)
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
  })

  test('removing a missing limit is not an error: only the call is recorded', async () => {
    const partner = await newPartner()
    await setLimit(partner, 'example.com', 1, 'day')
    const answer = await send(partner, 'DELETE', '/pixel/limit', { domain: 'example.com', period: 'month' })
    expect(resultOf(answer, pixelLimitRemoval)).toMatchObject({ removed: false })
    expect(await rulesRecorded(partner)).toHaveLength(1)
  })

  test('a limit set again on the same day keeps its count', async () => {
    const partner = await newPartner()
    await setLimit(partner, 'example.com', 2)
    await decide(partner, 'https://example.com/')
    await send(partner, 'DELETE', '/pixel/limit', { domain: 'example.com', period: 'day' })
    await firesOf(partner, 'https://example.com/', 'https://example.com/')
    expect(await setLimit(partner, 'example.com', 2)).toMatchObject({ used: 1, remaining: 1 })
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

  test('a domain in another script is blocked in any spelling', async () => {
    const partner = await newPartner()
    expect(await block(partner, 'Bücher.de')).toMatchObject({ domain: 'xn--bcher-kva.de' })
    expect(
      await firesOf(partner, 'https://bücher.de/', 'https://xn--bcher-kva.de/', 'https://www.BÜCHER。de/'),
    ).toEqual([false, false, false])
  })

  test('comes before limits: a blocked hit is not counted', async () => {
    const partner = await newPartner()
    await setLimit(partner, 'example.com', 5)
    await block(partner, 'a.example.com')
    expect(await decide(partner, 'https://a.example.com/')).toMatchObject({ fire: false, reason: 'blocked' })
    const { limits: listed } = resultOf(await listOf(partner, '/pixel/limit'), pixelLimits)
    expect(listed).toMatchObject([{ used: 0 }])
  })

  test('blocking twice is one block; after unblocking it fires again; unblocking twice is not an error', async () => {
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

  test('unblocking a domain keeps the block above it', async () => {
    const partner = await newPartner()
    await block(partner, 'example.com')
    await block(partner, 'a.example.com')
    await send(partner, 'DELETE', '/pixel/block', { domain: 'a.example.com' })
    expect(await decide(partner, 'https://a.example.com/')).toMatchObject({
      fire: false,
      domain: 'example.com',
    })
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

describe('a DELETE takes its parameters from the query too', () => {
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
    ['?domain=example.com', 'REQ_002', { missing_parameter: 'period', parameter_type: 'string' }],
    ['?domain=example.com&period=week', 'REQ_003', { parameter: 'period', expected: '"day" or "month"' }],
    ['?domain=a.com&domain=b.com&period=day', 'REQ_003', { parameter: 'domain' }],
  ])('and refuses %j as in a body', async (query, code, details) => {
    const answer = await remove(await newPartner(), `/pixel/limit${query}`)
    expect({ status: answer.status, body: answer.body }).toMatchObject({
      status: 400,
      body: { code, details },
    })
  })

  test('but no other method does: a POST without a body is REQ_001', async () => {
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

  test('a hit that fired does not fire once its domain is blocked, nor on another domain, even with the same hit_id', async () => {
    const partner = await newPartner()
    expect(await decide(partner, 'https://example.com/', 'order-17')).toMatchObject({ reason: 'no_rule' })
    await block(partner, 'blocked.example.net')
    const refused = { fire: false, reason: 'blocked' }
    expect(await decide(partner, 'https://blocked.example.net/', 'order-17')).toMatchObject(refused)
    await block(partner, 'example.com')
    expect(await decide(partner, 'https://example.com/', 'order-17')).toMatchObject(refused)
    await send(partner, 'DELETE', '/pixel/block', { domain: 'example.com' })
    expect(await decide(partner, 'https://example.com/', 'order-17')).toMatchObject({ fire: true })
  })

  test('a hit_id belongs to its host: on another host it counts as another hit', async () => {
    const partner = await newPartner()
    await setLimit(partner, 'example.com', 2)
    for (const host of ['a.example.com', 'A.example.com.', 'b.example.com', 'a.example.com'])
      expect(await decide(partner, `https://${host}/`, 'order-17')).toMatchObject({ fire: true })
    expect(await decide(partner, 'https://c.example.com/', 'order-17')).toMatchObject({ reason: 'limit' })
  })

  test.each([
    'https://unlimited.example.net/',
    'https://81.2.69.142/',
    'https://[2a02:c7c::1]/',
    'http://localhost:3000/',
    'http://intranet/',
    'https://com/',
  ])('%s is under no rule and fires', async (url) => {
    const partner = await newPartner()
    await block(partner, 'example.com')
    await setLimit(partner, 'example.org', 1)
    expect(await decide(partner, url)).toEqual({
      fire: true,
      reason: 'no_rule',
      domain: null,
      remaining: null,
      resets_at: null,
    })
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

  describe('a hit with an id', () => {
    test('gets its first answer again, even if limits have changed, unless it is blocked, and is counted once', async () => {
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

    test('that found no rule fires again when there is one', async () => {
      const partner = await newPartner()
      const first = await decide(partner, 'https://example.com/', 'h')
      expect(first).toMatchObject({ fire: true, reason: 'no_rule' })
      await setLimit(partner, 'example.com', 1)
      await decide(partner, 'https://example.com/')
      expect(await decide(partner, 'https://example.com/', 'h')).toEqual(first)
    })

    test('is one hit, even if asked 40 times simultaneously', async () => {
      const partner = await newPartner()
      await setLimit(partner, 'example.com', 10)
      const answers = await Promise.all(
        Array.from({ length: 40 }, () => decide(partner, 'https://example.com/', 'h')),
      )
      for (const answer of answers) expect(answer).toMatchObject({ fire: true, remaining: 9 })
    })

    test('is another hit after 24 hours', async () => {
      const partner = await newPartner()
      await setLimit(partner, 'example.com', 10, 'month')
      const first = await decide(partner, 'https://example.com/', 'h')
      house.moveClock(23 * 3_600_000)
      expect(await decide(partner, 'https://example.com/', 'h')).toEqual(first)
      house.moveClock(2 * 3_600_000)
      await until('the key works again', async () => (await listOf(partner, '/pixel/block')).status === 200)
      await decide(partner, 'https://example.com/', 'h')
      const { limits: listed } = resultOf(await listOf(partner, '/pixel/limit'), pixelLimits)
      expect(listed[0]?.used).toBe(listed[0]?.resets_at === first.resets_at ? 2 : 1)
    })
  })
})

describe('decision 22: periods are UTC calendar days and months', () => {
  const hit = (partner: Partner) => decide(partner, 'https://example.com/')

  test.each([
    ['the end of a day', '2032-05-17T23:59:58.000Z', '2032-05-18T00:00:00.000Z', '2032-06-01T00:00:00.000Z'],
    [
      'the 28th of a leap February',
      '2036-02-28T23:59:58.000Z',
      '2036-02-29T00:00:00.000Z',
      '2036-03-01T00:00:00.000Z',
    ],
  ])('at %s a new day begins, but not a new month', async (_, before, day, month) => {
    moveTo(before)
    const partner = await newPartner()
    await setLimit(partner, 'example.com', 1, 'day')
    await setLimit(partner, 'example.com', 2, 'month')
    moveTo(before)
    expect(await hit(partner)).toMatchObject({ fire: true, remaining: 0, resets_at: day })
    expect(await hit(partner)).toMatchObject({ fire: false, resets_at: day })
    moveTo(day)
    expect(await hit(partner)).toMatchObject({ fire: true, remaining: 0, resets_at: month })
    expect(await hit(partner)).toMatchObject({ fire: false, resets_at: month })
  })

  test.each([
    ['a month of 30 days', '2037-04-30T23:59:58.000Z', '2037-05-01T00:00:00.000Z'],
    ['a leap February', '2040-02-29T23:59:58.000Z', '2040-03-01T00:00:00.000Z'],
    ['a February', '2041-02-28T23:59:58.000Z', '2041-03-01T00:00:00.000Z'],
    ['a year', '2041-12-31T23:59:58.000Z', '2042-01-01T00:00:00.000Z'],
  ])('at the end of %s a new month begins', async (_, before, after) => {
    moveTo(before)
    const partner = await newPartner()
    await setLimit(partner, 'example.com', 1, 'month')
    moveTo(before)
    expect(await hit(partner)).toMatchObject({ fire: true, resets_at: after })
    expect(await hit(partner)).toMatchObject({ fire: false, resets_at: after })
    moveTo(after)
    expect(await hit(partner)).toMatchObject({ fire: true })
  })
})

describe('missing and invalid parameters', () => {
  const domainExpected =
    'a registrable domain or one below it, such as "example.com": no scheme, port, path, wildcard or address'
  const numberExpected = 'a whole number from 1 to 1000000000'
  const good = { domain: 'example.com', period: 'day', number: 5 }
  let partner: Partner
  beforeAll(async () => {
    partner = await newPartner()
  })
  // Only the first 60 refusals of a key and minute are recorded individually.
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

  afterEach(async () => {
    // None of it became a rule.
    expect(resultOf(await listOf(partner, '/pixel/limit'), pixelLimits)).toEqual({ limits: [] })
    expect(resultOf(await listOf(partner, '/pixel/block'), pixelBlocks)).toEqual({ blocks: [] })
  })

  describe.each([
    ['POST', '/pixel/limit'],
    ['DELETE', '/pixel/limit'],
    ['POST', '/pixel/block'],
    ['DELETE', '/pixel/block'],
  ] as const)('%s %s', (method, path) => {
    test.each([
      ['absent', undefined],
      ['null', null],
    ])('a domain that is %s is REQ_002', async (_, domain) => {
      expectRefused(await send(partner, method, path, { ...good, domain }), missing('domain', 'string'))
    })

    test.each([
      ['a number', 5],
      ['an array', ['example.com']],
      ['an object', { domain: 'example.com' }],
      ['empty', ''],
      ['of one label', 'localhost'],
      ['a top-level domain', 'com'],
      ['a public suffix', 'co.uk'],
      ["a hosting provider's suffix", 'github.io'],
      ['of an unknown top-level domain', 'example.nosuchtld'],
      ['a URL', 'https://example.com/'],
      ['with a port', 'example.com:443'],
      ['with a path', 'example.com/x'],
      ['a wildcard', '*.example.com'],
      ['with an underscore', 'a_b.example.com'],
      ['an IPv4 address', '81.2.69.142'],
      ['an IPv6 address', '2a02:c7c::1'],
      ['with space around', ' example.com'],
      ['with two dots after', 'example.com..'],
      ['with a label of 64', `${'a'.repeat(64)}.com`],
      ['of 255 characters', `${'a.'.repeat(126)}com`],
    ])('a domain that is %s is REQ_003', async (_, domain) => {
      expectRefused(await send(partner, method, path, { ...good, domain }), wrong('domain', domainExpected))
    })
  })

  describe.each(['POST', 'DELETE'] as const)('%s /pixel/limit', (method) => {
    test.each([
      ['absent', undefined],
      ['null', null],
    ])('a period that is %s is REQ_002', async (_, period) => {
      expectRefused(
        await send(partner, method, '/pixel/limit', { ...good, period }),
        missing('period', 'string'),
      )
    })

    test.each(['', 'week', 'Day', 'DAY', 'days', ' day', 1, true, ['day']])(
      'a period of %j is REQ_003',
      async (period) => {
        expectRefused(
          await send(partner, method, '/pixel/limit', { ...good, period }),
          wrong('period', '"day" or "month"'),
        )
      },
    )
  })

  test.each([
    ['absent', undefined],
    ['null', null],
  ])('a number that is %s is REQ_002', async (_, number) => {
    expectRefused(
      await send(partner, 'POST', '/pixel/limit', { ...good, number }),
      missing('number', 'number'),
    )
  })

  test.each([0, -1, 0.5, 1.5, 1_000_000_001, 1e21, '5', '', true, [5], {}])(
    'a number of %j is REQ_003',
    async (number) => {
      expectRefused(
        await send(partner, 'POST', '/pixel/limit', { ...good, number }),
        wrong('number', numberExpected),
      )
    },
  )

  test.each([
    ['absent', undefined],
    ['null', null],
  ])('a url that is %s is REQ_002', async (_, url) => {
    expectRefused(await send(partner, 'POST', '/pixel/decide', { url }), missing('url', 'string'))
  })

  test.each([
    '',
    'example.com',
    '//example.com/',
    'ftp://example.com/',
    'javascript:alert(1)',
    'https://',
    'https://exa mple.com/',
    'https://example.com:99999/',
    5,
    ['https://example.com/'],
  ])('a url of %j is REQ_003', async (url) => {
    expectRefused(
      await send(partner, 'POST', '/pixel/decide', { url }),
      wrong('url', 'an absolute http or https URL'),
    )
  })

  test.each(['', 'x'.repeat(129), 5, true, ['h'], {}])('a hit_id of %j is REQ_003', async (hit_id) => {
    expectRefused(
      await send(partner, 'POST', '/pixel/decide', { url: 'https://example.com/', hit_id }),
      wrong('hit_id', 'a string of 1 to 128 characters'),
    )
  })

  test('of several invalid parameters the first is named', async () => {
    expectRefused(
      await send(partner, 'POST', '/pixel/limit', { period: 'week', number: 0 }),
      missing('domain', 'string'),
    )
    expectRefused(
      await send(partner, 'POST', '/pixel/limit', { domain: 'example.com', period: 'week', number: 0 }),
      wrong('period', '"day" or "month"'),
    )
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
    const other = await house.partner({ permissions: ['ip_lookup'] })
    const answer = await house.ask(other, { method, path, headers: { 'content-type': 'application/json' } })
    expectErrorObject(answer, {
      status: 403,
      error: 'forbidden',
      code: 'AUTH_002',
      details: { required_permission: 'pixel_control' },
    })
  })

  test('other methods are REQ_005, with a list of the allowed ones', async () => {
    for (const [path, allow] of [
      ['/pixel/limit', 'POST, DELETE, GET'],
      ['/pixel/block', 'POST, DELETE, GET'],
      ['/pixel/decide', 'POST'],
    ] as const) {
      const answer = await house.ask(partner, { method: 'PUT', path })
      expect([answer.status, answer.headers.get('allow')]).toEqual([405, allow])
    }
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

  test('a hit that was not decided is decided when it is repeated', async () => {
    const partner = await newPartner()
    await setLimit(partner, 'example.com', 5)
    await away(async () => {
      expect(await decide(partner, 'https://example.com/', 'h')).toMatchObject({ reason: 'unavailable' })
    })
    expect(await decide(partner, 'https://example.com/', 'h')).toMatchObject({ fire: true, remaining: 4 })
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
  test('a rule that cannot be recorded is 503 SYS_002 and does not apply', async () => {
    const partner = await newPartner()
    const mend = await house.breakLog()
    const answer = await send(partner, 'POST', '/pixel/block', { domain: 'example.com' })
    expect([answer.status, answer.body.code]).toEqual([503, 'SYS_002'])
    await mend()
    expect(await decide(partner, 'https://example.com/')).toMatchObject({ fire: true, reason: 'no_rule' })
    await block(partner, 'example.com')
    expect(await decide(partner, 'https://example.com/')).toMatchObject({ fire: false, reason: 'blocked' })
  })

  test('an append whose connection broke is sent again: one rule, one answer', async () => {
    const partner = await newPartner()
    const log: BlockedLog = await house.blockLog()
    const answering = block(partner, 'example.com')
    await log.cut()
    await log.release()
    expect(await answering).toMatchObject({ blocked: true })
    expect(await rulesRecorded(partner)).toHaveLength(1)
  })
})
