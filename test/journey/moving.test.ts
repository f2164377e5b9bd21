import { cp, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import pg from 'pg'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { urlFor } from '../../src/event-log/eventstoredb/prepare.ts'
import { type EmbeddedPostgres, startEmbeddedPostgres } from '../../src/foundation/embedded/server.ts'
import { doubleCertificate } from '../support/eventstore-certificate.ts'
import { type EventStoreDouble, startEventStoreDouble } from '../support/eventstore-double.ts'
import { expectProved, expectUsable } from '../support/expect-used.ts'
import { cli, failedStart, type Service, startService } from '../support/service.ts'
import {
  companies,
  observe,
  people,
  prices,
  type Use,
  useInstallation,
} from '../support/used-installation.ts'

/**
 * From the embedded default to your own PostgreSQL and EventStoreDB, as src/guides/deployment.md describes it ("How do I move to
 * my own databases?"): a final backup is made and restored in those databases. The test starts a second PostgreSQL server. A
 * protocol double with TLS and users takes the place of EventStoreDB, so this tests the move, not EventStoreDB. Each test
 * continues from the previous one.
 */

const adminPassword = 'the administrator of the double'
const outside = { EMAIL_PROBE: 'off', DNS_SERVERS: '127.0.0.1:9', EGRESS_ALLOW: '127.0.0.1' }

let dir = ''
let old: Record<string, string>
let own: Record<string, string>
let ownPostgres: EmbeddedPostgres
let double: EventStoreDouble
let service: Service | undefined
let use: Use
let before: object

const started = async (environment: Record<string, string>): Promise<Service> => {
  service = await startService(environment)
  return service
}
const stop = async (): Promise<void> => {
  expect(await service?.end('SIGTERM')).toBe(0)
  service = undefined
}

/** Runs the SQL from src/guides/deployment.md, "How do I give the service its own database role?", in an empty database. */
const makeDatabase = async (name: string): Promise<Record<string, string>> => {
  const admin = new pg.Client({ connectionString: ownPostgres.url })
  await admin.connect()
  await admin.query(`create role ${name}_owner login password 'of-the-owner'`)
  await admin.query(`create role ${name}_service login password 'of-the-service'`)
  await admin.query(`grant ${name}_service to ${name}_owner`)
  await admin.query(`create database ${name} owner ${name}_owner`)
  await admin.end()
  const as = (role: string, password: string): string => {
    const url = new URL(ownPostgres.url)
    return Object.assign(url, { username: role, password, pathname: `/${name}` }).href
  }
  return {
    DATABASE_URL: as(`${name}_service`, 'of-the-service'),
    DATABASE_MIGRATION_URL: as(`${name}_owner`, 'of-the-owner'),
  }
}

beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), 'moving-'))
  const files = {
    people: join(dir, 'people.jsonl'),
    companies: join(dir, 'companies.jsonl'),
    prices: join(dir, 'prices.json'),
  }
  await writeFile(files.people, people())
  await writeFile(files.companies, companies())
  await writeFile(files.prices, prices())
  await writeFile(join(dir, 'ca.crt'), doubleCertificate.cert)
  old = { ...outside, DATA_DIR: join(dir, 'data') }
  ownPostgres = await startEmbeddedPostgres({ dataDir: join(dir, 'own') })
  double = await startEventStoreDouble({ secured: { adminPassword } })
  use = await useInstallation(await started(old), old, files)
}, 300_000)

afterAll(async () => {
  await service?.end('SIGTERM')
  await double?.close()
  await ownPostgres?.stop()
  await rm(dir, { recursive: true, force: true })
})

const final = (name: string) => cli(['backup', 'create', join(dir, name), '--final', '--yes'], old)
const restore = (environment: Record<string, string>, name = 'final.tar') =>
  cli(['backup', 'restore', join(dir, name), '--yes'], environment)

test('the target is prepared: two roles, an empty database, the event log’s user, the keys', async () => {
  const adminUrl = urlFor(
    `esdb://localhost:${double.port}?tlsCAFile=${join(dir, 'ca.crt')}`,
    'admin',
    adminPassword,
  )
  const password = 'the service at the double'
  const prepared = await cli(['event-log', 'prepare', '--user', 'enrichment'], {
    EVENT_LOG_ADMIN_URL: adminUrl,
    EVENT_LOG_USER_PASSWORD: password,
  })
  expect([prepared.code, prepared.err]).toEqual([0, ''])
  own = {
    ...outside,
    ...(await makeDatabase('moved')),
    EVENT_LOG_URL: urlFor(adminUrl, 'enrichment', password),
    // TWO_PERSON is off in the embedded default, but on with DATABASE_URL, where a second person would have to approve.
    TWO_PERSON: 'off',
    DATA_DIR: join(dir, 'new'),
    KEY_DIR: join(dir, 'new-keys'),
    SECRET_KEY: (await readFile(join(dir, 'data', 'secret_key'), 'utf8')).trim(),
  }
})

test('a running installation is not closed, and continues', async () => {
  const { code, err } = await final('final.tar')
  expect([code, err]).toEqual([1, expect.stringMatching(/Stop every process, then make the final backup/)])
  await expectUsable(service ?? (await started(old)), old, use)
  await stop()
  // The service writes its counts from memory when it ends. While this connection is open, PostgreSQL keeps running, so that the
  // commands need not start it again.
  const held = await startEmbeddedPostgres({ dataDir: join(dir, 'data'), onLost: () => undefined })
  before = await observe(old, use)
  await held.stop()
})

test('an installation that was closed by its final backup does not start again', async () => {
  const unasked = await cli(['backup', 'create', join(dir, 'final.tar'), '--final'], old)
  expect([unasked.code, unasked.err]).toEqual([2, expect.stringContaining('will not start here again')])
  const { code, err } = await final('final.tar')
  expect([code, err]).toEqual([0, ''])
  expect(await failedStart(old)).toMatch(/ended with 2 [\s\S]*DATA_DIR: this installation was closed on 2/)
  const granted = await cli(['credits', 'grant', use.organizationId, '5'], old)
  expect([granted.code, granted.err]).toEqual([2, expect.stringContaining('final.tar')])
  const held = await startEmbeddedPostgres({ dataDir: join(dir, 'data'), onLost: () => undefined })
  const { out } = await cli(['doctor', '--json'], old)
  await held.stop()
  expect(JSON.parse(out).findings).toContainEqual(
    expect.objectContaining({ about: 'installation', level: 'fault' }),
  )
})

test('the backup is not restored without its keys or with another secret', async () => {
  expect((await restore(own)).err).toMatch(/^KEY_DIR: \S+new-keys lacks the key/)
  const other = { ...own, SECRET_KEY: 'another one, which is long enough too' }
  expect((await restore(other)).err).toMatch(/^SECRET_KEY: .*but a different key was given/)
  await cp(join(dir, 'data', 'keys'), join(dir, 'new-keys'), { recursive: true })
})

test('after an interruption the target does not start; repeating the command resumes it', async () => {
  double.onAppend = ({ stream }) => (stream.startsWith('ledger-') ? 'deny' : undefined)
  const interrupted = await restore(own)
  expect(interrupted.code).toBe(1)
  double.onAppend = undefined
  expect(await failedStart(own)).toMatch(/ended with 2 [\s\S]*a backup is being restored here/)
  const { code, err } = await restore(own)
  expect([code, err]).toEqual([0, ''])
}, 240_000)

test('nothing has changed: balances, statements, keys, repeated calls, users, webhooks; all proofs succeed', async () => {
  expect(await observe(own, use)).toEqual(before)
  await expectUsable(await started(own), own, use)
  await expectProved(own)
}, 240_000)

test('the event log is only in the event store', async () => {
  await stop()
  const client = new pg.Client({ connectionString: own.DATABASE_MIGRATION_URL })
  await client.connect()
  const { rows } = await client.query(
    'select (select count(*)::int from log_segments) as events, position from log_head',
  )
  await client.end()
  expect(rows).toEqual([{ events: 0, position: '0' }])
})
