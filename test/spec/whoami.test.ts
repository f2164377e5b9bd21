/** Specification 2.2 and 4.4, with decisions 1 and 11. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { type House, openHouse, places } from '../support/house.ts'
import { bare, expectCredits, jsonType, rateLimitsOf, ulid } from './wire.ts'

let house: House

beforeAll(async () => {
  house = await openHouse()
})
afterAll(() => house?.close())

const instant = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/

describe('4.4 GET /whoami', () => {
  test('2.2 is the whole body: organization, key, permissions, limits and two instants', async () => {
    const partner = await house.partner({
      permissions: ['ip_lookup', 'email_validation'],
      limits: { requests_per_minute: 60, requests_per_day: 5_000 },
    })
    const { status, headers, body } = await house.whoami(partner)
    expect({ status, body }).toEqual({
      status: 200,
      body: {
        organization: 'Partner',
        api_key_id: partner.keyId,
        permissions: ['ip_lookup', 'email_validation'],
        rate_limits: { requests_per_minute: 60, requests_per_day: 5_000 },
        created_at: expect.stringMatching(instant),
        last_used: expect.stringMatching(instant),
      },
    })
    expect(headers.get('content-type')).toBe(jsonType)
    expect(headers.get('x-request-id')).toMatch(ulid)
  })

  test('costs nothing, and is recorded as one fact with the reason', async () => {
    const partner = await house.partner({ credits: '7' })
    const answer = await house.whoami(partner)
    expectCredits(answer, '0', '7')
    expect(Object.keys(rateLimitsOf(answer))).toEqual(['minute', 'day'])
    expect(bare(answer.events)).toEqual([
      {
        type: 'KeyUsed',
        data: {
          key_id: partner.keyId,
          capability: 'whoami',
          outcome: 'answered',
          facts: { kind: 'whoami' },
          free_by: { rule: 'whoami', rule_version: 1 },
        },
      },
    ])
    expect(answer.events[0]?.metadata.request_id).toBe(answer.headers.get('x-request-id'))
  })

  test('created_at is when the key was issued; last_used of a new key is this very call', async () => {
    const before = new Date().toISOString()
    const partner = await house.partner()
    const between = new Date().toISOString()
    const { body } = await house.whoami(partner)
    expect(String(body.created_at) >= before && String(body.created_at) <= between).toBe(true)
    expect(String(body.last_used) >= between).toBe(true)
  })

  test('last_used becomes the time of the last call of this key, not of another', async () => {
    const partner = await house.partner()
    const other = await house.key(partner.organizationId)
    const { events } = await house.lookup(partner, { ip: places.london })
    const usedAt = events[0]?.metadata.effective_at
    await house.projected()
    const unused = await house.whoami(other)
    expect(String(unused.body.last_used) > String(usedAt)).toBe(true)
    expect((await house.whoami(partner)).body.last_used).toBe(usedAt)
  })

  test('an Idempotency-Key has no effect on a GET', async () => {
    const partner = await house.partner()
    const request = {
      method: 'GET',
      path: '/whoami',
      on: 'dashboard',
      headers: { 'idempotency-key': 'a' },
    } as const
    for (const answer of [await house.ask(partner, request), await house.ask(partner, request)]) {
      expect(answer.status).toBe(200)
      expect(answer.headers.get('idempotent-replayed')).toBeNull()
      expect(answer.events[0]?.data).not.toHaveProperty('idempotent')
    }
  })

  test('is on the dashboard host, and the same on the API host', async () => {
    const partner = await house.partner()
    const answers = []
    for (const on of ['dashboard', 'api'] as const) {
      const answer = await house.ask(partner, { method: 'GET', path: '/whoami', on })
      expect(answer.status).toBe(200)
      expect(answer.events.map(({ type, data }) => [type, data.capability])).toEqual([['KeyUsed', 'whoami']])
      answers.push({ ...answer.body, last_used: null })
    }
    expect(answers[1]).toEqual(answers[0])
  })
})
