import { afterAll, beforeAll, expect, test } from 'vitest'
import { type TestDatabase, testDatabase } from '../support/postgres.ts'
import {
  cliJson,
  createPartner,
  eventually,
  type LookupAnswer,
  lookup,
  type Service,
  startService,
} from '../support/service.ts'

/** Two api processes, one database, one organization: the stream itself must protect the balance. */

const answeredWithinMs = 60_000

let database: TestDatabase
let environment: Record<string, string>
let services: Service[] = []

beforeAll(async () => {
  database = await testDatabase()
  environment = { DATABASE_URL: database.url, SECRET_KEY: 'a secret of the test, long enough to be one' }
  services = await Promise.all([
    startService(environment),
    startService({ ...environment, ROLES: 'api,dashboard' }),
  ])
})

afterAll(async () => {
  await Promise.all(services.map((service) => service.end('SIGTERM')))
  await database?.drop()
})

test('of 1,000 concurrent calls of price 1 over two processes, 100 credits pay exactly 100', async () => {
  const partner = await createPartner('100', environment)
  await lookupKnown(partner.apiKey)
  const answers = await Promise.all(
    Array.from({ length: 1_000 }, (_, i) => answerOf(services[i % 2], partner.apiKey, `8.8.${i % 250}.8`)),
  )
  const counts = Map.groupBy(answers, ({ status }) => status)
  expect(Object.fromEntries([...counts].map(([status, { length }]) => [status, length]))).toEqual({
    200: 100,
    402: 900,
  })
  for (const { status, headers, body } of answers) {
    expect(headers.get('credits-charged')).toBe(status === 200 ? '1' : '0')
    if (status === 402)
      expect(body).toMatchObject({
        error: 'payment_required',
        code: 'CREDIT_001',
        details: { required: '1', available: '0' },
      })
  }
  const balance = await cliJson<{ balance: string }>(
    ['credits', 'balance', partner.organizationId],
    environment,
  )
  expect(balance.balance).toBe('0')
  const projected = await cliJson<{ organization_id: string; balance: string; charged: string }[]>(
    ['org', 'list'],
    environment,
  )
  expect(projected.find(({ organization_id }) => organization_id === partner.organizationId)).toMatchObject({
    balance: '0',
    charged: '100',
  })
  const verified = await cliJson<{ ok: boolean; ledgers: { events: number }[] }>(
    ['ledger', 'verify', partner.organizationId],
    environment,
  )
  // Registered, granted, the calls that made the key known (free), 100 calls and their charges. Of the 900 refusals each
  // process records the first 60 one by one, and some that compete for the last credits.
  const events = verified.ledgers[0]?.events ?? 0
  expect(events).toBeGreaterThanOrEqual(2 + 2 + 200 + 60)
  expect(events).toBeLessThanOrEqual(2 + 2 + 200 + 900)
})

/** An overloaded process refuses the call and charges nothing; its caller repeats it. */
const answerOf = (service: Service | undefined, apiKey: string, ip: string): Promise<LookupAnswer> =>
  eventually(async () => {
    const answer = await lookup(service?.apiUrl ?? '', apiKey, ip)
    return answer.status === 503 ? undefined : answer
  }, answeredWithinMs)

/** Waits until both processes know the key. The address is private, so nothing is charged. */
const lookupKnown = async (apiKey: string): Promise<void> => {
  for (const { apiUrl } of services) {
    let status = 401
    for (let tries = 0; status === 401 && tries < 200; tries++)
      status = (await lookup(apiUrl, apiKey, '10.0.0.1')).status
    expect(status).toBe(200)
  }
}
