/**
 * Decision 15: only a charge uses up an Idempotency-Key, so a free call can be repeated. A charged call is never charged again, but
 * its key returns only the answer that was paid for. Answers with personal data are not stored: a repeated call returns only the
 * person for whom its key was charged, and free answers about that person use up no key.
 */
import { afterAll, beforeEach, describe, expect, test } from 'vitest'
import { type AnswerAndFacts, openHouse, type Partner, places, until } from '../support/house.ts'
import { profileUpstream, type UpstreamAnswer } from '../support/profile-upstream.ts'
import { buy, chargesOf, failureFact, forget, loseAnswers, unavailable, unpaid } from './ledger-scene.ts'
import { bare, expectCredits, expectErrorObject, expectRefusedCall } from './wire.ts'

const path = '/v1/profnet/profile'
const minuteMs = 60_000
const hourMs = 3_600_000
const dayMs = 24 * hourMs

/** A second partner, whose calls change the cache. */
let people = 0
let lid = ''
let number = ''

const upstream = await profileUpstream()
const house = await openHouse({
  clock: 'movable',
  environment: {
    PROFILE_PROVIDER: 'http',
    PROFILE_HTTP_URL: `${upstream.url}/people?lid={lid}&urn={urn}`,
    PROFILE_DOMAIN: 'profnet.example',
    PROFILE_URN_PREFIX: 'urn:profnet',
    EGRESS_ALLOW: '127.0.0.0/8',
  },
})
const aPartner = (credits: string): Promise<Partner> =>
  house.partner({
    permissions: ['profnet_scraping', 'ip_lookup'],
    credits,
    limits: { requests_per_minute: 100_000, requests_per_day: 1_000_000 },
  })

const bystander = await aPartner('1000')
afterAll(async () => {
  await house.close()
  await upstream.close()
})
beforeEach(() => {
  people++
  lid = `zorvina-quillfeather-${people}`
  number = String(98_765_432_100 + people)
})

const urnOf = (of: string): string => `urn:profnet:person:${of}`

/** Requests a profile, and waits until no fetch is running. */
const ask = async (
  partner: Partner,
  { id = lid, cached = false, key }: { id?: string; cached?: boolean; key?: string } = {},
): Promise<AnswerAndFacts> => {
  const answer = await house.post(
    partner,
    path,
    { id, cached },
    key === undefined ? {} : { 'idempotency-key': key },
  )
  await until(
    'no fetch is running',
    async () => (await house.query('select 1 from profile_fetches')).length === 0,
  )
  return answer
}

/** The Date header has the house's time, because the upstream's own clock does not move. */
const known = (headline: string, { urn = number }: { urn?: string } = {}): UpstreamAnswer => ({
  headers: { date: new Date().toUTCString() },
  body: { lid, urn: urnOf(urn), firstname: 'Zorvina', lastname: 'Quillfeather', headline },
})

const nobody: UpstreamAnswer = { status: 404 }
/** An invalid answer. It is not a connection failure, so the service continues to send requests to the source. */
const nonsense: UpstreamAnswer = { body: 'nonsense' }

const headlineOf = ({ body }: AnswerAndFacts): unknown => Object(body.result).headline
const replayed = ({ headers }: AnswerAndFacts): string | null => headers.get('idempotent-replayed')

const expectRepeated = (answer: AnswerAndFacts, headline: string, remaining: string): void => {
  expect({ status: answer.status, headline: headlineOf(answer), replayed: replayed(answer) }).toEqual({
    status: 200,
    headline,
    replayed: 'true',
  })
  expectCredits(answer, '0', remaining)
}

/** Expects no personal data, no charge, and no request to a source. */
const expectNobody = (answer: AnswerAndFacts, remaining: string): void => {
  expectErrorObject(answer, unavailable)
  expectCredits(answer, '0', remaining)
  expect(answer.text).not.toContain('Zorvina')
  expect(replayed(answer)).toBeNull()
}

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
  const delivered = await ask(partner, { key: key })
  expect({ status: delivered.status, headline: headlineOf(delivered) }).toEqual({
    status: 200,
    headline: 'Keeper of small lamps',
  })
  expect(Number(before) - Number(after)).toBe(5)
  expectCredits(delivered, '5', after)
  expect(replayed(delivered)).toBeNull()
  expect(delivered.events.map(({ type }) => type)).toEqual(['KeyUsed', 'CreditCharged'])
  const again = await ask(partner, { key: key })
  expect(again.status).toBe(200)
  expectReplay(again, partner)
  expectCredits(again, '0', after)
  expect(await chargesOf(house, partner)).toHaveLength(1)
}

describe('a tombstone', () => {
  test('uses up no key, even if repeated twenty times: once the person is back the key delivers, and is charged once', async () => {
    upstream.answers(() => known('Here'))
    await ask(bystander)
    house.moveClock(2 * minuteMs)
    upstream.answers(() => ({ status: 410 }))
    expect((await ask(bystander)).body).toMatchObject({ result: { deleted: true } })

    const partner = await aPartner('20')
    for (let n = 0; n < 20; n++) {
      const gone = await ask(partner, { cached: true, key: 'gone' })
      expect({ n, status: gone.status, result: gone.body.result, replayed: replayed(gone) }).toMatchObject({
        n,
        status: 200,
        result: { lid, deleted: true, headline: null },
        replayed: null,
      })
      expectCredits(gone, '0', '20')
      expect(gone.events.map(({ type }) => type)).toEqual(['KeyUsed'])
    }

    house.moveClock(2 * minuteMs)
    upstream.answers(() => known('Back'))
    expect(headlineOf(await ask(bystander))).toBe('Back')
    const delivered = await ask(partner, { cached: true, key: 'gone' })
    expect({ headline: headlineOf(delivered), replayed: replayed(delivered) }).toEqual({
      headline: 'Back',
      replayed: null,
    })
    expectCredits(delivered, '2', '18')
    expectRepeated(await ask(partner, { cached: true, key: 'gone' }), 'Back', '18')
    expect(await chargesOf(house, partner)).toHaveLength(1)
  })
})

describe('a call that was charged before its process died, and whose repetition was refused,', () => {
  const mismatch = { status: 422, error: 'validation_error', code: 'IDEMP_001', details: {} }

  test('keeps its key: another route or body under it gets IDEMP_001, and its own is refused as before', async () => {
    const partner = await aPartner('20')
    upstream.answers(() => known('Bought'))
    expectCredits(await ask(partner, { key: 'crashed' }), '5', '15')
    await loseAnswers(house, partner)
    house.moveClock(31 * dayMs)
    expectNobody(await ask(partner, { key: 'crashed' }), '15')
    for (let n = 0; n < 2; n++) {
      const elsewhere = await house.lookup(partner, { ip: places.london }, { 'idempotency-key': 'crashed' })
      expectRefusedCall(elsewhere, partner, mismatch)
      expectCredits(elsewhere, '0', '15')
      const another = await ask(partner, { id: `${lid}-other`, key: 'crashed' })
      expectRefusedCall(another, partner, mismatch, 'profile')
    }
    expectNobody(await ask(partner, { key: 'crashed' }), '15')
    expect(upstream.requests).toHaveLength(1)
    expect(await chargesOf(house, partner)).toHaveLength(1)
  })

  test('is answered under its key once that is possible', async () => {
    const partner = await aPartner('20')
    upstream.answers(() => known('Bought'))
    await ask(partner, { key: 'later' })
    await loseAnswers(house, partner)
    // Makes the purchased data unreadable for a while.
    await house.query(`update profile_keys set subject_id = 'away ' || subject_id`)
    expectNobody(await ask(partner, { key: 'later' }), '15')
    await house.query(`update profile_keys set subject_id = replace(subject_id, 'away ', '')`)
    expectRepeated(await ask(partner, { key: 'later' }), 'Bought', '15')
    expect(upstream.requests).toHaveLength(1)
  })
})

describe('a charge for a person’s data', () => {
  test('never pays for the data of another person who has since taken over the name', async () => {
    const partner = await aPartner('20')
    upstream.answers(() => known('Who was paid for'))
    expectCredits(await ask(partner, { key: 'bought' }), '5', '15')
    // An hour later, on the same day, the name leads to another person.
    house.moveClock(hourMs)
    const other = String(Number(number) + 1_000_000)
    upstream.answers(() => known('Somebody else', { urn: other }))
    expect(headlineOf(await ask(bystander, { id: urnOf(other) }))).toBe('Somebody else')
    expect(headlineOf(await ask(bystander, { cached: true }))).toBe('Somebody else')
    for (let n = 0; n < 2; n++) expectNobody(await ask(partner, { key: 'bought' }), '15')
    expect(headlineOf(await ask(partner, { cached: true, key: 'bought-now' }))).toBe('Somebody else')
    expect(await chargesOf(house, partner)).toHaveLength(2)
  })

  test('buys the person’s newer data within a day', async () => {
    const partner = await aPartner('20')
    upstream.answers(() => known('At first'))
    await ask(partner, { key: 'bought' })
    house.moveClock(23 * hourMs)
    upstream.answers(() => known('Within the day'))
    expect(headlineOf(await ask(bystander))).toBe('Within the day')
    for (let n = 0; n < 2; n++) expectRepeated(await ask(partner, { key: 'bought' }), 'Within the day', '15')
    expect(upstream.requests).toHaveLength(1)
    expect(await chargesOf(house, partner)).toHaveLength(1)
  })

  test('buys the person’s newer data of that day, also when it is repeated later', async () => {
    const partner = await aPartner('20')
    upstream.answers(() => known('At first'))
    await ask(partner, { key: 'bought' })
    house.moveClock(23 * hourMs)
    upstream.answers(() => known('Within the day'))
    await ask(bystander)
    house.moveClock(2 * hourMs)
    expectRepeated(await ask(partner, { key: 'bought' }), 'Within the day', '15')
  })

  test('does not pay for data that another partner fetched more than a day later', async () => {
    const partner = await aPartner('20')
    upstream.answers(() => known('At first'))
    await ask(partner, { key: 'bought' })
    house.moveClock(dayMs + minuteMs)
    expectRepeated(await ask(partner, { key: 'bought' }), 'At first', '15')
    upstream.answers(() => known('The day after'))
    expect(headlineOf(await ask(bystander))).toBe('The day after')
    for (let n = 0; n < 2; n++) expectNobody(await ask(partner, { key: 'bought' }), '15')
    expect(upstream.requests).toHaveLength(1)
    expect(await chargesOf(house, partner)).toHaveLength(1)
  })
})

describe('a failure of the service', () => {
  test('does not use up the key, even if repeated twenty times: the next call with it counts as the first, and is charged when it delivers', async () => {
    const partner = await aPartner('20')
    upstream.answers(() => nonsense)
    for (let n = 0; n < 20; n++) {
      const failed = await ask(partner, { key: 'often' })
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
    await ask(partner, { key: 'moved' })
    lid = `${lid}-other`
    await expectDelivered(partner, 'moved', '20', '15')
  })
})

describe('a free refusal', () => {
  test('is the same refusal again within a day, also about a person, and no source is asked', async () => {
    const partner = await aPartner('20')
    upstream.answers(() => nobody)
    const first = await ask(partner, { key: 'nobody' })
    expectErrorObject(first, {
      status: 404,
      error: 'not_found',
      code: 'PROFNET_002',
      details: { id: lid },
    })
    upstream.answers(() => known('Here by now'))
    for (let n = 0; n < 2; n++) {
      const again = await ask(partner, { key: 'nobody' })
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
      const answer = await ask(partner, { key: 'daily' })
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
      const refused = await ask(partner, { key: 'poor' })
      expectErrorObject(refused, unpaid('5', '0'))
      expect(replayed(refused)).toBeNull()
    }
    expect(upstream.requests).toHaveLength(0)
    await buy(house, partner, '12')
    await expectDelivered(partner, 'poor', '12', '7')
  })

  test('shows the current credits, not those of the first refusal', async () => {
    const partner = await aPartner('1')
    const details = async () => (await ask(partner, { key: 'poorer' })).body.details
    expect(await details()).toEqual({ required: '5', available: '1' })
    await buy(house, partner, '2')
    expect(await details()).toEqual({ required: '5', available: '3' })
  })
})

describe('a charge for a person’s data that the cache has or has lost', () => {
  test('is not a subscription: with the same key the answer is the cached data, free, and no source is asked', async () => {
    const partner = await aPartner('20')
    upstream.answers((_, n) => known(`version ${n}`))
    const first = await ask(partner, { key: 'bought' })
    expect(headlineOf(first)).toBe('version 0')
    expectCredits(first, '5', '15')
    for (let n = 0; n < 2; n++) {
      house.moveClock(10 * dayMs)
      const again = await ask(partner, { key: 'bought' })
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
    await ask(partner, { key: 'bought' })
    house.moveClock(31 * dayMs)
    for (let n = 0; n < 2; n++) {
      const again = await ask(partner, { key: 'bought' })
      expectErrorObject(again, unavailable)
      expectCredits(again, '0', '15')
    }
    expect(upstream.requests).toHaveLength(1)
    const other = await ask(partner, { key: 'bought-again' })
    expect(headlineOf(other)).toBe('version 1')
    expectCredits(other, '5', '10')
    // The older charge did not pay for data that another charge fetched a month later.
    const last = await ask(partner, { key: 'bought' })
    expectErrorObject(last, unavailable)
    expectCredits(last, '0', '10')
    expect(upstream.requests).toHaveLength(2)
    expect(await chargesOf(house, partner)).toHaveLength(2)
  })
})
