import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import pg from 'pg'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { type TestDatabase, testDatabase } from '../support/postgres.ts'
import { type CliResult, cli, cliJson } from '../support/service.ts'

/** The arguments, refusals and output of the command line. Exit codes: 0 done, 1 failed, 2 wrong usage. */

let database: TestDatabase
let pool: pg.Pool
let dir = ''
let environment: Record<string, string>
let org = ''

beforeAll(async () => {
  database = await testDatabase()
  pool = new pg.Pool({ connectionString: database.url, max: 1 })
  dir = await mkdtemp(join(tmpdir(), 'command-line-'))
  environment = { DATABASE_URL: database.url, SECRET_KEY: 'a secret of the test, long enough to be one' }
  org = (await cliJson<{ organization_id: string }>(['org', 'create', 'Acme'], environment)).organization_id
})

afterAll(async () => {
  await pool.end()
  await database.drop()
  await rm(dir, { recursive: true, force: true })
})

const run = (...args: string[]): Promise<CliResult> =>
  cli(
    args.map((arg) => (arg === '<org>' ? org : arg.replace('<dir>', dir))),
    environment,
  )

const written = async (): Promise<number> => {
  const { rows } = await pool.query<{ events: number }>(
    'select coalesce(sum(count), 0)::int as events from log_segments',
  )
  return rows[0]?.events ?? 0
}

const long = 'a'.repeat(201)

describe('values that no event can contain are refused before anything is written', () => {
  test.each([
    ['name: at most 200 characters; it has 201', ['org', 'create', long]],
    ['--name: control characters', ['key', 'issue', '<org>', '--name', 'a\u0007b']],
    [
      '--reason: characters that change the direction',
      ['key', 'revoke', 'A'.repeat(16), '--reason', 'a\u202eb'],
    ],
    ['--allow: name an address', ['key', 'issue', '<org>', '--allow', ',']],
    [
      '--expires-at: 2020-01-01T23:59:59.999Z is in the past',
      ['credits', 'grant', '<org>', '5', '--expires-at', '2020-01-01'],
    ],
    [
      '--effective-from: 2026-01-01T00:00:00.000Z has passed',
      ['price', 'override', '<org>', 'ip_lookup', '0.5', '2026-01-01'],
    ],
    ['is not an ISO 8601', ['key', 'issue', '<org>', '--expires-at', '9999-12-31T23:59:59-12:00']],
    [
      'amount: "-5" is not a positive decimal number of credits, such as 100 or 1.5',
      ['credits', 'grant', '<org>', '-5'],
    ],
    [
      'amount: "-.5" is not a positive decimal number of credits',
      ['credits', 'grant', '<org>', '--amount', '-.5'],
    ],
    ['give a projection, or --all; the projections are accounts, ', ['projection', 'rebuild']],
  ])(
    '%s',
    async (sentence, args) => {
      const before = await written()
      const { code, out, err } = await run(...args)
      expect(err.split('\n')[0]).toContain(sentence)
      expect({ code, out }).toEqual({ code: 2, out: '' })
      expect(err).not.toMatch(/^\s+at |"code":|ZodError/m)
      expect(await written()).toBe(before)
    },
    60_000,
  )
})

test('a test key is issued into the organization’s test ledger, which is opened only once', async () => {
  const issue = (of: string) =>
    cliJson<Record<string, unknown>>(
      ['key', 'issue', of, '--test', '--permissions', 'ip_lookup'],
      environment,
    )
  const testOrg = org.replace('org_', 'org_test_')
  const first = await issue(org)
  expect(first).toMatchObject({ organization_id: testOrg, permissions: ['ip_lookup'] })
  expect(first.api_key).toMatch(/^enl_test_/)
  expect(await issue(testOrg)).toMatchObject({ organization_id: testOrg })
  const listed = await cliJson<Record<string, unknown>[]>(['org', 'list'], environment)
  const both = listed.filter(({ organization_id: id }) => id === org || id === testOrg)
  expect(both.map(({ charged, balance }) => [charged, balance])).toContainEqual(['0', '1000000'])
  expect(both.find(({ organization_id: id }) => id === testOrg)?.name).toMatch(/ \(test\)$/)
  expect((await run('key', 'issue', 'org_01ARZ3NDEKTSV4RRFFQ69G5FAV', '--test')).err).toContain(
    'there is no organization',
  )
})

describe('a price book', () => {
  let rules: Record<string, unknown>[] = []
  beforeAll(async () => {
    const shown = await cliJson<{ in_force: { rules: typeof rules } }>(['price', 'show'], environment)
    rules = shown.in_force.rules
  })

  test.each([
    ['it is not JSON', 'not JSON'],
    ['rules: a list is expected; it is missing', '{"a":1}'],
    ['--from: 2026-01-01T00:00:00.000Z is not at least 5 s ahead', 'as it is', '2026-01-01'],
    ['--from is required', 'as it is', ''],
    ['rule whoami occurs twice', 'whoami twice'],
  ])(
    'is refused with a one-sentence reason: %s',
    async (sentence, content, from = '2099-01-01') => {
      const before = await written()
      const twice = [...rules, ...rules.filter(({ rule }) => rule === 'whoami')]
      const texts: Record<string, string> = {
        'as it is': JSON.stringify(rules),
        'whoami twice': JSON.stringify(twice),
      }
      await writeFile(join(dir, 'book.json'), texts[content] ?? content)
      const { code, out, err } = await run('price', 'propose', '<dir>/book.json', from)
      expect(err.split('\n')[0]).toContain(sentence)
      expect({ code, out }).toEqual({ code: 2, out: '' })
      expect(await written()).toBe(before)
    },
    60_000,
  )
})

describe('output for people', () => {
  test('consists of lines and aligned columns, never JSON', async () => {
    for (const args of [
      ['price', 'show'],
      ['geo', 'status'],
      ['key', 'list'],
      ['org', 'list'],
      ['credits', 'balance', '<org>'],
      ['ledger', 'verify'],
      ['projection', 'list'],
    ]) {
      const { code, out } = await run(...args)
      expect(code, args.join(' ')).toBe(0)
      expect(out, args.join(' ')).not.toMatch(/[{[]/)
      expect(out.trim()).not.toBe('')
    }
  })

  test('lists prices under headings', async () => {
    const { out } = await run('price', 'show')
    const lines = out.trimEnd().split('\n')
    expect(lines[0]).toBe('In force')
    expect(out).toMatch(/^effective_from: +2020-01-01T00:00:00\.000Z$/m)
    const column = lines.find((line) => line.startsWith('rule '))?.indexOf('amount')
    const row = lines.find((line) => line.startsWith('profile.fresh'))
    expect(row?.slice(column)).toBe('5')
  })
})

test('cuts a long name in lists, but not in JSON', async () => {
  const name = 'n'.repeat(200)
  const { organization_id: id } = await cliJson<{ organization_id: string }>(
    ['org', 'create', name],
    environment,
  )
  const { out } = await run('org', 'list')
  // The column is as wide as its widest id, which may belong to another test's organization.
  expect(out).toMatch(new RegExp(`^${id} +n{39}…  0`, 'm'))
  expect(Math.max(...out.split('\n').map((line) => line.length))).toBeLessThan(160)
  expect(await cliJson(['org', 'list'], environment)).toContainEqual(expect.objectContaining({ name }))
})

describe('commands about things that do not exist', () => {
  test('an unregistered organization: exit code 1 and an error', async () => {
    const { code, out, err } = await run('key', 'issue', 'missing')
    expect({ code, out }).toEqual({ code: 1, out: '' })
    expect(err).toContain('there is no organization missing')
  })

  test.each([
    ['a noun alone', ['org'], '"org" needs a verb: create, list.'],
    ['another verb', ['org', 'sell'], 'There is no command "org sell"; the verbs of "org" are create, list.'],
    ['another noun', ['sell', 'it'], 'There is no command "sell it".'],
  ])('%s lists the possible commands on standard error', async (_, args, sentence) => {
    const { code, out, err } = await run(...args)
    expect({ code, out }).toEqual({ code: 2, out: '' })
    expect(err).toMatch(/^There|^"org"/)
    expect(err.split('\n')[0]).toBe(sentence)
    expect(err).toContain(args[0] === 'org' ? 'org create' : '--help" lists the nouns')
  })

  test('a request for help is not a failure', async () => {
    for (const args of [[], ['--help'], ['org', '--help']]) {
      const { code, out, err } = await run(...args)
      expect({ code, err }).toEqual({ code: 0, err: '' })
      expect(out).toContain(args[0] === 'org' ? 'org create' : 'organizations: register and list')
    }
  })
})

test('erasing an unknown person reports that the person is unknown and stays suppressed', async () => {
  const { code, out } = await run('profiles', 'erase', 'https://www.profnet.com/in/somebody', '--yes')
  expect(code).toBe(0)
  expect(out).toMatch(
    /^No recorded person has this identifier, so there was nothing to destroy\.\n1 identifier is suppressed and will never be fetched, served or imported again\.\nFree space in the tables, the write-ahead log and backups may still contain encrypted copies\. They cannot be opened from \d{4}-\d\d-\d\dT00:00:00\.000Z on, /,
  )
})
