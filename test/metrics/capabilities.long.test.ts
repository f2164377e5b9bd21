/** Metrics for mailboxes, profile sources, pixel counters and DNS. They identify no one. */
import pino from 'pino'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { meterSource, observerOf } from '../../src/capabilities/profile/index.ts'
import { guardSource } from '../../src/capabilities/profile/sources/guarded-source.ts'
import type { ProviderAnswer } from '../../src/capabilities/profile/sources/provider.ts'
import { createMetrics } from '../../src/metrics/metrics.ts'
import { startDnsServer } from '../support/dns-server.ts'
import { openHouse, until } from '../support/house.ts'
import { profileUpstream } from '../support/profile-upstream.ts'
import { startSmtpServer } from '../support/smtp-servers.ts'
import { changed, labelWords, samples } from './samples.ts'

const limits = {
  requests_per_minute: 100_000,
  requests_per_day: 1_000_000,
  email_validations_per_second: 1_000,
}

const dns = await startDnsServer({})
const mailServer = await startSmtpServer({
  recipient: (mailbox) => (mailbox.startsWith('someone@') ? '250 2.1.5 ok' : '550 5.1.1 no such user'),
})
const upstream = await profileUpstream()
const house = await openHouse({
  environment: {
    DNS_SERVERS: dns.address,
    SMTP_PORT: String(mailServer.port),
    SMTP_HELO: 'probe.example.net',
    EGRESS_ALLOW: '127.0.0.0/8',
    SMTP_ALLOW: '127.0.0.0/8',
    PROFILE_PROVIDER: 'http',
    PROFILE_HTTP_URL: `${upstream.url}/people?lid={lid}&urn={urn}`,
    PROFILE_DOMAIN: 'profnet.example',
    PROFILE_URN_PREFIX: 'urn:profnet',
  },
})
const mailer = await house.partner({ permissions: ['email_validation'], credits: '1000', limits })
const reader = await house.partner({ permissions: ['profnet_scraping'], credits: '1000', limits })
const advertiser = await house.partner({ permissions: ['pixel_control'], credits: '5', limits })
afterAll(async () => {
  await house.close()
  await upstream.close()
  await mailServer.close()
  await dns.close()
})

/** Adds a domain whose mail server has the address. Only the address 127.0.0.1 has a server. */
const mailGoesTo = (domain: string, address: string): void => {
  dns.set(domain, 'MX', [{ priority: 10, exchange: `mx.${domain}` }])
  dns.set(`mx.${domain}`, 'A', [address])
}

const text = async (): Promise<string> => (await fetch(`${house.metricsUrl}/metrics`)).text()

describe('e-mail validation', () => {
  const validateAll = async (...emails: string[]): Promise<void> => {
    for (const email of emails)
      expect((await house.post(mailer, '/v1/email/validate', { email })).status).toBe(200)
  }

  test('verdicts are counted by the row that decided, mailboxes by the answers of their servers', async () => {
    mailGoesTo('taken.example.com', '127.0.0.1')
    mailGoesTo('ruined.example.com', '127.0.0.2')
    const before = await text()
    await validateAll(
      'no-at-sign',
      'someone@nowhere.example.com',
      'someone@taken.example.com',
      'nobody@taken.example.com',
      'stranger@taken.example.com',
      'someone@ruined.example.com',
    )
    const after = await text()
    expect(changed(before, after, 'email_verdicts_total')).toEqual({
      '{row="1",status="invalid"}': 1,
      '{row="3",status="invalid"}': 1,
      '{row="17",status="valid"}': 1,
      '{row="14",status="invalid"}': 2,
      '{row="10",status="unknown"}': 1,
    })
    expect(changed(before, after, 'mailbox_checks_total')).toEqual({
      '{outcome="accepted"}': 1,
      '{outcome="mailbox_not_found"}': 2,
      '{outcome="no_connect"}': 1,
    })
    expect(samples(after, 'mailbox_sessions_opened_total')['']).toBeGreaterThan(0)
    expect(changed(before, after, 'mailbox_breakers_open')).toEqual({})
  })

  test('a server with an open circuit breaker is visible', async () => {
    mailGoesTo('lost.example.com', '127.0.0.3')
    const before = await text()
    await validateAll(...Array.from({ length: 5 }, (_, n) => `someone-${n}@lost.example.com`))
    expect(changed(before, await text(), 'mailbox_breakers_open')).toEqual({ '': 1 })
  })

  test('DNS questions are counted once each, by outcome, and answers from the cache separately', async () => {
    mailGoesTo('remembered.example.com', '127.0.0.1')
    dns.set('broken.example.com', 'MX', 'servfail')
    const [before, askedBefore] = [await text(), dns.queries().length]
    await validateAll('someone@remembered.example.com', 'a@missing.example.com', 'a@broken.example.com')
    const between = await text()
    expect(changed(before, between, 'dns_queries_total')).toEqual({
      // The domain has an MX record. Its host has an A record, but no AAAA record.
      '{outcome="records"}': 2,
      '{outcome="no_data"}': 1,
      '{outcome="not_found"}': 1,
      '{outcome="failed"}': 1,
    })
    expect(dns.queries().length - askedBefore).toBe(5)
    await validateAll('someone@remembered.example.com')
    const after = await text()
    expect(changed(between, after, 'dns_queries_total')).toEqual({})
    expect(changed(between, after, 'dns_cache_hits_total')).toEqual({ '': 3 })
  })
})

describe('profiles', () => {
  const lid = 'zorvina-quillfeather'
  const retrieve = async (id: string, cached: boolean): Promise<number> =>
    (await house.post(reader, '/v1/profnet/profile', { id, cached })).status

  test('answers are counted by origin, questions to sources by outcome', async () => {
    upstream.answers(({ path }) => {
      const asked = new URL(path, upstream.url).searchParams.get('lid')
      if (asked === lid) return { body: { lid, firstname: 'Zorvina', lastname: 'Quillfeather' } }
      return { status: asked === 'somebody-failing' ? 500 : 404 }
    })
    const before = await text()
    expect(await retrieve(lid, false)).toBe(200)
    await until(
      'it is seen in the cache',
      async () => (await house.query('select 1 from profile_fetches')).length === 0,
    )
    expect(await retrieve(lid, true)).toBe(200)
    expect(await retrieve('nobody-there', true)).toBe(404)
    expect(await retrieve('somebody-failing', true)).toBe(503)
    const after = await text()
    expect(changed(before, after, 'profile_retrievals_total')).toEqual({
      '{source="fresh"}': 1,
      '{source="cached"}': 1,
      '{source="missing"}': 1,
      '{source="unavailable"}': 1,
    })
    const durations = 'profile_provider_request_duration_seconds'
    expect(changed(before, after, `${durations}_count`)).toEqual({
      '{provider="http",answer="found"}': 1,
      '{provider="http",answer="not_found"}': 1,
      '{provider="http",answer="transient"}': 1,
    })
    for (const seconds of Object.values(samples(after, `${durations}_sum`))) {
      expect(seconds).toBeGreaterThan(0)
      expect(seconds).toBeLessThan(10)
    }
    expect(samples(after, 'profile_provider_breaker_open')).toEqual({ '{provider="http"}': 0 })
  })

  const metrics = createMetrics()
  const observe = observerOf(metrics.meters)
  const counts = 'profile_provider_request_duration_seconds_count'

  test('a failing source with an open circuit breaker is visible, and counts no questions during that time', async () => {
    const failing: ProviderAnswer = { kind: 'transient', detail: 'away' }
    const source = guardSource(
      { name: 'dataset', fetch: async () => failing },
      {
        clock: { now: () => 0, after: () => () => undefined },
        logger: pino({ level: 'silent' }),
        observe,
      },
    )
    meterSource(metrics.meters, source)
    const before = await metrics.text()
    expect(samples(before, 'profile_provider_breaker_open')).toEqual({ '{provider="dataset"}': 0 })
    for (let calls = 0; calls < 25; calls++)
      await source.fetch({ kind: 'lid', value: lid }, { deadlineMs: 8_000, ageMaxMs: null })
    const after = await metrics.text()
    expect(samples(after, 'profile_provider_breaker_open')).toEqual({ '{provider="dataset"}': 1 })
    expect(changed(before, after, counts)).toEqual({ '{provider="dataset",answer="transient"}': 10 })
  })
})

describe('the pixel', () => {
  const postJson = async (path: string, body: unknown): Promise<Readonly<Record<string, unknown>>> => {
    const answer = await house.post(advertiser, path, body)
    expect(answer.status).toBe(200)
    return Object(answer.body.result)
  }
  const hit = async (domain: string): Promise<unknown> =>
    (await postJson('/pixel/decide', { url: `https://${domain}/` })).reason

  test('hits are counted by the reason for their verdict, and hits without counters separately', async () => {
    await postJson('/pixel/limit', { domain: 'limited.example.com', period: 'month', number: 1 })
    await postJson('/pixel/block', { domain: 'blocked.example.com' })
    const before = await text()
    expect(await hit('free.example.com')).toBe('no_rule')
    expect(await hit('blocked.example.com')).toBe('blocked')
    expect(await hit('limited.example.com')).toBe('allowed')
    expect(await hit('limited.example.com')).toBe('limit')
    const between = await text()
    const reasons = {
      '{reason="no_rule"}': 1,
      '{reason="blocked"}': 1,
      '{reason="allowed"}': 1,
      '{reason="limit"}': 1,
    }
    expect(changed(before, between, 'pixel_decisions_total')).toEqual(reasons)
    expect(changed(before, between, 'pixel_counting_failures_total')).toEqual({})
    await house.query('alter table pixel_counters rename to pixel_counters_away')
    try {
      expect(await hit('limited.example.com')).toBe('unavailable')
      await house.ask(advertiser, { method: 'GET', path: '/pixel/limit' })
    } finally {
      await house.query('alter table pixel_counters_away rename to pixel_counters')
    }
    const after = await text()
    expect(changed(between, after, 'pixel_decisions_total')).toEqual({ '{reason="unavailable"}': 1 })
    // One failure is from the hit, the other from the list that could not show the usage.
    expect(changed(between, after, 'pixel_counting_failures_total')).toEqual({ '': 2 })
  })
})

describe('the written metrics', () => {
  // These tests make their own calls, so that there are figures no matter which tests ran before.
  beforeAll(async () => {
    mailGoesTo('private.example.com', '127.0.0.1')
    await house.post(mailer, '/v1/email/validate', { email: 'secretary@private.example.com' })
    await house.post(reader, '/v1/profnet/profile', {
      id: 'urn:profnet:person:9876543210987654',
      cached: true,
    })
    await house.post(advertiser, '/pixel/decide', { url: 'https://shop.example.com/', hit_id: 'one-hit' })
  })

  test('contain no address, domain, host, person, hit, key or organization', async () => {
    const written = await text()
    const ours = [mailer, reader, advertiser].flatMap(({ organizationId, keyId, apiKey }) => [
      organizationId,
      keyId,
      apiKey,
    ])
    const theirs = ['secretary', 'example', 'profnet', 'quillfeather', '9876543210987654', 'one-hit']
    for (const secret of [...ours, ...theirs, '127.0.0.', '@', 'http:', 'urn:', 'sub_'])
      expect({ secret, stands: written.includes(secret) }).toEqual({ secret, stands: false })
  })

  test('use only our own words from known lists as label values', async () => {
    const words = labelWords(await text())
    const known = {
      row: /^([1-9]|1[0-7])$/,
      status: /^(valid|invalid|risky|unknown)$/,
      source: /^(cached|fresh|deleted|missing|unavailable)$/,
      provider: /^(dataset|http|page)$/,
      answer: /^[a-z_]{4,12}$/,
      reason: /^[a-z_]{5,12}$/,
      outcome: /^[a-z0-9_]{4,20}$/,
    }
    for (const [label, pattern] of Object.entries(known)) {
      const held = [...(words.get(label) ?? [])]
      expect({ label, empty: held.length === 0 }).toEqual({ label, empty: false })
      expect({ label, unknown: held.filter((word) => !pattern.test(word)) }).toEqual({ label, unknown: [] })
    }
  })
})
