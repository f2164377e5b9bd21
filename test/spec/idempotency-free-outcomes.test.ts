/**
 * Decision 15: only a charge uses up an Idempotency-Key, so a free call can be repeated. A charged call is never charged again,
 * but its key returns only the answer that was paid for, never newer data.
 */
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { type AnswerAndFacts, type House, openHouse, type Partner, until } from '../support/house.ts'
import { type ProfileUpstream, profileUpstream, type UpstreamAnswer } from '../support/profile-upstream.ts'
import { buy, chargesOf, failureFact, forget, unavailable, unpaid } from './ledger-scene.ts'
import { bare, expectCredits, expectErrorObject } from './wire.ts'

const dayMs = 86_400_000
const limits = { requests_per_minute: 100_000, requests_per_day: 1_000_000 }

let upstream: ProfileUpstream
let house: House
let people = 0
let lid = ''

beforeAll(async () => {
  upstream = await profileUpstream()
  house = await openHouse({
    clock: 'movable',
    environment: {
      PROFILE_PROVIDER: 'http',
      PROFILE_HTTP_URL: `${upstream.url}/people/{lid}`,
      EGRESS_ALLOW: '127.0.0.0/8',
    },
  })
})
afterAll(async () => {
  await house?.close()
  await upstream?.close()
})
beforeEach(() => {
  lid = `zorvina-quillfeather-${++people}`
})

const aPartner = (credits: string): Promise<Partner> =>
  house.partner({ permissions: ['profnet_scraping', 'ip_lookup'], credits, limits })

const ask = async (partner: Partner, key: string): Promise<AnswerAndFacts> => {
  const answer = await house.post(
    partner,
    '/v1/profnet/profile',
    { id: lid, cached: false },
    { 'idempotency-key': key },
  )
  await until(
    'no fetch is running',
    async () => (await house.query('select 1 from profile_fetches')).length === 0,
  )
  return answer
}

/** The Date header has the house's time, because the upstream's own clock does not move. */
const known = (headline: string): UpstreamAnswer => ({
  headers: { date: new Date().toUTCString() },
  body: { lid, firstname: 'Zorvina', lastname: 'Quillfeather', headline },
})
const nobody: UpstreamAnswer = { status: 404 }
/** An invalid answer. It is not a connection failure, so the service continues to send requests to the source. */
const nonsense: UpstreamAnswer = { body: 'nonsense' }

const headlineOf = ({ body }: AnswerAndFacts): unknown => Object(body.result).headline

const replayed = ({ headers }: AnswerAndFacts): string | null => headers.get('idempotent-replayed')

const expectReplay = (answer: AnswerAndFacts, partner: Partner): void => {
  expect(replayed(answer)).toBe('true')
  expect(answer.headers.get('credits-charged')).toBe('0')
  expect(answer.events.map(({ type }) => type)).toEqual(['KeyUsed'])
  expect(answer.events[0]?.data).toMatchObject({
    key_id: partner.keyId,
    facts: { kind: 'replay' },
    free_by: { rule: 'replay', rule_version: 1 },
  })
}

/** Expects the first delivered answer to be charged as usual and to use up the key. */
const expectDelivered = async (partner: Partner, key: string, before: string, after: string) => {
  upstream.answers(() => known('Keeper of small lamps'))
  const delivered = await ask(partner, key)
  expect({ status: delivered.status, headline: headlineOf(delivered) }).toEqual({
    status: 200,
    headline: 'Keeper of small lamps',
  })
  expect(Number(before) - Number(after)).toBe(5)
  expectCredits(delivered, '5', after)
  expect(replayed(delivered)).toBeNull()
  expect(delivered.events.map(({ type }) => type)).toEqual(['KeyUsed', 'CreditCharged'])
  const again = await ask(partner, key)
  expect(again.status).toBe(200)
  expectReplay(again, partner)
  expectCredits(again, '0', after)
  expect(await chargesOf(house, partner)).toHaveLength(1)
}

describe('a failure of the service', () => {
  test('does not use up the key, even if repeated twenty times: the next call with it counts as the first, and is charged when it delivers', async () => {
    const partner = await aPartner('20')
    upstream.answers(() => nonsense)
    for (let n = 0; n < 20; n++) {
      const failed = await ask(partner, 'often')
      expectErrorObject(failed, unavailable)
      expectCredits(failed, '0', '20')
      expect(replayed(failed)).toBeNull()
      expect(bare(failed.events)).toEqual([failureFact(partner, 'profile')])
    }
    expect(upstream.requests).toHaveLength(20)
    await expectDelivered(partner, 'often', '20', '15')
  })

  test('does not bind the key to its request: another body may use it', async () => {
    const partner = await aPartner('20')
    upstream.answers(() => nonsense)
    await ask(partner, 'moved')
    lid = `${lid}-other`
    await expectDelivered(partner, 'moved', '20', '15')
  })
})

describe('a free refusal', () => {
  test('is the same refusal again within a day, also about a person, and no source is asked', async () => {
    const partner = await aPartner('20')
    upstream.answers(() => nobody)
    const first = await ask(partner, 'nobody')
    expectErrorObject(first, {
      status: 404,
      error: 'not_found',
      code: 'PROFNET_002',
      details: { id: lid },
    })
    upstream.answers(() => known('Here by now'))
    for (let n = 0; n < 2; n++) {
      const again = await ask(partner, 'nobody')
      expect({ status: again.status, text: again.text }).toEqual({ status: 404, text: first.text })
      expectReplay(again, partner)
      expectCredits(again, '0', '20')
    }
    expect(upstream.requests).toHaveLength(0)
  })

  test('is deleted after a day, however often it is repeated: the call is made again, and charged when it delivers', async () => {
    const partner = await aPartner('20')
    for (let n = 0; n < 10; n++) {
      upstream.answers(() => nobody)
      const answer = await ask(partner, 'daily')
      expect({ n, status: answer.status, replayed: replayed(answer) }).toEqual({
        n,
        status: 404,
        replayed: null,
      })
      await forget(house, partner)
      house.moveClock(25 * 3_600_000)
    }
    await expectDelivered(partner, 'daily', '20', '15')
  })
})

describe('an empty balance', () => {
  test('does not use up the key: after a purchase of credits, the same key delivers, and is charged once', async () => {
    const partner = await aPartner('0')
    upstream.answers(() => known('Not to be had'))
    for (let n = 0; n < 3; n++) {
      const refused = await ask(partner, 'poor')
      expectErrorObject(refused, unpaid('5', '0'))
      expect(replayed(refused)).toBeNull()
    }
    expect(upstream.requests).toHaveLength(0)
    await buy(house, partner, '12')
    await expectDelivered(partner, 'poor', '12', '7')
  })

  test('shows the current credits, not those of the first refusal', async () => {
    const partner = await aPartner('1')
    const details = async () => (await ask(partner, 'poorer')).body.details
    expect(await details()).toEqual({ required: '5', available: '1' })
    await buy(house, partner, '2')
    expect(await details()).toEqual({ required: '5', available: '3' })
  })
})

describe('a charge for a person’s data', () => {
  test('is not a subscription: with the same key the answer is the cached data, free, and no source is asked', async () => {
    const partner = await aPartner('20')
    upstream.answers((_, n) => known(`version ${n}`))
    const first = await ask(partner, 'bought')
    expect(headlineOf(first)).toBe('version 0')
    expectCredits(first, '5', '15')
    for (let n = 0; n < 2; n++) {
      house.moveClock(10 * dayMs)
      const again = await ask(partner, 'bought')
      expect({ status: again.status, headline: headlineOf(again) }).toEqual({
        status: 200,
        headline: 'version 0',
      })
      expect(again.body.cached).toBe(true)
      expectReplay(again, partner)
    }
    expect(upstream.requests).toHaveLength(1)
  })

  test('returns a free 503 under its key once nothing is cached, and no source is asked; another key is another call', async () => {
    const partner = await aPartner('20')
    upstream.answers((_, n) => known(`version ${n}`))
    await ask(partner, 'bought')
    house.moveClock(31 * dayMs)
    for (let n = 0; n < 2; n++) {
      const again = await ask(partner, 'bought')
      expectErrorObject(again, unavailable)
      expectCredits(again, '0', '15')
    }
    expect(upstream.requests).toHaveLength(1)
    const other = await ask(partner, 'bought-again')
    expect(headlineOf(other)).toBe('version 1')
    expectCredits(other, '5', '10')
    // The older charge did not pay for data that another charge fetched a month later.
    const last = await ask(partner, 'bought')
    expectErrorObject(last, unavailable)
    expectCredits(last, '0', '10')
    expect(upstream.requests).toHaveLength(2)
    expect(await chargesOf(house, partner)).toHaveLength(2)
  })
})
