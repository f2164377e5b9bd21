/** KEY_DIR is lost permanently: the reports of a real process and of the command line, and how to continue. */
import { rm, stat } from 'node:fs/promises'
import { join } from 'node:path'
import pg from 'pg'
import pino from 'pino'
import { afterAll, expect, test } from 'vitest'
import { importProfilesFrom } from '../../src/capabilities/profile/dataset/installed.ts'
import { parseConfig } from '../../src/config.ts'
import { openFoundation } from '../../src/foundation/foundation.ts'
import { vacuum } from '../../src/foundation/vacuum.ts'
import { directoryForFile } from '../support/directory.ts'
import { testDatabase } from '../support/postgres.ts'
import { cli, failedStart } from '../support/service.ts'

const database = await testDatabase()
const root = await directoryForFile()
const environment = {
  DATABASE_URL: database.url,
  SECRET_KEY: 'a secret of the test, long enough to be one',
  KEY_DIR: join(root, 'keys'),
}
const config = parseConfig(environment)
const foundation = await openFoundation(config, { logger: pino({ level: 'silent' }) })
afterAll(async () => {
  await foundation.close()
  await database.drop()
})

const importPerson = (): Promise<{ imported: number }> => {
  const stream = (async function* () {
    yield Buffer.from('{"lid":"zorvina","firstname":"Zorvina"}')
  })()
  return importProfilesFrom(foundation, config, { stream })
}

test('a service without its keys does not start, makes none, and prints the remedy, which works', async () => {
  expect(await importPerson()).toMatchObject({ imported: 1 })
  await rm(join(root, 'keys'), { recursive: true })
  const printed = await failedStart(environment)
  const [first, ...lines] = printed.trimEnd().split('\n')
  expect(first).toBe('the service ended with 2 before it answered:')
  expect(lines).toEqual([
    expect.stringMatching(
      /^Configuration: KEY_DIR: the key \d+-.{8} under which this database's data is sealed is missing.*"epoch-key abandon"/,
    ),
  ])
  await expect(stat(join(root, 'keys'))).rejects.toThrow('ENOENT')
  // Commands that need no key still work, so an operator is not locked out.
  const listed = await cli(['epoch-key', 'list', '--json'], environment)
  expect({ code: listed.code, keys: JSON.parse(listed.out) }).toMatchObject({
    code: 1,
    keys: [{ state: 'lost' }],
  })
  const abandoned = await cli(['epoch-key', 'abandon', '--yes', '--json'], environment)
  expect(JSON.parse(abandoned.out)).toEqual({
    abandoned: [expect.stringMatching(/^\d+-.{8}$/)],
    dropped_from_data_set: 1,
  })
  await foundation.epochKeys.watch()
  expect(foundation.epochKeys.failure()).toBeNull()
  expect((await stat(join(root, 'keys'))).mode & 0o777).toBe(0o700)
  expect(await importPerson()).toMatchObject({ imported: 1 })
})

test('a vacuum that the role is not allowed to run is reported instead of counted as done', async () => {
  const client = new pg.Client({ connectionString: database.url })
  await client.connect()
  const role = `stranger_${process.pid}_${Date.now()}`
  await client.query(`create role ${role} login password 'stranger'`)
  try {
    const url = new URL(database.url)
    url.username = role
    url.password = 'stranger'
    expect(await vacuum(url.href, ['profile_keys'])).toContain('permission denied to vacuum "profile_keys"')
    expect(await vacuum(database.url, ['profile_keys', 'profile_dataset'])).toBeNull()
    expect(await vacuum('postgres://nobody@127.0.0.1:1/none', ['profile_keys'])).toContain('ECONNREFUSED')
  } finally {
    await client.query(`drop role ${role}`)
    await client.end()
  }
})
