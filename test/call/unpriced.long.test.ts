/** A capability without a price in the current price book is not performed, because it could not be rated and recorded. */
import { tmpdir } from 'node:os'
import pino from 'pino'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { defaultPriceBook, priceBookAt, priceBookOf } from '../../src/billing/price-book.ts'
import { parseConfig } from '../../src/config.ts'
import { StreamMissing } from '../../src/event-log/port.ts'
import { decodeEvent, encodeEvent, eventIdOf } from '../../src/event-log/stored-event.ts'
import type { PriceBookPublished } from '../../src/events/prices.ts'
import { pixelStream, priceBookStream } from '../../src/events/streams.ts'
import { type Foundation, openFoundation } from '../../src/foundation/foundation.ts'
import { openInstallationKey } from '../../src/foundation/installation-key.ts'
import { openNamed } from '../../src/foundation/open-event-log.ts'
import { secretKeyOf } from '../../src/guard/secrets/installation-key.ts'
import { type House, openHouse, places, until } from '../support/house.ts'
import { type TestDatabase, testDatabase } from '../support/postgres.ts'
import { type ProfileUpstream, profileUpstream } from '../support/profile-upstream.ts'

const silent = pino({ level: 'silent' })
const without = (...prefixes: readonly string[]): PriceBookPublished['rules'] =>
  defaultPriceBook.rules.filter(({ rule }) => prefixes.every((prefix) => !rule.startsWith(prefix)))

describe('a call that the price book in force does not price', () => {
  let upstream: ProfileUpstream
  let house: House

  beforeAll(async () => {
    upstream = await profileUpstream()
    house = await openHouse({
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

  const pixelEvents = async (organizationId: string): Promise<string[]> =>
    house.foundation.eventLog
      .read(pixelStream(organizationId), { max: 1_000 })
      .catch((error: unknown) => {
        if (error instanceof StreamMissing) return []
        throw error
      })
      .then((events) => events.map(({ type }) => type))

  test('is refused with 503 SYS_002 before any work, free and recorded; priced calls continue', async () => {
    const limits = { requests_per_minute: 100_000, requests_per_day: 1_000_000 }
    const partner = await house.partner({
      permissions: ['ip_lookup', 'profnet_scraping', 'pixel_control'],
      credits: '20',
      limits,
    })
    const decide = () => house.post(partner, '/pixel/decide', { url: 'https://www.example.com/' })
    const limit = (number: number) =>
      house.post(partner, '/pixel/limit', { domain: 'example.com', period: 'day', number })
    expect((await limit(5)).status).toBe(200)
    await until('the limit is known', async () => Object((await decide()).body.result).reason === 'allowed')
    const used = async (): Promise<unknown> =>
      (
        await house.query(
          `select coalesce(sum(used), 0)::int as used from pixel_counters where organization_id = $1`,
          [partner.organizationId],
        )
      )[0]?.used
    const rulesBefore = await pixelEvents(partner.organizationId)

    await house.publishPriceBook({
      effective_from: '2020-01-02T00:00:00.000Z',
      rules: without('pixel', 'profile'),
    })
    await until(
      'the price book is in force',
      async () => (await house.post(partner, '/v1/profnet/profile', { id: '' })).body.code === 'SYS_002',
    )
    const usedBefore = await used()
    const asks = [
      { ask: decide, capability: 'pixel' },
      { ask: () => limit(7), capability: 'pixel' },
      {
        ask: () => house.post(partner, '/pixel/block', { domain: 'example.com' }),
        capability: 'pixel',
      },
      {
        ask: () =>
          house.post(
            partner,
            '/v1/profnet/profile',
            { id: 'zorvina', cached: false },
            { 'idempotency-key': 'unpriced' },
          ),
        capability: 'profile',
      },
    ]
    for (const { ask, capability } of asks) {
      const answer = await ask()
      expect(answer.status).toBe(503)
      expect(answer.body).toMatchObject({ error: 'service_unavailable', code: 'SYS_002', details: {} })
      expect(answer.headers.get('credits-charged')).toBe('0')
      expect(answer.events.map(({ type, data }) => ({ type, data }))).toEqual([
        {
          type: 'KeyUsed',
          data: {
            key_id: partner.keyId,
            capability,
            outcome: 'failed',
            code: 'SYS_002',
            facts: { kind: 'refusal', code: 'SYS_002' },
            free_by: { rule: 'refusal', rule_version: 1 },
          },
        },
      ])
    }
    expect(await used()).toBe(usedBefore)
    expect(await pixelEvents(partner.organizationId)).toEqual(rulesBefore)
    expect(upstream.requests).toEqual([])
    expect((await house.lookup(partner, { ip: places.london })).headers.get('credits-charged')).toBe('1')

    await house.publishPriceBook({
      effective_from: '2020-01-03T00:00:00.000Z',
      rules: defaultPriceBook.rules,
    })
    await until('the next price book is in force', async () => (await decide()).status === 200)
    upstream.answers(() => ({ body: { lid: 'zorvina', firstname: 'Zorvina', headline: 'Keeper' } }))
    const paid = await house.post(
      partner,
      '/v1/profnet/profile',
      { id: 'zorvina', cached: false },
      { 'idempotency-key': 'unpriced' },
    )
    expect({ status: paid.status, charged: paid.headers.get('credits-charged') }).toEqual({
      status: 200,
      charged: '5',
    })
  })
})

describe('the price book when an installation is opened', () => {
  let database: TestDatabase
  const opened: Foundation[] = []

  beforeEach(async () => {
    database = await testDatabase()
  })
  afterEach(async () => {
    for (const foundation of opened.splice(0)) await foundation.close()
    await database.drop()
  })

  const secretKey = 'a'.repeat(43)
  /** Publishes price books as an earlier release or an operator left them in the log. */
  const publish = async (...books: readonly PriceBookPublished[]): Promise<void> => {
    const eventLog = await openNamed({ variable: 'DATABASE_URL', url: database.url }, silent)
    try {
      await openInstallationKey(eventLog, { secretKeys: [secretKeyOf(secretKey)] })
      for (const [n, data] of books.entries())
        await eventLog.append(priceBookStream, n === 0 ? 'none' : n - 1, [
          encodeEvent(
            { type: 'PriceBookPublished', data },
            {
              id: eventIdOf(priceBookStream, n === 0 ? 'default' : String(data.version), 0),
              actor: 'system',
              effectiveAt: data.effective_from,
            },
          ),
        ])
    } finally {
      await eventLog.close()
    }
  }

  const open = async (): Promise<PriceBookPublished[]> => {
    const config = parseConfig({ DATABASE_URL: database.url, SECRET_KEY: secretKey, DATA_DIR: tmpdir() })
    const foundation = await openFoundation(config, { logger: silent })
    opened.push(foundation)
    const events = await foundation.eventLog.read(priceBookStream, { max: 1_000 })
    return events.map(decodeEvent).flatMap(({ type, data }) => (type === 'PriceBookPublished' ? [data] : []))
  }

  const versionAt = (books: readonly PriceBookPublished[], at: string): number | undefined =>
    priceBookAt(books.map(priceBookOf), Date.parse(at))?.version

  const olderDefault: PriceBookPublished = { ...defaultPriceBook, rules: without('profile', 'pixel') }
  const operators = (version: number, effective_from: string): PriceBookPublished => ({
    version,
    effective_from,
    rules: without('profile', 'pixel').map((rule) => (rule.sku === null ? rule : { ...rule, amount: '9' })),
    approver: 'finance',
    proposal: null,
    digest: null,
  })
  const future = '2099-01-01T00:00:00.000Z'

  test('is the default book if there was no book, and stays', async () => {
    expect(await open()).toEqual([defaultPriceBook])
    expect(await open()).toEqual([defaultPriceBook])
  })

  test("is also completed if an operator's book is scheduled, which then takes effect unchanged", async () => {
    const coming = operators(2, future)
    await publish(olderDefault, coming)
    const books = await open()
    expect(books).toEqual([olderDefault, coming, { ...defaultPriceBook, version: 3 }])
    expect(versionAt(books, new Date().toISOString())).toBe(3)
    expect(versionAt(books, future)).toBe(2)
    expect(await open()).toEqual(books)
  })

  test("is never changed if an operator's book is in force", async () => {
    const books = [olderDefault, operators(2, '2021-01-01T00:00:00.000Z')]
    await publish(...books)
    expect(await open()).toEqual(books)
  })

  test('is completed if it is the default of an earlier release: by one next book with the same effective date, no matter how many processes open at the same time', async () => {
    await publish(olderDefault)
    await Promise.all([open(), open(), open()])
    expect(await open()).toEqual([olderDefault, { ...defaultPriceBook, version: 2 }])
  })
})
