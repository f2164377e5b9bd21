import { afterAll, describe, expect, test } from 'vitest'
import { defaultPriceBook, priceBookOf } from '../../src/billing/price-book.ts'
import { type ProfileResult, profileResult } from '../../src/capabilities/profile/contract.ts'
import {
  type Answer,
  type AnswerAndFacts,
  openHouse,
  type Partner,
  type PartnerOptions,
  send,
  until,
} from '../support/house.ts'
import { profileUpstream, type UpstreamAnswer } from '../support/profile-upstream.ts'
import { failureFact, replayFact, unavailable, unpaid } from './ledger-scene.ts'
import {
  bare,
  expectCredits,
  expectErrorObject,
  expectRefusedCall,
  jsonType,
  rateLimitsOf,
  refusalFact,
  ulid,
} from './wire.ts'

const path = '/v1/profnet/profile'
const hourMs = 3_600_000

const upstream = await profileUpstream()
upstream.answers(async ({ path: asked }) => {
  const { searchParams } = new URL(asked, upstream.url)
  const answer = await answers.get(searchParams.get('lid') || searchParams.get('urn') || '')?.()
  return answer ?? { status: 404 }
})
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
const aPartner = (options: PartnerOptions = {}): Promise<Partner> =>
  house.partner({
    permissions: ['profnet_scraping'],
    limits: { requests_per_minute: 100_000, requests_per_day: 1_000_000 },
    ...options,
  })

const partner = await aPartner({ credits: '1000000' })
afterAll(async () => {
  await house.close()
  await upstream.close()
})

/** The upstream's answers, by `lid` and by number. */
const answers = new Map<string, () => UpstreamAnswer | Promise<UpstreamAnswer>>()
let people = 0

const freshLid = (): string => `zorvina-quillfeather-${++people}`
const freshNumber = (): string => `98765432109876${10_000 + ++people}`

/** The Date header has the house's time, because the upstream's own clock does not move. */
const served = (body: unknown): UpstreamAnswer => ({ headers: { date: new Date().toUTCString() }, body })

type Somebody = { readonly lid: string; readonly number: string }

const somebody = (more: Readonly<Record<string, unknown>> = {}): Somebody => {
  const known = { lid: freshLid(), number: freshNumber() }
  const say = () => served({ ...person, lid: known.lid, urn: `urn:profnet:person:${known.number}`, ...more })
  answers.set(known.lid, say)
  answers.set(known.number, say)
  return known
}

const timesAsked = (id: string): number =>
  upstream.requests.filter(({ path: asked }) => asked.includes(encodeURIComponent(id))).length

const ask = (by: Partner, body: unknown, headers?: Readonly<Record<string, string>>) =>
  house.post(by, path, body, headers)

/** Resolves when fetched data are in the cache and no fetch is running that the next call could join. */
const settled = (): Promise<void> =>
  until('no fetch is running', async () => (await house.query('select 1 from profile_fetches')).length === 0)

/** A person in the upstream's format, in which some dates lack the day or month. */
const person = {
  firstname: 'Zorvina',
  lastname: 'Quillfeather',
  numOfConnections: 512,
  headline: 'Keeper of small lamps',
  about: 'Lamps, and the people below them.',
  skills: ['Lamps', 'Ladders'],
  languages: [
    { value: 'English', norm: 'en' },
    { value: 'Deutsch', norm: 'de' },
  ],
  address: {
    street: '3 Wick Lane',
    city: 'Leeds',
    state: 'England',
    postal_code: 'LS1 4AP',
    country: 'United Kingdom',
    country_code: 'GB',
  },
  educations: [
    {
      urn: 'urn:profnet:school:7',
      name: 'School of Light',
      degree: 'BSc',
      startDate: '1999',
      endDate: '2002-07',
    },
    { urn: null, name: 'Evening School', degree: null, startDate: '2024-09-15', endDate: null },
  ],
  employment_history: [
    {
      title: 'Keeper',
      description: 'Keeps.',
      startDate: '2019-03',
      endDate: null,
      location: 'Leeds',
      is_current: true,
      company: { lid: 'wick-works', company_name: 'Wick Works', urn: 'urn:profnet:company:12' },
    },
    {
      title: 'Apprentice',
      description: null,
      startDate: '2002',
      endDate: '2019-02-28',
      location: null,
      is_current: false,
      company: { lid: null, company_name: 'Lanterns', urn: null },
    },
  ],
  emails: [
    { value: 'zorvina@wick-works.example', sub_type: 'PROFESSIONAL' },
    { value: 'z.quillfeather@post.example', sub_type: 'PERSONAL' },
  ],
  phone_numbers: [{ value: '+441132496000', sub_type: 'MOBILE' }],
}

const profileOf = ({ lid }: Pick<Somebody, 'lid'>) => ({
  ...person,
  url: `https://www.profnet.example/in/${lid}`,
  lid,
  deleted: false,
})

const nothingKnown = {
  firstname: null,
  lastname: null,
  numOfConnections: null,
  headline: null,
  about: null,
  skills: [],
  languages: [],
  address: null,
  educations: [],
  employment_history: [],
  emails: [],
  phone_numbers: [],
}

/** Returns the result of a 200, and expects exactly the members in Specification 2.4. */
const resultOf = (answer: Answer): ProfileResult => {
  expect({ status: answer.status, text: answer.text }).toMatchObject({ status: 200 })
  const read = profileResult.parse(answer.body.result)
  // Parsing drops members that are not in the contract.
  expect(answer.body.result).toStrictEqual(read)
  return read
}

type Source = 'cached' | 'fresh'
const prices = { cached: '2', fresh: '5' } as const

const subjectId = expect.stringMatching(/^sub_[0-9A-HJKMNP-TV-Z]{26}$/)

const charged = (by: Partner, source: Source, ageSeconds: unknown = expect.any(Number)) => [
  {
    type: 'KeyUsed',
    data: {
      key_id: by.keyId,
      capability: 'profile',
      outcome: 'answered',
      facts: { kind: 'profile', source, age_seconds: ageSeconds, subject_id: subjectId },
    },
  },
  {
    type: 'CreditCharged',
    data: {
      charge_id: expect.stringMatching(/^[0-9a-f-]{36}$/),
      sku: `profile_${source}`,
      amount: prices[source],
      lines: [
        { sku: `profile_${source}`, amount: prices[source], rule: `profile.${source}`, rule_version: 1 },
      ],
      rule: `profile.${source}`,
      rule_version: 1,
      price_book_version: 1,
      price_book_digest: priceBookOf(defaultPriceBook).digest,
      allocations: [{ grant_id: expect.any(String), amount: prices[source] }],
    },
  },
]

const subjectOf = ({ events }: AnswerAndFacts): unknown =>
  Object(events.find(({ type }) => type === 'KeyUsed')?.data.facts).subject_id

const notFound = (id: string) => ({
  status: 404,
  error: 'not_found',
  code: 'PROFNET_002',
  details: { id },
})

const expectNotFound = async (id: string, wants: { cached?: boolean } = {}): Promise<void> =>
  expectRefusedCall(await ask(partner, { id, ...wants }), partner, notFound(id), 'profile')

describe('2.4 the profile response', () => {
  test('fresh data: result, processing_time_ms and request_id, and nothing else', async () => {
    const { lid } = somebody()
    const answer = await ask(partner, { id: lid, cached: false })
    const { status, headers, body } = answer
    expect(status).toBe(200)
    expect(Object.keys(body)).toEqual(['result', 'processing_time_ms', 'request_id'])
    expect(body.processing_time_ms).toBeTypeOf('number')
    expect(body.processing_time_ms).toBeGreaterThan(0)
    expect(body.request_id).toMatch(ulid)
    expect(headers.get('x-request-id')).toBe(body.request_id)
    expect(headers.get('content-type')).toBe(jsonType)
    expect(Object.keys(rateLimitsOf(answer))).toEqual(['minute', 'day'])
  })

  test('every field is present, and dates are as precise as they are known, never padded', async () => {
    const known = somebody()
    const result = resultOf(await ask(partner, { id: known.lid }))
    expect(result).toEqual(profileOf(known))
    expect(result.educations.map(({ startDate, endDate }) => [startDate, endDate])).toEqual([
      ['1999', '2002-07'],
      ['2024-09-15', null],
    ])
  })

  test('cached data: the same result, and in addition cached and its age in hours, with two decimals', async () => {
    const { lid } = somebody()
    const fresh = await ask(partner, { id: lid })
    await settled()
    house.moveClock(1.5 * hourMs)
    const answer = await ask(partner, { id: lid })
    expect(Object.keys(answer.body)).toEqual([
      'result',
      'processing_time_ms',
      'request_id',
      'cached',
      'cache_age_hours',
    ])
    expect(answer.body.cached).toBe(true)
    expect(answer.body.cache_age_hours).toBeGreaterThanOrEqual(1.5)
    expect(answer.body.cache_age_hours).toBeLessThan(1.52)
    expect(String(answer.body.cache_age_hours)).toMatch(/^\d+(\.\d{1,2})?$/)
    expect(resultOf(answer)).toEqual(resultOf(fresh))
    expect(timesAsked(lid)).toBe(1)
  })
})

describe('4.3 the three forms of id', () => {
  test('name, URL and URN lead to one person, who is fetched once', async () => {
    const known = somebody()
    const first = await ask(partner, { id: `urn:profnet:person:${known.number}` })
    expect(resultOf(first)).toEqual(profileOf(known))
    await settled()
    for (const id of [
      known.lid.toUpperCase(),
      `profnet.example/in/${known.lid}/`,
      `https://de.profnet.example/in/${known.lid}?trk=a#top`,
    ]) {
      const again = await ask(partner, { id })
      expect(resultOf(again)).toEqual(profileOf(known))
      expect(again.body.cached).toBe(true)
      expect(subjectOf(again)).toBe(subjectOf(first))
    }
    expect(timesAsked(known.lid) + timesAsked(known.number)).toBe(1)
  })
})

describe('4.3.1 an unrecognized id gets PROFNET_001, costs nothing, and the source is not asked', () => {
  const unrecognized = (id: string) => ({
    status: 400,
    error: 'validation_error',
    code: 'PROFNET_001',
    details: { id, supported_formats: ['ID', 'URL', 'URN'] },
  })

  test.each([
    ['empty', ''],
    ['an e-mail address', 'zorvina@post.example'],
  ])('%s', async (_, id) => {
    const before = upstream.requests.length
    expectRefusedCall(await ask(partner, { id }), partner, unrecognized(id), 'profile')
    expect(upstream.requests).toHaveLength(before)
  })
})

describe('4.3.2 a profile that is absent or inaccessible gets PROFNET_002 and costs nothing', () => {
  test.each([
    ['unknown to the upstream', 404],
    ['gone, and never known here', 410],
    ['not shown by the upstream', 403],
  ])('%s', async (_, status) => {
    const lid = freshLid()
    answers.set(lid, () => ({ status }))
    for (const id of [lid, `https://www.profnet.example/in/${lid}`]) await expectNotFound(id)
    expect(timesAsked(lid)).toBe(1)
  })
})

describe('4.3.3 a missing id gets REQ_002', () => {
  test.each([
    ['absent', {}],
    ['misspelled', { ID: 'zorvina', cached: false }],
  ])('%s', async (_, body) => {
    expectRefusedCall(
      await ask(partner, body),
      partner,
      {
        status: 400,
        error: 'bad_request',
        code: 'REQ_002',
        details: { missing_parameter: 'id', parameter_type: 'string' },
      },
      'profile',
    )
  })
})

describe('decision 11: the price of a retrieval', () => {
  test('fresh data cost 5, cached data 2: one fact, and the charge right after it', async () => {
    const { lid } = somebody()
    const fresh = await ask(partner, { id: lid, cached: false })
    expect(bare(fresh.events)).toEqual(charged(partner, 'fresh', 0))
    expect(fresh.headers.get('credits-charged')).toBe('5')
    await settled()
    house.moveClock(2 * hourMs)
    const second = await ask(partner, { id: lid })
    expect(bare(second.events)).toEqual(charged(partner, 'cached'))
    expect(second.headers.get('credits-charged')).toBe('2')
    for (const { events, body } of [fresh, second]) {
      const [fact, charge] = events
      expect(charge?.revision).toBe((fact?.revision ?? 0) + 1)
      expect(charge?.metadata).toMatchObject({ causation_id: fact?.id, request_id: body.request_id })
      expect(fact?.metadata).toMatchObject({ request_id: body.request_id, actor: `key:${partner.keyId}` })
    }
    expect(Object(second.events[0]?.data.facts).age_seconds).toBeGreaterThanOrEqual(7_200)
  })

  test('after the clock was set back, data from before is not fresh, so it is fetched again', async () => {
    const { lid } = somebody()
    await ask(partner, { id: lid, cached: false })
    await settled()
    house.setClock(-hourMs)
    try {
      const answer = await ask(partner, { id: lid, cached: false })
      expect(bare(answer.events)).toEqual(charged(partner, 'fresh', 0))
      expect(timesAsked(lid)).toBe(2)
      await settled()
      expect((await ask(partner, { id: lid })).headers.get('credits-charged')).toBe('2')
    } finally {
      house.setClock(hourMs)
    }
  })

  test('a call right after an answer gets cached data, at the price of cached data', async () => {
    for (let n = 0; n < 5; n++) {
      const { lid } = somebody()
      expect(bare((await ask(partner, { id: lid })).events)).toEqual(charged(partner, 'fresh', 0))
      const again = await ask(partner, { id: lid })
      expect(again.body.cached).toBe(true)
      expect(again.headers.get('credits-charged')).toBe('2')
      expect(timesAsked(lid)).toBe(1)
    }
  })

  test('fresh data that another call fetched a moment ago have the price of fresh data', async () => {
    const { lid } = somebody()
    await ask(partner, { id: lid })
    await settled()
    const other = await aPartner()
    expect(bare((await ask(other, { id: lid, cached: false })).events)).toEqual(charged(other, 'fresh'))
    expect(timesAsked(lid)).toBe(1)
  })

  test('a known person who was deleted upstream is deleted: true, without any other data, and free', async () => {
    const known = somebody()
    await ask(partner, { id: known.lid })
    await settled()
    for (const id of [known.lid, known.number]) answers.set(id, () => ({ status: 410 }))
    house.moveClock(hourMs)
    for (const wants of [{ cached: false }, {}]) {
      const answer = await ask(partner, { id: known.lid, ...wants })
      expect(resultOf(answer)).toEqual({ ...profileOf(known), ...nothingKnown, deleted: true })
      expect(Object.keys(answer.body)).toEqual(['result', 'processing_time_ms', 'request_id'])
      expect(answer.headers.get('credits-charged')).toBe('0')
      expect(bare(answer.events)).toEqual([
        {
          type: 'KeyUsed',
          data: {
            key_id: partner.keyId,
            capability: 'profile',
            outcome: 'answered',
            facts: {
              kind: 'profile',
              source: 'deleted',
              age_seconds: expect.any(Number),
              subject_id: subjectId,
            },
            free_by: { rule: 'profile.deleted', rule_version: 1 },
          },
        },
      ])
    }
  })
})

describe('a balance that is too low', () => {
  test.each([
    ['fresh data', { cached: false }],
    ['cached data that are not stored', { cached: true }],
  ])('for %s is reported before the upstream is asked', async (_, wants) => {
    const { lid } = somebody()
    const poor = await aPartner({ credits: '4' })
    const answer = await ask(poor, { id: lid, ...wants })
    expectErrorObject(answer, unpaid('5', '4'))
    expect(bare(answer.events)).toEqual([refusalFact(poor, 'CREDIT_001', 'profile')])
    expectCredits(answer, '0', '4')
    expect(timesAsked(lid)).toBe(0)
  })

  test('that pays only for cached data gets cached data', async () => {
    const { lid } = somebody()
    await ask(partner, { id: lid })
    await settled()
    const poor = await aPartner({ credits: '2' })
    const answer = await ask(poor, { id: lid })
    expect(bare(answer.events)).toEqual(charged(poor, 'cached'))
    expectCredits(answer, '2', '0')
    const again = await ask(poor, { id: lid })
    expectErrorObject(again, unpaid('2', '0'))
    expect(again.text).not.toContain('Quillfeather')
  })

  test('that cannot pay for cached data reveals nothing, not even whether the person is known', async () => {
    const [here, gone] = [somebody(), somebody()]
    const nobody = freshLid()
    await ask(partner, { id: here.lid })
    await ask(partner, { id: gone.lid })
    await settled()
    for (const id of [gone.lid, gone.number]) answers.set(id, () => ({ status: 410 }))
    house.moveClock(hourMs)
    await ask(partner, { id: gone.lid, cached: false })
    await expectNotFound(nobody)
    await settled()
    const poor = await aPartner({ credits: '1' })
    for (const id of [here.lid, gone.lid, nobody, freshLid()]) {
      expectErrorObject(await ask(poor, { id }), unpaid('2', '1'))
      expectErrorObject(await ask(poor, { id, cached: false }), unpaid('5', '1'))
    }
    expect((await ask(poor, { id: '' })).body.code).toBe('PROFNET_001')
    const other = await aPartner({ credits: '2' })
    expect((await ask(other, { id: gone.lid })).body).toMatchObject({ result: { deleted: true } })
    const refused = await ask(other, { id: nobody })
    expectErrorObject(refused, notFound(nobody))
    expectCredits(refused, '0', '2')
  })
})

describe('an upstream failure gets 503 with Retry-After, and nothing is charged', () => {
  /** Expects the call's fact without a charge, and an empty cache. */
  const expectUnavailable = (answer: AnswerAndFacts, by: Partner, retryAfterSeconds: number): void => {
    expectErrorObject(answer, unavailable)
    expect(answer.headers.get('retry-after')).toBe(String(retryAfterSeconds))
    expect(answer.headers.get('credits-charged')).toBe('0')
    expect(bare(answer.events)).toEqual([failureFact(by, 'profile')])
  }

  test.each<[string, UpstreamAnswer]>([
    ['answers with 500', { status: 500, body: { firstname: 'Zorvina' } }],
    ['closes the connection', 'reset'],
    ['writes invalid JSON', { body: '{"firstname": "Zorvina' }],
    ['redirects to a private network', { status: 302, headers: { location: 'http://10.0.0.1/' } }],
  ])('an upstream that %s', async (_, behaviour) => {
    const by = await aPartner()
    const { lid, number } = somebody()
    const wasThere = answers.get(lid)
    for (const id of [lid, number]) answers.set(id, () => behaviour)
    expectUnavailable(await ask(by, { id: lid }), by, 5)
    await settled()
    if (wasThere !== undefined) answers.set(lid, wasThere)
    expect(bare((await ask(by, { id: lid })).events)).toEqual(charged(by, 'fresh', 0))
  })

  test('an upstream at a private address that is not exempt: nothing connects there', async () => {
    const app = await house.another({ config: { EGRESS_ALLOW: [] } })
    try {
      const { lid } = somebody()
      const before = (await house.eventsOf(partner.organizationId)).length
      const answer = await send(`${app.apiUrl}${path}`, {
        headers: { 'x-api-key': partner.apiKey, 'content-type': 'application/json' },
        body: { id: lid },
      })
      const events = (await house.eventsOf(partner.organizationId)).slice(before)
      expectUnavailable({ ...answer, events }, partner, 5)
      expect(timesAsked(lid)).toBe(0)
    } finally {
      await app.close()
    }
  })
})

describe('decision 15: Idempotency-Key', () => {
  test('a repeated key gets an answer again and is charged once; the answer is never stored', async () => {
    const { lid } = somebody()
    const by = await aPartner({ credits: '5' })
    const askOnce = () => ask(by, { id: lid, cached: false }, { 'idempotency-key': 'one-person' })
    const first = await askOnce()
    expect(first.headers.get('idempotent-replayed')).toBeNull()
    expectCredits(first, '5', '0')
    await settled()
    // The first replay records in the ledger that the charge is final.
    for (let n = 0; n < 2; n++) {
      const again = await askOnce()
      expect(resultOf(again)).toEqual(resultOf(first))
      expect(again.headers.get('idempotent-replayed')).toBe('true')
      expectCredits(again, '0', '0')
      expect(bare(again.events)).toEqual([replayFact(by, 'profile')])
    }
    expect(timesAsked(lid)).toBe(1)
    const rows = await house.query('select status, answer from idempotent_calls where organization_id = $1', [
      by.organizationId,
    ])
    expect(rows).toEqual([{ status: 200, answer: null }])
  })
})

describe('permission', () => {
  test('a key without profnet_scraping is refused, and no source is asked', async () => {
    const { lid } = somebody()
    const other = await aPartner({ permissions: ['ip_lookup', 'email_validation', 'pixel_control'] })
    expectRefusedCall(
      await ask(other, { id: lid }),
      other,
      {
        status: 403,
        error: 'forbidden',
        code: 'AUTH_002',
        details: { required_permission: 'profnet_scraping' },
      },
      'profile',
    )
    expect(timesAsked(lid)).toBe(0)
  })
})

describe('decision 21: personal data', () => {
  const marks = [
    'Xylophora',
    'Brindlemoor',
    'Öseltrup',
    'xylophora@moor.example',
    '+441132496123',
    'Peatworks',
  ]
  const profile = {
    ...person,
    firstname: 'Xylophora',
    lastname: 'Brindlemoor',
    about: 'Öseltrup is where it began.',
    emails: [{ value: 'xylophora@moor.example', sub_type: 'PERSONAL' }],
    phone_numbers: [{ value: '+441132496123', sub_type: 'WORK' }],
    employment_history: [{ title: 'Founder', company: { company_name: 'Peatworks' }, is_current: true }],
  }

  const everyRow = async (): Promise<Map<string, string>> => {
    const tables = await house.query(
      `select format('%I.%I', schemaname, tablename) as name from pg_tables
        where schemaname not in ('pg_catalog', 'information_schema')`,
    )
    const texts = new Map<string, string>()
    for (const { name } of tables) {
      const rows = await house.query(`select row_to_json(t)::text as row from ${name} t`)
      texts.set(String(name), rows.map(({ row }) => row).join('\n'))
      // The event log's rows contain events as bytes, and long events are compressed.
      if (name === 'public.log_segments')
        texts.set(
          name,
          JSON.stringify(await house.recorded(), (_, value) =>
            typeof value === 'bigint' ? `${value}` : value,
          ),
        )
    }
    return texts
  }

  test('no name, address, id or URL of a person is in any event or table, no matter how the call ended', async () => {
    const [lid, nobody, absent] = ['xylophora-brindlemoor', 'brindlemoor-nobody', 'brindlemoor-later']
    const number = freshNumber()
    const say = () => served({ ...profile, lid, urn: `urn:profnet:person:${number}` })
    answers.set(lid, say)
    answers.set(number, say)
    answers.set(absent, () => ({ status: 500, body: profile }))
    const ids = [lid, `https://www.profnet.example/in/${lid}`, `urn:profnet:person:${number}`]
    const subjects = new Set<unknown>()
    for (const id of ids)
      for (const wants of [{ cached: false }, {}]) {
        const answer = await ask(partner, { id, ...wants }, { 'idempotency-key': `${Math.random()}` })
        expect(resultOf(answer).lastname).toBe('Brindlemoor')
        subjects.add(subjectOf(answer))
        await settled()
      }
    for (const id of [nobody, absent, 'xylophora@moor.example', 'Xylophora Brindlemoor'])
      expect((await ask(partner, { id }, { 'idempotency-key': `${Math.random()}` })).status).not.toBe(200)
    const poor = await aPartner({ credits: '0' })
    expect((await ask(poor, { id: 'brindlemoor-unpaid' })).status).toBe(402)

    const rows = await everyRow()
    expect([...rows.keys()].map((name) => name.replace(/^(public|projections)\./, ''))).toEqual(
      expect.arrayContaining(['log_segments', 'idempotent_calls', 'profile_keys', 'profile_aliases_v1']),
    )
    // The search finds a name that must be in the database, so the search works.
    expect(subjects.size).toBe(1)
    expect(rows.get('public.log_segments')).toContain(String([...subjects][0]))
    for (const mark of [...marks, 'brindlemoor', number, 'profnet.example'])
      for (const [table, text] of rows)
        expect({ table, mark, found: text.toLowerCase().includes(mark.toLowerCase()) }).toEqual({
          table,
          mark,
          found: false,
        })
  })
})
