/** KEY_DIR goes away under a running service, and is gone for good before the next start: real processes. */
import { mkdtemp, readFile, rename, rm, stat, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import pg from 'pg'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { vacuum } from '../../src/ops/vacuum.ts'
import { type TestDatabase, testDatabase } from '../support/postgres.ts'
import { type CliResult, cli, eventually, type Service, startService } from '../support/service.ts'

let database: TestDatabase
let root = ''
let environment: Record<string, string> = {}
let service: Service | undefined

beforeAll(async () => {
  database = await testDatabase()
  root = await mkdtemp(join(tmpdir(), 'lost-keys-'))
  environment = {
    DATABASE_URL: database.url,
    SECRET_KEY: 'a secret of the test, long enough to be one',
    KEY_DIR: join(root, 'keys'),
  }
  await writeFile(join(root, 'people.jsonl'), '{"lid":"zorvina","firstname":"Zorvina"}\n')
})
afterAll(async () => {
  await service?.end('SIGTERM')
  await database?.drop()
  await rm(root, { recursive: true, force: true })
})

const command = (...args: string[]): Promise<CliResult> => cli(args, environment)
const readiness = async (): Promise<{ status: number; check: string | undefined }> => {
  const answer = await fetch(`${service?.apiUrl}/readyz`)
  const { checks } = (await answer.json()) as { checks: Record<string, { status: string }> }
  return { status: answer.status, check: checks.epoch_key?.status }
}

test('a running service whose keys go away is not ready, by name, and ready again when they are back', async () => {
  service = await startService(environment)
  expect((await command('profiles', 'import', join(root, 'people.jsonl'))).code).toBe(0)
  expect(await readiness()).toEqual({ status: 200, check: 'ok' })
  await rename(join(root, 'keys'), join(root, 'elsewhere'))
  await eventually(async () => ((await readiness()).status === 503 ? true : undefined))
  expect(await readiness()).toEqual({ status: 503, check: 'failed' })
  const refused = await command('profiles', 'import', join(root, 'people.jsonl'))
  expect(refused).toMatchObject({ code: 1, out: '' })
  expect(refused.err).toContain('nothing can be sealed: the key 7')
  await rename(join(root, 'elsewhere'), join(root, 'keys'))
  await eventually(async () => ((await readiness()).status === 200 ? true : undefined))
  expect(await service.end('SIGTERM')).toBe(0)
}, 60_000)

test('a service without them does not start, makes none, and says what to do; then that is done', async () => {
  await rm(join(root, 'keys'), { recursive: true })
  const told = await startService(environment).then(
    () => 'it started',
    (error: unknown) => (error instanceof Error ? error.message : ''),
  )
  const [, ...lines] = told.trimEnd().split('\n')
  expect(lines).toEqual([
    expect.stringMatching(
      /^Configuration: KEY_DIR: the key \d+-.{8} that this database's data are sealed under is not there.*"epoch-key abandon"/,
    ),
  ])
  await expect(stat(join(root, 'keys'))).rejects.toThrow('ENOENT')
  // What needs no key works: an operator is not locked out.
  expect((await command('org', 'list')).code).toBe(0)
  const listed = await command('epoch-key', 'list', '--json')
  expect({ code: listed.code, keys: JSON.parse(listed.out) }).toMatchObject({
    code: 1,
    keys: [{ state: 'lost' }],
  })
  const abandoned = await command('epoch-key', 'abandon', '--json')
  expect(JSON.parse(abandoned.out)).toEqual({
    abandoned: [expect.stringMatching(/^\d+-.{8}$/)],
    dropped_from_data_set: 1,
  })
  service = await startService(environment)
  expect(await readiness()).toEqual({ status: 200, check: 'ok' })
  expect((await stat(join(root, 'keys'))).mode & 0o777).toBe(0o700)
  expect(await readFile(join(root, 'people.jsonl'), 'utf8')).toContain('zorvina')
}, 60_000)

test('a vacuum that a role may not do is told, not taken for done', async () => {
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
