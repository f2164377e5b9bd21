import { mkdir, mkdtemp, readdir, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import pino from 'pino'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { ConfigError, parseConfig } from '../../src/config.ts'
import { openFoundation } from '../../src/foundation/foundation.ts'
import { type TestDatabase, testDatabase } from '../support/postgres.ts'

/** A different SECRET_KEY would make every issued key invalid, so a process does not start with it. */

const logger = pino({ level: 'silent' })
const oldKey = 'the key this installation began with, long enough'
const otherKey = 'another key, under which no API key was ever issued'

let database: TestDatabase
let dataDir = ''

beforeEach(async () => {
  database = await testDatabase()
  dataDir = await mkdtemp(join(tmpdir(), 'secret-key-'))
})

afterEach(async () => {
  await database.drop()
  await rm(dataDir, { recursive: true, force: true })
})

const start = async (secretKey: string, options: { anyEventLog?: boolean } = {}): Promise<void> => {
  const config = parseConfig({ DATABASE_URL: database.url, SECRET_KEY: secretKey, DATA_DIR: dataDir })
  const foundation = await openFoundation(config, { logger, ...options })
  await foundation.close()
}

test('a key other than the first start’s is refused with its name and the remedy, and the first key still works', async () => {
  await start(oldKey)
  const refused = start(otherKey)
  await expect(refused).rejects.toThrow(ConfigError)
  await expect(refused).rejects.toThrow(/^SECRET_KEY: .*Start with that key; nothing was changed\.$/)
  await start(oldKey)
})

test('commands that can open any event log are also refused', async () => {
  await start(oldKey)
  await expect(start(otherKey, { anyEventLog: true })).rejects.toThrow('SECRET_KEY')
})

test('of several simultaneous first starts with different keys, only one succeeds', async () => {
  const keys = [1, 2, 3].map((n) => `key number ${n} of several, all of them long enough`)
  const outcomes = await Promise.allSettled(keys.map((key) => start(key)))
  expect(outcomes.filter(({ status }) => status === 'fulfilled')).toHaveLength(1)
})

test('if data exist but their key is lost, no new key is made', async () => {
  await mkdir(join(dataDir, 'postgres'))
  await writeFile(join(dataDir, 'postgres', 'PG_VERSION'), '18\n')
  const opened = openFoundation(parseConfig({ DATA_DIR: dataDir }), { logger })
  await expect(opened).rejects.toThrow(/^SECRET_KEY: .*secret_key is missing.*Restore that file/)
  expect(await readdir(dataDir)).toEqual(['postgres'])
})
