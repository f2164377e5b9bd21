import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { secretKeyOf } from '../../src/guard/secrets/installation-key.ts'
import { type EventStoreDouble, startEventStoreDouble } from '../support/eventstore-double.ts'
import { type TestDatabase, testDatabase } from '../support/postgres.ts'
import {
  cli,
  cliJson,
  createPartner,
  eventually,
  lookup,
  type Partner,
  type Service,
  startService,
} from '../support/service.ts'

/**
 * SECRET_KEY is rotated during live traffic, by real processes on their own event log that are restarted one by one. Each test
 * continues from the previous one.
 */

const [firstKey, secondKey, thirdKey] = [
  'the first key of this installation, long enough',
  'the second key of this installation as long',
  'a third key that it comes to later, as long',
]
const [firstId, secondId] = [firstKey, secondKey].map((key) => secretKeyOf(key).id)

type Rotated = { before: string[]; after: string[] }

let double: EventStoreDouble
let database: TestDatabase
let empty: TestDatabase
let services: Service[] = []
let partner: Partner
let dir = ''
const statuses: number[] = []
let calling = true
let calls: Promise<void>

const withKey = (SECRET_KEY: string, SECRET_KEY_NEW?: string): Record<string, string> => ({
  DATABASE_URL: database.url,
  EVENT_LOG_URL: double.url,
  SECRET_KEY,
  ROLES: 'api,projector',
  KEY_DIR: join(dir, 'keys'),
  ...(SECRET_KEY_NEW === undefined ? {} : { SECRET_KEY_NEW }),
})
const call = async (service = services[0]) =>
  (await lookup(service?.apiUrl ?? '', partner.apiKey, '10.1.2.3', { 'idempotency-key': 'the-same' })).status
/** Starts a process, to which the callers change. */
const start = async (key: string): Promise<void> => {
  services = [await startService(withKey(key)), ...services]
}
/** Ends the oldest process. */
const endOldest = () => services.pop()?.end('SIGTERM')

beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), 'journey-rotation-'))
  double = await startEventStoreDouble({})
  database = await testDatabase()
  empty = await testDatabase()
  await start(firstKey)
  partner = await createPartner('100000', withKey(firstKey))
  await eventually(async () => ((await call()) === 200 ? true : undefined))
  calls = (async () => {
    while (calling) {
      const [service] = services
      statuses.push((await lookup(service?.apiUrl ?? '', partner.apiKey, '10.0.0.4')).status)
    }
  })()
}, 240_000)

afterAll(async () => {
  calling = false
  await calls
  await Promise.all(services.map((service) => service.end('SIGKILL')))
  await double?.close()
  await database?.drop()
  await empty?.drop()
  await rm(dir, { recursive: true, force: true })
})

test('of two simultaneous rotations, one adds its key, and a process starts with both the old and the new key', async () => {
  const both = await Promise.all(
    [secondKey, thirdKey].map((key) => cli(['secrets', 'rotate', '--yes', '--json'], withKey(firstKey, key))),
  )
  expect(both.map(({ code }) => code).sort()).toEqual([0, 1])
  const added = both[0]?.code === 0 ? secondKey : thirdKey
  const { keys } = await cliJson<{ keys: { secret_key: string; state: string }[] }>(
    ['secrets', 'status'],
    withKey(firstKey),
  )
  expect(keys).toMatchObject([
    { secret_key: secretKeyOf(added).id, state: 'current' },
    { secret_key: firstId, state: 'former' },
  ])
  if (added === thirdKey) {
    await cliJson(['secrets', 'rotate', '--cancel', '--yes'], withKey(firstKey))
    await cliJson<Rotated>(['secrets', 'rotate', '--yes'], withKey(firstKey, secondKey))
  }
  await start(firstKey)
  await endOldest()
  await start(secondKey)
  for (const service of services) expect(await call(service)).toBe(200)
}, 240_000)

test('the old key is removed when every process runs with the new one, and is useless afterwards', async () => {
  const early = await cli(['secrets', 'rotate', '--finish', '--yes'], withKey(firstKey))
  expect([early.code, early.err]).toEqual([1, expect.stringContaining(`SECRET_KEY is not ${secondId}`)])
  await endOldest()
  expect(await cliJson<Rotated>(['secrets', 'rotate', '--finish', '--yes'], withKey(secondKey))).toEqual({
    before: [firstId, secondId],
    after: [secondId],
  })
  expect(await call()).toBe(200)
  await start(secondKey)
  await endOldest()
  expect(await call()).toBe(200)
  const refused = await cli(['org', 'list'], withKey(firstKey))
  expect([refused.code, refused.err]).toEqual([
    2,
    expect.stringMatching(new RegExp(`^SECRET_KEY: .*another key \\(id ${secondId}\\)`)),
  ])
  calling = false
  await calls
  expect(statuses.length).toBeGreaterThan(10)
  expect(new Set(statuses)).toEqual(new Set([200]))
}, 240_000)

test('if the database is lost but not the event log, every key works as before with an empty database', async () => {
  await Promise.all(services.map((service) => service.end('SIGTERM')))
  services = []
  const environment = { ...withKey(secondKey), DATABASE_URL: empty.url }
  const wrong = await cli(['org', 'list'], { ...environment, SECRET_KEY: firstKey })
  expect([wrong.code, wrong.err]).toEqual([2, expect.stringMatching(/^SECRET_KEY: /)])
  services = [await startService(environment)]
  await eventually(async () => ((await call()) === 200 ? true : undefined), 60_000)
}, 240_000)
