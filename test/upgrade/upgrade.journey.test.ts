import { existsSync, statSync } from 'node:fs'
import pg from 'pg'
import { afterEach, describe, expect, test } from 'vitest'
import packaged from '../../package.json' with { type: 'json' }
import { decodeEvent } from '../../src/event-log/stored-event.ts'
import { startEventStoreDouble } from '../support/eventstore-double.ts'
import { expectProved, expectUsable } from '../support/expect-used.ts'
import { emptyDatabase } from '../support/postgres.ts'
import { recordedEvents } from '../support/segments.ts'
import { cliJson, eventually, type Service, startService } from '../support/service.ts'
import { observe } from '../support/used-installation.ts'
import {
  backupPathOf,
  type KeptInstallation,
  pathOf,
  readKept,
  releasesKept,
  restoreKept,
  restoreKeys,
} from './kept-installation.ts'

const bytesMax = 300_000

let cleanUp: (() => Promise<unknown>)[] = []
afterEach(async () => {
  for (const clean of cleanUp.reverse()) await clean()
  cleanUp = []
})

test('this release has kept an installation for later releases', () => {
  const remedy = `version ${packaged.version} has none: run "node test/upgrade/keep-installation.ts", and keep those of earlier releases`
  expect(existsSync(pathOf(packaged.version)), remedy).toBe(true)
  for (const release of releasesKept()) expect(statSync(pathOf(release)).size).toBeLessThan(bytesMax)
})

const started = async (environment: Record<string, string>): Promise<Service> => {
  const service = await startService(environment)
  cleanUp.push(() => service.end('SIGTERM'))
  return service
}

const environmentOf = (
  { secretKey }: KeptInstallation,
  { url, keyDir }: { readonly url: string; readonly keyDir: string },
): Record<string, string> => ({
  DATABASE_URL: url,
  KEY_DIR: keyDir,
  SECRET_KEY: secretKey,
  TWO_PERSON: 'off',
  EMAIL_PROBE: 'off',
  DNS_SERVERS: '127.0.0.1:9',
  EGRESS_ALLOW: '127.0.0.1',
})

describe.each(releasesKept())('over the data of release %s', (release) => {
  test('the service starts, reads every event, shows the earlier state, answers, and proves it', async () => {
    const kept = readKept(release)
    const database = await emptyDatabase()
    cleanUp.push(database.drop)
    const { url, keyDir } = database
    await restoreKept(kept, { url, keyDir })
    const environment = environmentOf(kept, database)
    const before = await read(url, (client) => recordedEvents(client))
    // Jobs are off, because they would delete old data.
    const service = await started({ ...environment, ROLES: 'api,dashboard,projector' })
    await eventually(async () => {
      const listed = await cliJson<{ behind: string }[]>(['projection', 'list'], environment)
      return listed.every(({ behind }) => behind === '0') ? true : undefined
    })
    const { epochKeys: _, ...seen } = Object(kept.seen)
    expect(await observe(environment, kept.use)).toMatchObject(seen)
    await expectUsable(service, environment, kept.use)
    await expectProved(environment)

    // Recorded events are unchanged, byte for byte, and are read in their current version.
    const after = await read(url, (client) => recordedEvents(client))
    expect(after.slice(0, before.length)).toEqual(before)
    for (const event of before) expect(() => decodeEvent(event), event.type).not.toThrow()
    expect(service.output()).not.toMatch(/"level":(50|60)/)
  }, 300_000)

  test.each(['PostgreSQL', 'the double of EventStoreDB'])(
    'its backup is restored to %s, and the service shows the earlier state, answers, and proves it',
    async (engine) => {
      const kept = readKept(release)
      const { url, keyDir, drop } = await emptyDatabase()
      cleanUp.push(drop)
      await restoreKeys(kept, keyDir)
      const environment = environmentOf(kept, { url, keyDir })
      if (engine !== 'PostgreSQL') {
        const double = await startEventStoreDouble()
        cleanUp.push(() => double.close())
        environment.EVENT_LOG_URL = `esdb://127.0.0.1:${double.port}?tls=false`
      }
      await cliJson(['backup', 'restore', backupPathOf(release)], environment)
      const service = await started({ ...environment, ROLES: 'api,dashboard,projector' })
      const { epochKeys: _, ...seen } = Object(kept.seen)
      expect(await observe(environment, kept.use)).toMatchObject(seen)
      await expectUsable(service, environment, kept.use)
      await expectProved(environment)
      expect(service.output()).not.toMatch(/"level":(50|60)/)
    },
    300_000,
  )

  test('jobs run with it, and every rebuilt projection has the same rows', async () => {
    const kept = readKept(release)
    const { url, keyDir, drop } = await emptyDatabase()
    cleanUp.push(drop)
    await restoreKept(kept, { url, keyDir })
    const environment = { DATABASE_URL: url, KEY_DIR: keyDir, SECRET_KEY: kept.secretKey, EMAIL_PROBE: 'off' }
    const service = await started(environment)
    await cliJson(['projection', 'rebuild', '--all', '--yes'], environment)
    await expectProved(environment)
    expect(service.output()).not.toMatch(/"level":(50|60)/)
  }, 300_000)
})

const read = async <Value>(url: string, work: (client: pg.Client) => Promise<Value>): Promise<Value> => {
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  try {
    return await work(client)
  } finally {
    await client.end()
  }
}
