import { afterAll, beforeAll, expect, test } from 'vitest'
import { projections } from '../../projections/index.ts'
import { seededRandom } from '../ip-lookup/seeded-random.ts'
import { type EventStoreDouble, startEventStoreDouble } from '../support/eventstore-double.ts'
import { type TestDatabase, testDatabase } from '../support/postgres.ts'
import {
  cliJson,
  createPartner,
  eventually,
  exportLedger,
  lookup,
  type Service,
  startService,
} from '../support/service.ts'

/**
 * The service with its event log in EventStoreDB, as far as a double of its protocol can show it: two processes, while one reply in
 * twenty is lost and every connection is cut every two seconds.
 */

let double: EventStoreDouble
let database: TestDatabase
let environment: Record<string, string>
let services: Service[] = []

beforeAll(async () => {
  double = await startEventStoreDouble({})
  database = await testDatabase()
  environment = {
    DATABASE_URL: database.url,
    EVENT_LOG_URL: double.url,
    SECRET_KEY: 'a secret of the test, long enough to be one',
  }
  services = [await startService(environment)]
  services.push(await startService({ ...environment, ROLES: 'api,dashboard' }))
})

afterAll(async () => {
  await Promise.all(services.map((service) => service.end('SIGTERM')))
  await double?.close()
  await database?.drop()
})

test('under lost replies and cut connections 100 credits pay exactly 100 of 1,000 concurrent calls over two processes', async () => {
  const partner = await createPartner('100', environment)
  for (const { apiUrl } of services)
    await eventually(async () =>
      (await lookup(apiUrl, partner.apiKey, '10.0.0.1')).status === 200 ? true : undefined,
    )
  const random = seededRandom(1)
  double.onAppend = () => (random.next() < 0.05 ? 'lose-reply' : undefined)
  const cutting = setInterval(() => double.cutConnections(), 2_000)
  const outcomes = new Map<number, number>()
  const answered: string[] = []
  try {
    // In waves, so that they span several cuts. Calls refused because of the outage are repeated, as a partner would.
    const call = async (i: number): Promise<void> => {
      for (;;) {
        const { status, body } = await lookup(
          services[i % 2]?.apiUrl ?? '',
          partner.apiKey,
          `8.8.${i % 250}.8`,
        )
        if (status === 503) continue
        outcomes.set(status, (outcomes.get(status) ?? 0) + 1)
        if (status === 200) answered.push(String(body.request_id))
        return
      }
    }
    for (let wave = 0; wave < 10; wave++)
      await Promise.all(Array.from({ length: 100 }, (_, i) => call(wave * 100 + i)))
  } finally {
    clearInterval(cutting)
    double.onAppend = undefined
  }
  expect(Object.fromEntries(outcomes)).toEqual({ 200: 100, 402: 900 })

  const events = await exportLedger(partner.organizationId, environment)
  const charges = events.filter(({ type }) => type === 'CreditCharged')
  const reversals = events.filter(({ type }) => type === 'CreditAdjusted')
  expect(new Set(charges.map(({ data }) => data.charge_id)).size).toBe(charges.length)
  const charged = new Set(charges.map(({ metadata }) => metadata.request_id))
  expect(answered.filter((requestId) => !charged.has(requestId))).toEqual([])
  expect(charges.length - reversals.length).toBe(100)
  expect(await cliJson(['ledger', 'verify', partner.organizationId], environment)).toMatchObject({ ok: true })
  expect(
    (await cliJson<{ balance: string }>(['credits', 'balance', partner.organizationId], environment)).balance,
  ).toBe('0')
  // The last event is the request for the rebuild itself, which no projection folds.
  await cliJson(['projection', 'rebuild', '--all'], environment)
  const verified = await cliJson<{ ok: boolean }[]>(['projection', 'verify', '--all'], environment)
  expect(verified.map(({ ok }) => ok)).toEqual(projections.map(() => true))
})
