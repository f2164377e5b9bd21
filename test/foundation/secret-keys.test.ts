/** Where SECRET_KEYs come from: the environment, or a file of DATA_DIR that is only ever replaced as a whole. */
import { mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { ConfigError, parseConfig } from '../../src/config.ts'
import { knownSecretKeysOf, secretKeysOf, writeSecretKeys } from '../../src/foundation/secret-key.ts'

let dir = ''
beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), 'secret-keys-'))
})
afterEach(() => rm(dir, { recursive: true, force: true }))

const keys = ['one', 'two', 'three', 'four', 'five'].map(
  (name) => `the key ${name} of a test, that is long enough`,
)
const [one = '', two = '', three = ''] = keys.map((key) => key.replace(',', ''))
const keysOf = (variables: Record<string, string> = {}): Promise<readonly string[]> =>
  secretKeysOf(parseConfig({ DATA_DIR: dir, ...variables }))

test('the key set comes first, then earlier ones, each once', async () => {
  expect(await keysOf({ SECRET_KEY: one, SECRET_KEYS_OLD: `${two} , ${three},${one}` })).toEqual([
    one,
    two,
    three,
  ])
  expect(await keysOf({ SECRET_KEY: one, SECRET_KEYS_OLD: `${two},, with a comma,${three}` })).toEqual([
    one,
    `${two}, with a comma`,
    three,
  ])
  expect(await keysOf({ SECRET_KEY: one, SECRET_KEYS_OLD: '' })).toEqual([one])
})

test.each([
  ['a key that is too short', `${one},short`],
  ['a key with a comma that is not doubled', 'the first half, the second half'],
])('%s is refused by name, and none of it is shown', (_, SECRET_KEYS_OLD) => {
  const parse = () => parseConfig({ SECRET_KEY: two, SECRET_KEYS_OLD })
  expect(parse).toThrow(ConfigError)
  expect(parse).toThrow(/^SECRET_KEYS_OLD: [^"]*$/)
})

test('more keys than are tried for every look-up are refused', async () => {
  const old = keys.slice(1).map((key) => key.replace(',', ''))
  expect(await keysOf({ SECRET_KEY: one, SECRET_KEYS_OLD: old.slice(0, 3).join(',') })).toHaveLength(4)
  const tooMany = keysOf({ SECRET_KEY: one, SECRET_KEYS_OLD: old.join(',') })
  await expect(tooMany).rejects.toThrow(/^SECRET_KEYS_OLD: 5 keys are given with SECRET_KEY; 4 is the most/)
})

test('the file holds one key a line, newest first, for no one else to read', async () => {
  const [made = ''] = await keysOf()
  const path = join(dir, 'secret_key')
  await writeSecretKeys(path, [two, made])
  expect(await keysOf()).toEqual([two, made])
  expect(await keysOf({ SECRET_KEYS_OLD: three })).toEqual([two, made, three])
  expect((await stat(path)).mode & 0o777).toBe(0o600)
  expect(await readdir(dir)).toEqual(['secret_key'])
  // As an editor on another system leaves it.
  await writeFile(path, `${two}\r\n\r\n${made}\r\n\r\n`)
  expect(await keysOf()).toEqual([two, made])
})

test('a draft of a command that was killed is no key, and keeps no other from being written', async () => {
  await keysOf()
  const path = join(dir, 'secret_key')
  const before = await readFile(path, 'utf8')
  await writeFile(`${path}.${process.pid}.draft`, 'half of a ke')
  expect(await readFile(path, 'utf8')).toBe(before)
  await writeSecretKeys(path, [two, before.trim()])
  expect(await keysOf()).toEqual([two, before.trim()])
})

test('where there is none, looking makes none', async () => {
  expect(await knownSecretKeysOf(parseConfig({ DATA_DIR: dir }))).toBeNull()
  expect(await readdir(dir)).toEqual([])
  expect(await knownSecretKeysOf(parseConfig({ DATA_DIR: dir, SECRET_KEY: one }))).toEqual([one])
})
