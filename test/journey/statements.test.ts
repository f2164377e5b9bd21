import { mkdtemp, readdir, readFile, rm, stat } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, expect, test } from 'vitest'
import { testDatabase } from '../support/postgres.ts'
import { type CliResult, cli, cliJson } from '../support/service.ts'

/** Files that the command line writes. */

const database = await testDatabase()
const environment = { DATABASE_URL: database.url, SECRET_KEY: 'a secret of the test, long enough to be one' }
const dir = await mkdtemp(join(tmpdir(), 'statements-'))

afterAll(async () => {
  await rm(dir, { recursive: true, force: true })
  await database.drop()
})

test('a statement is saved for its owner alone, and does not overwrite an existing file unless requested', async () => {
  const { organization_id: org } = await cliJson<{ organization_id: string }>(
    ['org', 'create', 'One'],
    environment,
  )
  await cliJson(['credits', 'grant', org, '10'], environment)
  const month = new Date().toISOString().slice(0, 7)
  const file = join(dir, 'statement')
  const save = (of: string, ...more: string[]): Promise<CliResult> =>
    cli(['ledger', 'statement', of, month, '--out', file, ...more], environment)
  expect((await save('org_01ARZ3NDEKTSV4RRFFQ69G5FAV', '--jsonl')).code).toBe(1)
  expect(await readdir(dir)).toEqual([])
  expect((await save(org, '--jsonl')).code).toBe(0)
  expect((await stat(file)).mode & 0o777).toBe(0o600)
  const first = await readFile(file, 'utf8')
  const refused = await save(org, '--csv')
  expect(refused).toMatchObject({ code: 2, err: expect.stringContaining('already exists') })
  expect(await readFile(file, 'utf8')).toBe(first)
  expect((await save(org, '--csv', '--force')).code).toBe(0)
  expect(await readFile(file, 'utf8')).toMatch(/^revision,event_id,/)
})
