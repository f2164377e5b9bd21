/** Rate limits: Specification 8, with decisions 3, 5 and 24. */
import pino from 'pino'
import { describe, expect, test } from 'vitest'
import { parseCredits } from '../../src/billing/money.ts'
import { createLedger } from '../../src/ledger/write/ledger.ts'
import type { App } from '../../src/start/app.ts'
import {
  type Answer,
  type AnswerAndFacts,
  houseForFile,
  type Partner,
  places,
  send,
} from '../support/house.ts'
import { bare, expectCredits, expectErrorObject, rateLimitsOf } from './wire.ts'

const minuteMs = 60_000

const house = await houseForFile({ clock: 'movable' })

const expectDenied = (
  answer: AnswerAndFacts,
  { limit, window }: { limit: number; window: 'minute' | 'day' },
): number => {
  const { [window]: state } = rateLimitsOf(answer)
  if (state === undefined) throw new Error(`no window ${window}`)
  expectErrorObject(answer, {
    status: 429,
    error: 'rate_limited',
    code: 'RATE_001',
    details: { limit, window, retry_after_seconds: state.resetSeconds },
  })
  expect(state).toMatchObject({ limit, remaining: 0 })
  expect(answer.headers.get('retry-after')).toBe(String(state.resetSeconds))
  expect(answer.headers.get('credits-charged')).toBe('0')
  // The refusal is counted, and recorded later together with the other refusals in its minute.
  expect(answer.events).toEqual([])
  return state.resetSeconds
}

const lookups = async (partner: Partner, count: number): Promise<void> => {
  for (let i = 0; i < count; i++) {
    const { status } = await house.lookup(partner, { ip: '10.0.0.1' })
    expect(status).toBe(200)
  }
}

describe('8 requests per minute and per day', () => {
  test('every answer shows both limits, how much is left, and when they reset', async () => {
    const partner = await house.partner({ limits: { requests_per_minute: 10, requests_per_day: 100 } })
    const first = await house.lookup(partner, { ip: places.london })
    expect(first.headers.get('ratelimit-policy')).toBe('"minute";q=10;w=60, "day";q=100;w=86400')
    expect(rateLimitsOf(first)).toEqual({
      minute: { limit: 10, windowSeconds: 60, remaining: 9, resetSeconds: 60 },
      day: { limit: 100, windowSeconds: 86_400, remaining: 99, resetSeconds: 86_400 },
    })
    house.moveClock(20_000)
    const second = rateLimitsOf(await house.lookup(partner, { ip: 'nonsense' }))
    expect(second).toMatchObject({ minute: { remaining: 8 }, day: { remaining: 98 } })
    expect(second.minute?.resetSeconds).toBeGreaterThan(30)
    expect(second.minute?.resetSeconds).toBeLessThanOrEqual(40)
  })

  test('a call beyond the minute’s limit gets RATE_001, and is free and unrecorded; the next minute begins after Retry-After', async () => {
    const partner = await house.partner({ credits: '10', limits: { requests_per_minute: 3 } })
    await lookups(partner, 3)
    house.moveClock(15_000)
    const denied = await house.lookup(partner, { ip: places.london })
    const retryAfter = expectDenied(denied, { limit: 3, window: 'minute' })
    expect(retryAfter).toBeLessThanOrEqual(45)
    expectCredits(denied, '0', '10')
    house.moveClock((retryAfter - 10) * 1000)
    expectDenied(await house.lookup(partner, { ip: places.london }), { limit: 3, window: 'minute' })
    house.moveClock(10_000)
    const again = await house.lookup(partner, { ip: places.london })
    expect(again.status).toBe(200)
    expect(rateLimitsOf(again)).toMatchObject({ minute: { remaining: 2 } })
  })

  test('whoami counts like every other call', async () => {
    const partner = await house.partner({ limits: { requests_per_minute: 1 } })
    await lookups(partner, 1)
    expectDenied(await house.whoami(partner), { limit: 1, window: 'minute' })
  })

  test('a call with an invalid input counts like every other call', async () => {
    const partner = await house.partner({ limits: { requests_per_minute: 1 } })
    expect((await house.lookup(partner, {})).status).toBe(400)
    expectDenied(await house.lookup(partner, { ip: places.london }), { limit: 1, window: 'minute' })
  })
})

/**
 * Moves both clocks to the start of a minute, and returns its time of day. Limits and individual records use
 * `performance.now()`; recorded minutes use the time of day.
 */
const startOfMinute = (): string => {
  house.moveClock(minuteMs - (performance.now() % minuteMs) + 1000)
  house.setClock(minuteMs - (Date.now() % minuteMs) + 1000)
  return new Date(Date.now() - (Date.now() % minuteMs)).toISOString()
}

const lookupAt = (
  { apiUrl }: App,
  { apiKey }: Partner,
  body: unknown,
  path = '/v1/ip/lookup',
): Promise<Answer> =>
  send(`${apiUrl}${path}`, { headers: { 'x-api-key': apiKey, 'content-type': 'application/json' }, body })

describe('decision 24: refused calls cannot fill the event log', () => {
  const counted = (partner: Partner, code: string, window: string, counts: object) => ({
    type: 'CallsRefused',
    data: {
      key_id: partner.keyId,
      code,
      outcome: 'refused',
      window,
      counts: Object.entries(counts).map(([capability, count]) => ({ capability, count })),
      free_by: { rule: 'refusal', rule_version: 1 },
    },
  })

  test('the first 60 for each key and minute are recorded individually, the others in one event per code, at the latest when the process ends', async () => {
    const app = await house.another()
    try {
      const partner = await house.partner({ credits: '7', permissions: ['ip_lookup'] })
      const minute = startOfMinute()
      const before = (await house.eventsOf(partner.organizationId)).length
      const bodies = [...Array<object>(70).fill({}), ...Array<object>(20).fill({ ip: 'nonsense' })]
      const answers = await Promise.all(bodies.map((body) => lookupAt(app, partner, body)))
      expect(answers.map(({ status }) => status)).toEqual(Array(90).fill(400))
      for (const answer of answers) expectCredits(answer, '0', '7')
      const denied = await lookupAt(app, partner, { domain: 'example.com' }, '/pixel/block')
      expect(denied.body).toMatchObject({ code: 'AUTH_002' })
      const singly = bare((await house.eventsOf(partner.organizationId)).slice(before))
      expect(singly.map(({ type }) => type)).toEqual(Array(60).fill('KeyUsed'))
      await app.close()
      const together = bare((await house.eventsOf(partner.organizationId)).slice(before + 60))
      const recordedOf = (code: string) => singly.filter(({ data }) => data.code === code).length
      expect(together.sort((a, b) => String(a.data.code).localeCompare(String(b.data.code)))).toEqual([
        counted(partner, 'AUTH_002', minute, { pixel: 1 }),
        ...(recordedOf('IP_001') === 20
          ? []
          : [counted(partner, 'IP_001', minute, { ip_lookup: 20 - recordedOf('IP_001') })]),
        counted(partner, 'REQ_002', minute, { ip_lookup: 70 - recordedOf('REQ_002') }),
      ])
    } finally {
      await app.close()
    }
  })

  test('calls that cannot be paid for count among them; credits granted by another process are usable immediately', async () => {
    const app = await house.another()
    try {
      const partner = await house.partner({ credits: '0' })
      const minute = startOfMinute()
      const before = (await house.eventsOf(partner.organizationId)).length
      for (let n = 0; n < 75; n++)
        expect((await lookupAt(app, partner, { ip: places.london })).body).toMatchObject({
          code: 'CREDIT_001',
          details: { required: '1', available: '0' },
        })
      expect(await house.eventsOf(partner.organizationId)).toHaveLength(before + 60)
      const elsewhere = createLedger({
        eventLog: house.foundation.eventLog,
        snapshot: async () => null,
        logger: pino({ level: 'silent' }),
        clock: Date,
      })
      await elsewhere.submit(partner.organizationId, {
        key: 'bought',
        atMs: Date.now(),
        actor: 'cli',
        kind: 'grant',
        amount: parseCredits('1'),
        priority: 100,
        expiresAt: null,
        reason: 'bought',
      })
      const paid = await lookupAt(app, partner, { ip: places.london })
      expect(paid.status).toBe(200)
      expectCredits(paid, '1', '0')
      expect((await lookupAt(app, partner, { ip: places.london })).status).toBe(402)
      await app.close()
      expect(bare(await house.eventsOf(partner.organizationId)).at(-1)).toEqual(
        counted(partner, 'CREDIT_001', minute, { ip_lookup: 16 }),
      )
    } finally {
      await app.close()
    }
  })
})

describe('decision 24: calls refused by a rate limit are recorded together', () => {
  test('one RateLimitExceeded per key, policy and minute, with their number, at the latest when the process ends', async () => {
    const app = await house.another()
    try {
      const partner = await house.partner({ limits: { requests_per_minute: 2 } })
      const other = await house.key(partner.organizationId, {
        permissions: [],
        limits: { requests_per_minute: 1 },
      })
      const minute = startOfMinute()
      for (let i = 0; i < 9; i++) await lookupAt(app, partner, { ip: '10.0.0.1' })
      for (let i = 0; i < 4; i++) await lookupAt(app, other, { ip: '10.0.0.1' })
      const before = await house.eventsOf(partner.organizationId)
      expect(before.filter(({ type }) => type === 'RateLimitExceeded')).toEqual([])
      expect(before.filter(({ type }) => type === 'KeyUsed')).toHaveLength(2 + 1)
      await app.close()
      const after = (await house.eventsOf(partner.organizationId)).slice(before.length)
      expect(bare(after).sort((a, b) => Number(b.data.count) - Number(a.data.count))).toEqual([
        {
          type: 'RateLimitExceeded',
          data: { key_id: partner.keyId, policy: 'minute', window: minute, count: 7 },
        },
        {
          type: 'RateLimitExceeded',
          data: { key_id: other.keyId, policy: 'refused', window: minute, count: 3 },
        },
      ])
    } finally {
      await app.close()
    }
  })
})
