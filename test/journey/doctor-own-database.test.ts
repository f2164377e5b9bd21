/** "doctor" with your own database and event log: its checks of both, and its other checks while the event log hangs. */
import { join } from 'node:path'
import { afterAll, expect, test } from 'vitest'
import type { Finding } from '../../src/administration/checks/check.ts'
import { parseConfig } from '../../src/config.ts'
import { openFoundation } from '../../src/foundation/foundation.ts'
import { examine } from '../../src/start/doctor.ts'
import { certificateFiles, renewedCertificate } from '../support/certificate.ts'
import { directoryForFile } from '../support/directory.ts'
import { startEventStoreDouble } from '../support/eventstore-double.ts'
import { logger } from '../support/logger.ts'
import { testDatabase } from '../support/postgres.ts'
import { takesAtMost } from '../support/takes-at-most.ts'

const common = {
  SECRET_KEY: 'oXb0sP2vDk9tQ4mZ7rYw1uCg6hJf3nEa',
  EMAIL_PROBE: 'off',
  ROLES: 'jobs',
  METRICS_PORT: '2',
}

const dir = await directoryForFile()
const database = await testDatabase()
const store = await startEventStoreDouble()
const environment = {
  ...common,
  DATA_DIR: dir,
  KEY_DIR: database.keyDir,
  DATABASE_URL: database.serviceUrl,
  EVENT_LOG_URL: store.url,
}
// Prepares the schema, the roles and the first price book, as a first start does.
const open = { ...environment, DATABASE_MIGRATION_URL: database.url, EVENT_LOG_URL: store.url }
await (await openFoundation(parseConfig(open), { logger })).close()
afterAll(async () => {
  await store.close()
  await database.drop()
})

const about = (findings: readonly Finding[], ...what: string[]): string[] =>
  findings.filter((one) => what.includes(one.about)).map(({ level, says }) => `${level}: ${says}`)

test('a separate role and a writable EventStoreDB are fine, and the check writes nothing', async () => {
  const appends = store.eventsOf('pricebook').length
  const findings = await examine(environment)
  expect(about(findings, 'database rights', 'event log', 'SECRET_KEY', 'migrations')).toEqual([
    expect.stringMatching(/^ok: esdb:\/\/\S+, at position \d+, the last event \d+ m?s ago$/),
    'ok: the role test_service cannot change the event log',
    'ok: all are applied',
    expect.stringMatching(/^ok: [0-9a-f]{12} opens the installation key$/),
  ])
  expect(about(findings, 'projections')).toEqual([
    expect.stringMatching(/^ok: rows: \d+ m?s behind the event log$/),
  ])
  expect(store.eventsOf('pricebook')).toHaveLength(appends)
  // The disk of the embedded PostgreSQL is not part of this installation.
  expect(about(findings, 'disk of DATA_DIR')).toEqual([])
})

test('a service that works as the owner is a warning', async () => {
  const findings = await examine({ ...environment, DATABASE_URL: database.url })
  expect(about(findings, 'database rights')).toEqual([
    expect.stringMatching(/^warning: the service uses the role \S+, which can change the event log$/),
  ])
})

test('an event log other than the one from which the rows were folded is a fault', async () => {
  const { EVENT_LOG_URL: _, ...rest } = environment
  expect(about(await examine(rest), 'event log')).toEqual([
    expect.stringMatching(
      /^fault: the read models were folded from esdb:\/\/\S+, but the event log is PostgreSQL$/,
    ),
    expect.stringMatching(/^warning: these checks need it and were skipped: /),
  ])
})

test('an EventStoreDB that does not answer is a fault on its own lines, within seconds', async () => {
  store.silence()
  const findings = await takesAtMost(20_000, examine(environment)).finally(() => store.speak())
  expect(about(findings, 'event log')).toEqual([
    expect.stringMatching(/^fault: no answer within 4 s$/),
    expect.stringMatching(/^warning: these checks need it and were skipped: /),
  ])
  // The settings of the test server, which is not durable, are expected faults.
  const faults = findings.filter(
    ({ level, about: what }) => level === 'fault' && what !== 'database settings',
  )
  expect(faults).toHaveLength(1)
  expect(about(findings, 'migrations', 'database')).toEqual([
    expect.stringMatching(/^ok: PostgreSQL/),
    'ok: all are applied',
  ])
})

test('a certificate is reported with its expiry; files without a certificate are one fault', async () => {
  const files = await certificateFiles(renewedCertificate)
  const rest = { ...common, DATA_DIR: join(dir, 'none'), ROLES: 'api', API_PORT: '0' }
  expect(about(await examine({ ...rest, ...files.variables }), 'TLS')).toEqual([
    expect.stringMatching(/^ok: the certificate of CN=pinned.test expires in \d+ days$/),
  ])
  await files.replace({ cert: 'none' })
  const broken = await examine({ ...rest, ...files.variables })
  expect(about(broken, 'TLS', 'surroundings')).toEqual([
    expect.stringMatching(/^fault: TLS_CERT: .* is not a PEM certificate/),
  ])
  await files.remove()
})
