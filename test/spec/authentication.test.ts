/** Authentication: Specification 5, 2.1 and the AUTH codes in 7, with decisions 3 and 24. */
import { randomBytes } from 'node:crypto'
import { Writable } from 'node:stream'
import { pino } from 'pino'
import { describe, expect, test } from 'vitest'
import { changeLimits, revoke, rotate } from '../../src/administration/keys/api-keys.ts'
import { composeApiKey } from '../../src/keys/api-key.ts'
import { type Answer, houseForFile, type Partner, places, send, sendRaw } from '../support/house.ts'
import {
  bare,
  expectErrorObject,
  expectNoCallHeaders,
  expectNotAuthenticated,
  expectRefusedCall,
  rateLimitsOf,
} from './wire.ts'

const hourMs = 3_600_000

const house = await houseForFile({ clock: 'movable' })
const partner = await house.partner()

const base62 = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz'
const keyWith = (keyId: string, secret: string): string =>
  composeApiKey(Uint8Array.from(keyId + secret, (character) => base62.indexOf(character))).apiKey

const knock = async (headers: Record<string, string>): Promise<Answer[]> =>
  Promise.all([
    send(`${house.apiUrl}/v1/ip/lookup`, {
      headers: { 'content-type': 'application/json', ...headers },
      body: { ip: places.london },
    }),
    send(`${house.dashboardUrl}/whoami`, { method: 'GET', headers }),
  ])

const expectRefusedEverywhere = async (headers: Record<string, string>): Promise<void> => {
  for (const answer of await knock(headers)) expectNotAuthenticated(answer)
}

const lettersOnly = (length: number): string => 'x'.repeat(length)

describe('5.4 a missing or invalid key gets AUTH_001, without request_id and details, and leaves no event', () => {
  test.each<[string, () => Record<string, string>]>([
    ['missing', () => ({})],
    ['empty', () => ({ 'x-api-key': '' })],
    ['in another header', () => ({ authorization: `Bearer ${partner.apiKey}` })],
    ['with a wrong checksum', () => ({ 'x-api-key': partner.apiKey.slice(0, -6) + lettersOnly(6) })],
    ['unknown', () => ({ 'x-api-key': composeApiKey(randomBytes(256)).apiKey })],
    ['known, with another secret', () => ({ 'x-api-key': keyWith(partner.keyId, '0'.repeat(32)) })],
    ['10 KB long', () => ({ 'x-api-key': lettersOnly(10 * 1024) })],
  ])('%s', async (_, headers) => {
    const before = await house.eventsOf(partner.organizationId)
    await expectRefusedEverywhere(headers())
    expect(await house.eventsOf(partner.organizationId)).toEqual(before)
  })

  test('the test composes keys as the service does', () => {
    const fresh = composeApiKey(randomBytes(256))
    expect(keyWith(fresh.keyId, fresh.secret)).toBe(fresh.apiKey)
    expect(keyWith(partner.keyId, '0'.repeat(32))).toHaveLength(fresh.apiKey.length)
  })

  test('a header sent twice is malformed, even if both values are the valid key', async () => {
    const before = await house.eventsOf(partner.organizationId)
    const [answer] = await sendRaw(
      house.dashboardUrl,
      `GET /whoami HTTP/1.1\r\nHost: x\r\nx-api-key: ${partner.apiKey}\r\nX-API-Key: ${partner.apiKey}\r\n\r\n`,
    )
    if (answer === undefined) throw new Error('no answer')
    expectNotAuthenticated(answer)
    expect(await house.eventsOf(partner.organizationId)).toEqual(before)
  })

  test('the answers to a wrong secret and to an unknown key differ only in the request id', async () => {
    const [unknown] = await knock({ 'x-api-key': composeApiKey(randomBytes(256)).apiKey })
    const [wrong] = await knock({ 'x-api-key': keyWith(partner.keyId, '1'.repeat(32)) })
    expect(unknown?.text).toBe(wrong?.text)
    const names = (answer: Answer | undefined) => [...(answer?.headers.keys() ?? [])]
    expect(names(unknown)).toEqual(names(wrong))
  })

  test('the answer to an unauthenticated caller reveals nothing about the body', async () => {
    for (const body of ['', 'nonsense', '{"ip":1}', `{"ip":"${'x'.repeat(20_000)}"}`])
      expectNotAuthenticated(
        await send(`${house.apiUrl}/v1/ip/lookup`, { headers: { 'content-type': 'text/plain' }, body }),
      )
  })
})

describe('5.5 keys are revoked, expire, and are rotated', () => {
  test('a revoked key gets AUTH_001; its earlier calls stay recorded', async () => {
    const own = await house.partner()
    const { status } = await house.lookup(own, { ip: places.london })
    expect(status).toBe(200)
    const before = await house.eventsOf(own.organizationId)
    await revoke(house.foundation, { keyId: own.keyId, reason: 'leaked', actor: 'cli' })
    await house.heard()
    await expectRefusedEverywhere({ 'x-api-key': own.apiKey })
    expect(await house.eventsOf(own.organizationId)).toEqual(before)
  })

  test('a key works until it expires, and not afterwards', async () => {
    const expiresAt = new Date(Date.now() + hourMs)
    const own = await house.partner({ expiresAt: expiresAt.toISOString() })
    house.moveClock(hourMs - 10_000)
    expect((await house.whoami(own)).status).toBe(200)
    house.moveClock(10_000)
    expect(Date.now()).toBeGreaterThanOrEqual(expiresAt.getTime())
    const before = await house.eventsOf(own.organizationId)
    await expectRefusedEverywhere({ 'x-api-key': own.apiKey })
    expect(await house.eventsOf(own.organizationId)).toEqual(before)
  })

  test('a rotated key works next to its successor during its grace period, and not afterwards', async () => {
    const own = await house.partner({ permissions: ['ip_lookup', 'pixel_control'] })
    const successor = await rotate(house.foundation, { keyId: own.keyId, graceMs: hourMs, actor: 'cli' })
    await house.heard()
    const next: Partner = { ...own, keyId: successor.keyId, apiKey: successor.apiKey }
    const [old, fresh] = [await house.whoami(own), await house.whoami(next)]
    expect(old.body).toMatchObject({ api_key_id: own.keyId, permissions: ['ip_lookup', 'pixel_control'] })
    expect(fresh.body).toMatchObject({
      api_key_id: successor.keyId,
      organization: old.body.organization,
      permissions: old.body.permissions,
      rate_limits: old.body.rate_limits,
    })
    house.moveClock(hourMs - 10_000)
    expect((await house.whoami(own)).status).toBe(200)
    house.moveClock(11_000)
    await expectRefusedEverywhere({ 'x-api-key': own.apiKey })
    expect((await house.whoami(next)).status).toBe(200)
  })
})

describe('5.3 a key has permissions', () => {
  test('a lookup with a key without ip_lookup gets AUTH_002: recorded, free, and without a result', async () => {
    const own = await house.partner({
      permissions: ['email_validation', 'profnet_scraping', 'pixel_control'],
    })
    const answer = await house.lookup(own, { ip: places.london })
    expectRefusedCall(answer, own, {
      status: 403,
      error: 'forbidden',
      code: 'AUTH_002',
      details: { required_permission: 'ip_lookup' },
    })
    expect(answer.body).not.toHaveProperty('result')
  })

  test('the permission is checked before the body', async () => {
    const own = await house.partner({ permissions: [] })
    const answer = await house.ask(own, { headers: { 'content-type': 'text/plain' }, body: 'nonsense' })
    expectRefusedCall(answer, own, {
      status: 403,
      error: 'forbidden',
      code: 'AUTH_002',
      details: { required_permission: 'ip_lookup' },
    })
  })

  test('decision 6: whoami needs no permission', async () => {
    const own = await house.partner({ permissions: [] })
    const { status, body } = await house.whoami(own)
    expect(status).toBe(200)
    expect(body.permissions).toEqual([])
  })
})

describe('decision 3: a key can be restricted to addresses', () => {
  test.each([['203.0.113.0/24', '127.0.0.1/32']])('a caller inside %s may call', async (...allowedCidrs) => {
    const own = await house.partner({ allowedCidrs })
    expect((await house.lookup(own, { ip: places.london })).status).toBe(200)
    expect((await house.whoami(own)).status).toBe(200)
  })

  test.each([['2001:db8::/32', '127.0.0.2']])(
    'a caller outside %s gets AUTH_003 at every endpoint: recorded and free',
    async (...allowedCidrs) => {
      const own = await house.partner({ allowedCidrs })
      const refusal = {
        status: 403,
        error: 'forbidden',
        code: 'AUTH_003',
        details: { address: '127.0.0.1' },
      }
      expectRefusedCall(await house.lookup(own, { ip: places.london }), own, refusal)
      expectRefusedCall(await house.whoami(own), own, refusal, 'whoami')
    },
  )

  test('headers that claim another address have no effect', async () => {
    const own = await house.partner({ allowedCidrs: ['203.0.113.0/24'] })
    for (const name of ['x-forwarded-for', 'forwarded', 'x-real-ip', 'cf-connecting-ip']) {
      const answer = await house.lookup(own, { ip: places.london }, { [name]: '203.0.113.7' })
      expect(answer.body).toMatchObject({ code: 'AUTH_003', details: { address: '127.0.0.1' } })
    }
  })
})

describe('refused keys do not use up quotas', () => {
  test('calls refused for permission or address have their own window; beyond it they get RATE_001', async () => {
    const own = await house.partner({ permissions: [], limits: { requests_per_minute: 3 } })
    for (const remaining of [2, 1, 0]) {
      const answer = await house.lookup(own, { ip: places.london })
      expect(answer.body.code).toBe('AUTH_002')
      expect(rateLimitsOf(answer)).toMatchObject({ refused: { limit: 3, windowSeconds: 60, remaining } })
    }
    const over = await house.lookup(own, { ip: places.london })
    expectErrorObject(over, {
      status: 429,
      error: 'rate_limited',
      code: 'RATE_001',
      details: { limit: 3, window: 'refused', retry_after_seconds: expect.any(Number) },
    })
    expect(over.events).toEqual([])
    // Refused calls do not count in the key's own windows.
    const whoami = await house.whoami(own)
    expect(rateLimitsOf(whoami)).toMatchObject({ minute: { limit: 3, remaining: 2 } })
  })
})

describe('5.3 a key has rate limits that an operator can change', () => {
  test('changed limits apply, and are shown by whoami, without a restart', async () => {
    const own = await house.partner({ limits: { requests_per_minute: 5, requests_per_day: 50 } })
    expect(rateLimitsOf(await house.whoami(own))).toMatchObject({
      minute: { limit: 5, remaining: 4 },
      day: { limit: 50, remaining: 49 },
    })
    await changeLimits(house.foundation, {
      keyId: own.keyId,
      limits: { requests_per_minute: 2 },
      actor: 'cli',
    })
    await house.heard()
    const second = await house.whoami(own)
    expect(second.body.rate_limits).toEqual({ requests_per_minute: 2, requests_per_day: 50 })
    expect(rateLimitsOf(second)).toMatchObject({ minute: { limit: 2, remaining: 0 }, day: { remaining: 48 } })
    expect((await house.whoami(own)).status).toBe(429)
    await changeLimits(house.foundation, {
      keyId: own.keyId,
      limits: { requests_per_minute: 9 },
      actor: 'cli',
    })
    await house.heard()
    expect(rateLimitsOf(await house.whoami(own))).toMatchObject({ minute: { limit: 9, remaining: 6 } })
  })
})

test('the log shows which key was refused and why, but no secret', async () => {
  const lines: string[] = []
  const sink = new Writable({
    write: (line: Buffer, _, done) => {
      lines.push(line.toString())
      done()
    },
  })
  const app = await house.another({ logger: pino({ level: 'info' }, sink) })
  try {
    const key = keyWith(partner.keyId, '2'.repeat(32))
    const answer = await send(`${app.apiUrl}/v1/ip/lookup`, { headers: { 'x-api-key': key } })
    expectNotAuthenticated(answer)
    const told = lines.filter((line) => line.includes('not authenticated'))
    expect(told).toHaveLength(1)
    expect(JSON.parse(told[0] ?? '')).toMatchObject({
      level: 30,
      reason: 'wrong_secret',
      keyId: partner.keyId,
      address: '127.0.0.1',
      requestId: answer.headers.get('x-request-id'),
    })
    expect(lines.join('')).not.toContain('2'.repeat(32))
  } finally {
    await app.close()
  }
})

test('5.1 without a valid key, no answer has a call’s headers', async () => {
  for (const answer of await knock({})) expectNoCallHeaders(answer)
  expect(bare(await house.eventsOf('org_00000000000000000000000000'))).toEqual([])
})
