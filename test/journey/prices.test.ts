import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { type TestDatabase, testDatabase } from '../support/postgres.ts'
import { type CliResult, cli, cliJson } from '../support/service.ts'

/** How finance changes prices: proposed by one person, approved by another, withdrawn in time. */

let database: TestDatabase
let dir = ''
let environment: Record<string, string>
const tokens: Record<string, string> = {}

beforeAll(async () => {
  database = await testDatabase()
  dir = await mkdtemp(join(tmpdir(), 'prices-'))
  environment = { DATABASE_URL: database.url, SECRET_KEY: 'a secret of the test, long enough to be one' }
  for (const name of ['ada', 'bob']) {
    await cliJson(['user', 'create', name, '--role', 'finance'], environment)
    const { token } = await cliJson<{ token: string }>(['user', 'token', name], environment)
    tokens[name] = token
  }
})

afterAll(async () => {
  await database.drop()
  await rm(dir, { recursive: true, force: true })
})

const as = (name?: string): Record<string, string> =>
  name === undefined ? environment : { ...environment, OPERATOR_TOKEN: tokens[name] ?? '' }
const run = (args: string[], name?: string): Promise<CliResult> => cli(args, as(name))
const json = <T>(args: string[], name?: string): Promise<T> => cliJson<T>(args, as(name))

type Shown = {
  in_force: { version: number }
  upcoming: { version: number; approver: string; digest: string }[]
  proposals: { proposal: number }[]
}

test('a book is proposed by one person, compared, approved by another, and withdrawn before it takes effect', async () => {
  const from = new Date(Date.now() + 86_400_000).toISOString()
  await writeFile(join(dir, 'patch.json'), '[{"rule":"ip_lookup.located","amount":"1.50"}]')
  const file = join(dir, 'patch.json')
  const proposed = await json<{ proposal: number; digest: string; proposer: string; rules: unknown[] }>(
    ['price', 'propose', file, '--from', from, '--reason', 'contract 17'],
    'ada',
  )
  expect(proposed).toMatchObject({ proposal: 1, proposer: 'user:ada', effective_from: from, base: 1 })
  expect(proposed.rules).toHaveLength(16)

  const twice = await run(['price', 'propose', file, '--from', from], 'bob')
  expect(twice).toMatchObject({
    code: 1,
    out: '',
    err: 'proposal p1 has exactly these rules and is still open\n',
  })

  const difference = await run(['price', 'diff', '1', 'p1'], 'bob')
  expect(difference.out).toMatch(
    /^1 → p1\nrule\s+sku\s+version\s+credits\s+to version\s+to credits\nip_lookup\.located\s+ip_lookup\s+1\s+1\s+1\s+1\.5\n\nNo calls in \d{4}-\d\d\n$/,
  )

  expect(await run(['price', 'approve', 'p1', '--yes'], 'ada')).toMatchObject({
    code: 1,
    err: 'ada proposed it: another person has to approve it (TWO_PERSON=on)\n',
  })
  expect((await run(['price', 'approve', 'p1', '--yes', '--as', 'bob'])).err).toContain('is only a label')
  expect(await json(['price', 'approve', 'p1', '--yes'], 'bob')).toMatchObject({
    version: 2,
    approver: 'user:bob',
    proposal: 1,
  })
  const shown = await json<Shown>(['price', 'show'])
  expect(shown).toMatchObject({ in_force: { version: 1 }, upcoming: [{ version: 2 }], proposals: [] })
  expect((await json<Shown>(['price', 'show', '--at', from])).in_force).toMatchObject({ version: 2 })

  expect((await run(['price', 'withdraw', '2', '--yes'], 'bob')).out).toBe(
    'price book 2 is withdrawn and will never price a call\n',
  )
  expect(await json<Shown>(['price', 'show'])).toMatchObject({ in_force: { version: 1 }, upcoming: [] })
  expect((await run(['price', 'show', '2'])).out).toMatch(
    /withdrawn: +by user:bob, at \S+, reason withdrawn by operator/,
  )
  expect((await run(['price', 'show', 'p9'])).err).toBe('there is no proposal p9; see "price show"\n')
})

test('a price of one organization has a date, is listed and withdrawn', async () => {
  const { organization_id: org } = await json<{ organization_id: string }>(['org', 'create', 'Acme'])
  const past = await run(['price', 'override', org, 'ip_lookup', '0.5', '2026-01-01'])
  expect(past).toMatchObject({ code: 2, out: '' })
  expect(past.err).toContain('--effective-from: 2026-01-01T00:00:00.000Z has passed')
  const set = await json<{ override_id: string }>(
    ['price', 'override', org, 'ip_lookup', '0.5', '--reason', 'contract 17'],
    'ada',
  )
  const listed = { organization_id: org, sku: 'ip_lookup', amount: '0.5', override_id: set.override_id }
  expect(await json(['price', 'overrides', org])).toMatchObject([
    { ...listed, in_force: true, set_by: 'user:ada', reason: 'contract 17' },
  ])
  expect(await json(['price', 'override', org, '--withdraw', set.override_id], 'bob')).toMatchObject(listed)
  expect(await json(['price', 'overrides', org])).toEqual([])
  expect((await run(['price', 'override', org, '--withdraw', set.override_id])).err).toContain(
    `${org} has no active override ${set.override_id}`,
  )
})
