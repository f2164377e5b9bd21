/** Operators can see the service's activity, but no key, organization or address. */
import { randomBytes } from 'node:crypto'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, describe, expect, test } from 'vitest'
import { grant } from '../../src/administration/credits/credits.ts'
import { issueKey, revoke } from '../../src/administration/keys/api-keys.ts'
import { createOrganization } from '../../src/administration/organizations/organizations.ts'
import { parseCredits } from '../../src/billing/money.ts'
import { parseConfig } from '../../src/config.ts'
import { openFoundation } from '../../src/foundation/foundation.ts'
import { composeApiKey } from '../../src/keys/api-key.ts'
import { createMetrics } from '../../src/metrics/metrics.ts'
import { startApp } from '../../src/start/app.ts'
import { places, writeCityFile } from '../support/house.ts'
import { logger } from '../support/logger.ts'
import { testDatabase } from '../support/postgres.ts'
import { eventually, lookup } from '../support/service.ts'
import { changed, labelWords, samples } from './samples.ts'

const actor = 'system'
/** Two public addresses cost one credit each, and the third is free. */
const addresses = [places.london, places.munich, places.private] as const

const database = await testDatabase()
const directory = await mkdtemp(join(tmpdir(), 'metrics-'))
const config = parseConfig({
  DATABASE_URL: database.url,
  SECRET_KEY: 'a secret of at least thirty-two characters',
  DATA_DIR: directory,
  GEOIP_CITY_DB: await writeCityFile(directory),
  KEY_DIR: database.keyDir,
  API_PORT: '0',
  DASHBOARD_PORT: '0',
})
const metrics = createMetrics()
const foundation = await openFoundation(config, { logger, observe: metrics.ledger })
const app = await startApp(foundation, config, logger, metrics)
const { organizationId } = await createOrganization(foundation, {
  name: 'Kestrel Logistics',
  overdraftLimit: 0n,
  actor,
})
await grant(foundation, {
  organizationId,
  amount: parseCredits('2'),
  priority: 100,
  expiresAt: null,
  reason: 'test',
  actor,
})
const issue = (requestsPerMinute: number) =>
  issueKey(foundation, {
    organizationId,
    name: 'warehouse',
    permissions: ['ip_lookup'],
    limits: {
      requests_per_minute: requestsPerMinute,
      requests_per_day: 100_000,
      email_validations_per_second: 10,
    },
    allowedCidrs: [],
    expiresAt: null,
    actor,
  })
const [wide, narrow] = [await issue(10_000), await issue(1)]
const apiKey = wide.apiKey
const narrowKey = narrow.apiKey
const keyIds = [wide.keyId, narrow.keyId]

afterAll(async () => {
  await app.close()
  await foundation.close()
  await database.drop()
  await rm(directory, { recursive: true, force: true })
})

const text = async (): Promise<string> => {
  const response = await fetch(`${app.metricsUrl}/metrics`)
  expect(response.status).toBe(200)
  expect(response.headers.get('content-type')).toMatch(/^text\/plain; version=0\.0\.4/)
  return response.text()
}

test('every policy that can refuse a call has its counter from the start', async () => {
  const { text: fresh } = createMetrics()
  const policies = [
    ...(await fresh()).matchAll(/^enrichment_rate_limited_calls_total\{policy="(\w+)"\} 0$/gm),
  ]
  expect(policies.map(([, policy]) => policy).sort()).toEqual(['day', 'minute', 'refused', 'second'])
})

test('known traffic is counted correctly', async () => {
  // The narrow key makes its one call of the minute. This also makes sure that both keys have reached the host.
  for (const key of [apiKey, narrowKey])
    await eventually(async () =>
      (await lookup(app.apiUrl ?? '', key, addresses[2])).status === 200 ? true : undefined,
    )
  const before = await text()
  const statuses: number[] = []
  const call = async (key: string, ip: string): Promise<void> => {
    statuses.push((await lookup(app.apiUrl ?? '', key, ip)).status)
  }
  for (const ip of addresses) await call(apiKey, ip)
  await call(apiKey, '5.1.80.8')
  await call(apiKey, 'nonsense')
  await call(narrowKey, addresses[0])
  await call(narrowKey, addresses[0])
  await call('nonsense', addresses[0])
  await call(composeApiKey(randomBytes(256)).apiKey, addresses[0])
  await fetch(`${app.dashboardUrl}/whoami`, { headers: { 'x-api-key': apiKey } })
  expect(statuses).toEqual([200, 200, 200, 402, 400, 429, 429, 401, 401])
  const after = await text()

  expect(changed(before, after, 'calls_total')).toEqual({
    '{capability="ip_lookup",outcome="answered",code=""}': 3,
    '{capability="ip_lookup",outcome="refused",code="CREDIT_001"}': 1,
    '{capability="ip_lookup",outcome="refused",code="IP_001"}': 1,
    '{capability="ip_lookup",outcome="refused",code="RATE_001"}': 2,
    '{capability="whoami",outcome="answered",code=""}': 1,
  })
  expect(changed(before, after, 'call_duration_seconds_count')).toEqual({
    '{capability="ip_lookup",outcome="answered"}': 3,
    '{capability="ip_lookup",outcome="refused"}': 4,
    '{capability="whoami",outcome="answered"}': 1,
  })
  expect(changed(before, after, 'credits_charged_total')).toEqual({
    '{capability="ip_lookup"}': 2,
  })
  expect(changed(before, after, 'rate_limited_calls_total')).toEqual({ '{policy="minute"}': 2 })
  expect(changed(before, after, 'authentication_failures_total')).toEqual({
    '{reason="malformed"}': 1,
    '{reason="unknown"}': 1,
  })
  // Every recorded call is in some batch. Calls refused by a limit are written together later.
  expect(changed(before, after, 'ledger_batch_commands_sum')['']).toBe(6)
  expect(changed(before, after, 'ledger_batch_events_sum')['']).toBe(8)
  expect(samples(after, 'ledger_append_duration_seconds_count')).toEqual(
    samples(after, 'ledger_batch_commands_count'),
  )
})

test('a revoked key is counted with that reason', async () => {
  const [keyId = ''] = keyIds
  await revoke(foundation, { keyId, reason: 'test', actor })
  await eventually(async () =>
    (await lookup(app.apiUrl ?? '', apiKey, addresses[2])).status === 401 ? true : undefined,
  )
  expect(samples(await text(), 'authentication_failures_total')['{reason="ended"}']).toBeGreaterThan(0)
})

test('projections show no lag once they have caught up, and the location file its age', async () => {
  const written = await eventually(async () => {
    const now = await text()
    const lags = Object.values(samples(now, 'projection_lag_positions'))
    return lags.length > 0 && lags.every((lag) => lag === 0) ? now : undefined
  })
  expect(Object.keys(samples(written, 'projection_lag_seconds'))).toContain('{projection="accounts"}')
  expect(new Set(Object.values(samples(written, 'projection_lag_seconds')))).toEqual(new Set([0]))
  expect(new Set(Object.values(samples(written, 'projection_halted')))).toEqual(new Set([0]))
  expect(samples(written, 'geo_database_age_seconds')['']).toBeGreaterThan(3_600)
})

test('the age of the last signed checkpoint is shown', async () => {
  await foundation.checkpoints.make()
  expect(samples(await text(), 'checkpoint_age_seconds')[''] ?? -1).toBeGreaterThanOrEqual(0)
})

describe('the written metrics', () => {
  test('name no key, organization or address, and every name has the prefix', async () => {
    const written = await text()
    for (const secret of [apiKey, narrowKey, ...keyIds, organizationId, 'Kestrel', 'warehouse', ...addresses])
      expect(written).not.toContain(secret)
    const names = [...written.matchAll(/^# TYPE (\S+)/gm)].map(([, name]) => name)
    expect(names.length).toBeGreaterThan(15)
    expect(names.filter((name) => !name?.startsWith('enrichment_'))).toEqual([])
    expect([...labelWords(written).keys()].sort()).toEqual([
      'capability',
      'check',
      'code',
      'guards',
      'le',
      'model',
      'name',
      'outcome',
      'policy',
      'projection',
      'provider',
      'reason',
      'source',
    ])
  })

  /** These are the rules of `promtool check metrics` that apply here. */
  test('are named by the rules of Prometheus', async () => {
    const written = await text()
    const types = [...written.matchAll(/^# TYPE (enrichment_\S+) (\S+)$/gm)].map(
      ([, name = '', type = '']) => ({ name, type }),
    )
    expect(types.length).toBeGreaterThan(25)
    const faults = types.flatMap(({ name, type }) => [
      ...(type === 'counter' && !name.endsWith('_total') ? [`${name}: a counter ends in _total`] : []),
      ...(type !== 'counter' && name.endsWith('_total') ? [`${name}: only a counter ends in _total`] : []),
      ...(/_(count|sum|bucket)$/.test(name) ? [`${name}: ends as a part of a histogram does`] : []),
      ...(/_(counter|gauge|histogram|summary)(_|$)/.test(name) ? [`${name}: names its type`] : []),
      ...(/_(milli|micro|nano|kilo|mega)(_|[a-z]+$)/.test(name) ? [`${name}: is not in a base unit`] : []),
      ...(/_(ms|milliseconds|minutes|hours|days|percent|kb|mb|kilobytes)(_|$)/.test(name)
        ? [`${name}: is not in a base unit`]
        : []),
      ...(/[A-Z]/.test(name) ? [`${name}: has capitals`] : []),
      ...(new RegExp(`^# HELP ${name} \\S`, 'm').test(written) ? [] : [`${name}: has no help`]),
    ])
    expect(faults).toEqual([])
  })
})

describe('the routes', () => {
  test('answer without a key on every host, and do not count as calls', async () => {
    const before = await text()
    for (const url of [app.apiUrl, app.dashboardUrl, app.metricsUrl])
      for (const path of ['/livez', '/readyz'])
        for (const method of ['GET', 'HEAD']) {
          const response = await fetch(`${url}${path}`, { method })
          expect([url, path, method, response.status]).toEqual([url, path, method, 200])
          expect(response.headers.get('cache-control')).toBe('no-store')
        }
    // Only the metrics port shows figures, and it answers nothing else.
    for (const url of [app.apiUrl, app.dashboardUrl]) expect((await fetch(`${url}/metrics`)).status).toBe(404)
    for (const path of ['/', '/login', '/v1/ip/lookup'])
      expect((await fetch(`${app.metricsUrl}${path}`)).status).toBe(404)
    expect(changed(before, await text(), 'calls_total')).toEqual({})
    expect(await (await fetch(`${app.apiUrl}/livez`)).json()).toEqual({ status: 'live' })
    expect(await (await fetch(`${app.apiUrl}/readyz`)).json()).toMatchObject({
      status: 'ready',
      checks: { event_log: { status: 'ok' }, database: { status: 'ok' }, projections: { status: 'ok' } },
    })
  })
})

test('the 95th percentile of the duration of calls is within the bucket that contains it, and unknown without a call', async () => {
  const { call, p95Seconds } = createMetrics()
  expect(await p95Seconds()).toBeNull()
  const answered = (times: number, seconds: number): void => {
    for (let i = 0; i < times; i++) call.answered('ip_lookup', 'answered', undefined, seconds, 0n)
  }
  answered(90, 0.002)
  answered(10, 0.04)
  // Half of the ten durations between 25 and 50 ms are below the 95th percentile.
  expect(await p95Seconds()).toBeCloseTo(0.0375, 6)
  answered(100, 60)
  expect(await p95Seconds()).toBe(30)
})
