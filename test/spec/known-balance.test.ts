/** Decision 5: while the database is unreachable, answers show the charge and, if the process has the balance in memory, the remaining credits. */
import { afterAll, expect, test } from 'vitest'
import { openHouse, places } from '../support/house.ts'
import { testDatabase } from '../support/postgres.ts'
import { startTcpProxy } from '../support/tcp-proxy.ts'
import { expectCredits, expectErrorObject, rateLimitsOf } from './wire.ts'

const database = await testDatabase()
const drop = database.drop
const url = new URL(database.url)
const proxy = await startTcpProxy({ host: url.hostname, port: Number(url.port) })
url.port = String(proxy.port)
const house = await openHouse({
  environment: { DATABASE_URL: url.href, DATABASE_MIGRATION_URL: database.url, ROLES: 'api,dashboard' },
})
afterAll(async () => {
  await house.close()
  await drop?.()
})

test('503 shows the last known credits; a call beyond the rate limit is still 429', async () => {
  const partner = await house.partner({ credits: '7', limits: { requests_per_minute: 2 } })
  const asked = () =>
    fetch(`${house.apiUrl}/v1/ip/lookup`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', 'x-api-key': partner.apiKey },
      body: JSON.stringify({ ip: places.london }),
    }).then(async (response) => {
      const text = await response.text()
      return { status: response.status, headers: response.headers, text, body: JSON.parse(text) }
    })
  const answered = await asked()
  expect(answered.status).toBe(200)
  expectCredits(answered, '1', '6')
  await proxy.close()
  const failed = await asked()
  expectErrorObject(failed, { status: 503, error: 'service_unavailable', code: 'SYS_002', details: {} })
  expectCredits(failed, '0', '6')
  expect(rateLimitsOf(failed)).toMatchObject({ minute: { remaining: 0 } })
  const denied = await asked()
  expect(denied.body).toMatchObject({ code: 'RATE_001', details: { window: 'minute' } })
  expectCredits(denied, '0', '6')
})
