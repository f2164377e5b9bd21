import pg from 'pg'
import { pino } from 'pino'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { linesBefore, rowsOf } from '../../src/dashboard/queries.ts'
import { ledgerStream } from '../../src/events/streams.ts'
import { reconcile } from '../../src/jobs/run.ts'
import { type EventStoreDouble, startEventStoreDouble } from '../support/eventstore-double.ts'
import { type TestDatabase, testDatabase } from '../support/postgres.ts'
import {
  cli,
  cliJson,
  eventually,
  exportLedger,
  lookup,
  type Service,
  startService,
} from '../support/service.ts'

/**
 * A partner's first call with the event log in EventStoreDB, played by a double of its protocol: from the seed to the statement. Then a byte
 * in the server's files is changed.
 */

let double: EventStoreDouble
let database: TestDatabase
let pool: pg.Pool
let environment: Record<string, string>
let service: Service
let demo: { organization_id: string; api_key_id: string; api_key: string }

beforeAll(async () => {
  double = await startEventStoreDouble({ systemEventEvery: 3 })
  database = await testDatabase()
  pool = new pg.Pool({ connectionString: database.url, max: 2 })
  environment = {
    DATABASE_URL: database.url,
    EVENT_LOG_URL: double.url,
    SECRET_KEY: 'a secret of the test, long enough to be one',
  }
  service = await startService(environment)
  demo = await cliJson(['seed'], environment)
})

afterAll(async () => {
  await service?.end('SIGTERM')
  await pool?.end()
  await double?.close()
  await database?.drop()
})

/** The first answer once the key, issued by another process, is known. */
const call = (ip: string) =>
  eventually(async () => {
    const answer = await lookup(service.apiUrl, demo.api_key, ip)
    return answer.status === 200 ? answer : undefined
  })

test('the first call is answered, recorded with its charge right after it, reconciled, and listed on the statement', async () => {
  const { headers, body } = await call('8.8.8.8')
  expect(body).toMatchObject({ result: { ip: '8.8.8.8', success: true, country_code: 'US' } })
  expect([headers.get('credits-charged'), headers.get('credits-remaining')]).toEqual(['1', '999'])

  const events = await exportLedger(demo.organization_id, environment)
  const at = events.findIndex(({ metadata }) => metadata.request_id === body.request_id)
  const [used, charge] = events.slice(at)
  expect(used).toMatchObject({
    type: 'KeyUsed',
    data: { key_id: demo.api_key_id, outcome: 'answered', facts: { kind: 'ip_lookup', success: true } },
  })
  expect(charge).toMatchObject({
    type: 'CreditCharged',
    revision: (used?.revision ?? 0) + 1,
    metadata: { request_id: body.request_id, causation_id: used?.event_id },
    data: { amount: '1', rule: 'ip_lookup.located' },
  })
  expect(double.eventsOf(ledgerStream(demo.organization_id)).map(({ id }) => id)).toEqual(
    events.map(({ event_id }) => event_id),
  )

  const line = await eventually(async () =>
    (await rowsOf(pool, linesBefore(demo.organization_id, { revision: '1000', max: 20 }))).find(
      ({ request_id }) => request_id === body.request_id,
    ),
  )
  expect(line).toMatchObject({ kind: 'call', amount_micro: '-1000000', rule: 'ip_lookup.located' })
  const unbalanced = await eventually(
    async () => (await reconcile(database.url, pino({ level: 'silent' }))) ?? undefined,
  )
  expect(unbalanced).toEqual([])
  expect(await cliJson(['ledger', 'verify', demo.organization_id], environment)).toMatchObject({
    ok: true,
    ledgers: [{ events: events.length, balance: '999' }],
  })
})

test('one changed byte in data, metadata or digest of a stored event is reported with event id and revision', async () => {
  await call('1.1.1.1')
  const events = await exportLedger(demo.organization_id, environment)
  const victim = events.findLast(({ type }) => type === 'CreditCharged')
  const stream = ledgerStream(demo.organization_id)
  for (const [part, from, to] of [
    ['data', '"amount":"1"', '"amount":"2"'],
    ['metadata', '"actor":"key:', '"actor":"kez:'],
    ['metadata', `"digest":"${victim?.metadata.digest}`, `"digest":"${flipped(victim?.metadata.digest)}`],
  ] as const) {
    double.alter(stream, victim?.revision ?? -1, part, (text) => text.replace(from, to))
    const { code, out } = await cli(['ledger', 'verify', demo.organization_id, '--json'], environment)
    expect(code).toBe(1)
    expect(JSON.parse(out)).toMatchObject({
      ok: false,
      ledgers: [{ fault: { event_id: victim?.event_id, revision: victim?.revision } }],
    })
    double.alter(stream, victim?.revision ?? -1, part, (text) => text.replace(to, from))
  }
  expect((await cli(['ledger', 'verify'], environment)).code).toBe(0)
})

/** The same digest with a different first character. */
const flipped = (digest: unknown): string =>
  `${String(digest).startsWith('A') ? 'B' : 'A'}${String(digest).slice(1)}`
