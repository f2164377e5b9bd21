import { mkdir, mkdtemp, readdir, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import pino from 'pino'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { ConfigError, parseConfig } from '../../src/config.ts'
import { openFoundation } from '../../src/foundation/foundation.ts'
import { type TestDatabase, testDatabase } from '../support/postgres.ts'

/** Under another SECRET_KEY every issued key would be refused: no process starts with one. */

const logger = pino({ level: 'silent' })
const oldKey = 'the key this installation began with, long enough'
const otherKey = 'another key, which nobody was ever issued a key under'

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

test('another key than the first start had is refused by name, with the remedy, and the first one goes on working', async () => {
  await start(oldKey)
  const refused = start(otherKey)
  await expect(refused).rejects.toThrow(ConfigError)
  await expect(refused).rejects.toThrow(/^SECRET_KEY: .*Start with that one; nothing was changed\.$/)
  await start(oldKey)
})

test('commands that may open any event log are refused as well', async () => {
  await start(oldKey)
  await expect(start(otherKey, { anyEventLog: true })).rejects.toThrow('SECRET_KEY')
})

test('of several first starts with different keys at once only one key is let in', async () => {
  const keys = [1, 2, 3].map((n) => `key number ${n} of several, all of them long enough`)
  const outcomes = await Promise.allSettled(keys.map((key) => start(key)))
  expect(outcomes.filter(({ status }) => status === 'fulfilled')).toHaveLength(1)
})

test('where data exist but their key is gone no new key is made', async () => {
  await mkdir(join(dataDir, 'postgres'))
  await writeFile(join(dataDir, 'postgres', 'PG_VERSION'), '18\n')
  const opened = openFoundation(parseConfig({ DATA_DIR: dataDir }), { logger })
  await expect(opened).rejects.toThrow(/^SECRET_KEY: .*secret_key is missing.*Restore that file/)
  expect(await readdir(dataDir)).toEqual(['postgres'])
})
