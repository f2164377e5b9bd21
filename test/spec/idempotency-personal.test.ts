/**
 * Decision 15 for answers with personal data, which are not stored. A repeated call returns only the person for whom its
 * Idempotency-Key was charged. Free answers about that person use up no key.
 */
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { type AnswerAndFacts, type House, openHouse, type Partner, places, until } from '../support/house.ts'
import { type ProfileUpstream, profileUpstream, type UpstreamAnswer } from '../support/profile-upstream.ts'
import { chargesOf, loseAnswers, unavailable } from './ledger-scene.ts'
import { expectCredits, expectErrorObject, expectRefusedCall } from './wire.ts'

const path = '/v1/profnet/profile'
const minuteMs = 60_000
const hourMs = 3_600_000
const dayMs = 24 * hourMs

let upstream: ProfileUpstream
let house: House
/** A second partner, whose calls change the cache. */
let bystander: Partner
let people = 0
let lid = ''
let number = ''

beforeAll(async () => {
  upstream = await profileUpstream()
  house = await openHouse({
    clock: 'movable',
    environment: {
      PROFILE_PROVIDER: 'http',
      PROFILE_HTTP_URL: `${upstream.url}/people?lid={lid}&urn={urn}`,
      PROFILE_DOMAIN: 'profnet.example',
      PROFILE_URN_PREFIX: 'urn:profnet',
      EGRESS_ALLOW: '127.0.0.0/8',
    },
  })
  bystander = await aPartner('1000')
})
afterAll(async () => {
  await house?.close()
  await upstream?.close()
})
beforeEach(() => {
  people++
  lid = `zorvina-quillfeather-${people}`
  number = String(98_765_432_100 + people)
})

const aPartner = (credits: string): Promise<Partner> =>
  house.partner({
    permissions: ['profnet_scraping', 'ip_lookup'],
    credits,
    limits: { requests_per_minute: 100_000, requests_per_day: 1_000_000 },
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
