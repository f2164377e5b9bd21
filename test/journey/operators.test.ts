import pg from 'pg'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { type TestDatabase, testDatabase } from '../support/postgres.ts'
import { type CliResult, cli, cliJson } from '../support/service.ts'

/** Every event names the operator behind a command. A token proves the operator's identity; without one, the name is only a label. */

let database: TestDatabase
let pool: pg.Pool
let environment: Record<string, string>

beforeAll(async () => {
  database = await testDatabase()
  pool = new pg.Pool({ connectionString: database.url, max: 1 })
  environment = { DATABASE_URL: database.url, SECRET_KEY: 'a secret of the test, long enough to be one' }
})

afterAll(async () => {
  await pool.end()
  await database.drop()
})

const run = (args: string[], more: Record<string, string> = {}): Promise<CliResult> =>
  cli(args, { ...environment, ...more })

const written = async (): Promise<number> => {
  const { rows } = await pool.query<{ events: number }>(
    'select coalesce(sum(count), 0)::int as events from log_segments',
  )
  return rows[0]?.events ?? 0
}

const actorOfLast = async (stream: string): Promise<string> => {
  const shown = await cliJson<{ metadata: { actor: string } }[]>(['event-log', 'show', stream], environment)
  return shown.at(-1)?.metadata.actor ?? ''
}

test('an event names the person whose token was used, until the token is revoked', async () => {
  await cliJson(['user', 'create', 'ada'], environment)
  const { token, token_id } = await cliJson<{ token: string; token_id: string }>(
    ['user', 'token', 'ada', '--as', 'setup'],
    environment,
  )
  expect(await actorOfLast('operator')).toBe('cli:setup')
  const { organization_id: org } = await cliJson<{ organization_id: string }>(['org', 'create', 'Acme'], {
    ...environment,
    OPERATOR_TOKEN: token,
  })
  expect(await actorOfLast(`ledger-${org}`)).toBe('user:ada')

  expect((await run(['user', 'token', 'ada', '--revoke', '--yes'], { OPERATOR_TOKEN: token })).code).toBe(0)
  expect(await cliJson(['user', 'tokens'], environment)).toMatchObject([
    { user: 'ada', token_id, issued_by: 'cli:setup', revoked_by: 'user:ada' },
  ])
  const before = await written()
  const { code, out, err } = await run(['credits', 'grant', org, '5'], { OPERATOR_TOKEN: token })
  expect({ code, out }).toEqual({ code: 2, out: '' })
  expect(err).toContain(`OPERATOR_TOKEN: token ${token_id} of ada was revoked at `)
  expect(err).not.toContain(token)
  expect(await written()).toBe(before)
})

test('a token cannot do what its role does not permit, and the audit lists what was done', async () => {
  await cliJson(['user', 'create', 'vic', '--role', 'viewer', '--as', 'setup'], environment)
  const { token } = await cliJson<{ token: string }>(['user', 'token', 'vic', '--as', 'setup'], environment)
  const as = { OPERATOR_TOKEN: token }
  const before = await written()
  const refused = await run(['org', 'create', 'Not by a viewer'], as)
  expect(refused).toMatchObject({ code: 1, out: '' })
  expect(refused.err).toBe('vic is viewer, and "org create" is for admin or finance\n')
  expect(await written()).toBe(before)
  expect((await run(['org', 'list'], as)).code).toBe(0)

  expect((await run(['user', 'disable', 'vic', '--reason', 'left', '--yes', '--as', 'setup'])).code).toBe(0)
  const ended = await run(['org', 'list'], as)
  expect(ended).toMatchObject({ code: 2, out: '' })
  expect(ended.err).toContain('of vic was revoked at ')
  const last = await run(['user', 'disable', 'ada', '--reason', 'left', '--yes'])
  expect(last).toMatchObject({ code: 1 })
  expect(last.err).toContain('ada is the only active admin')

  const told = await cliJson<{ actor: string; says: string }[]>(
    ['audit', 'list', '--about', 'vic'],
    environment,
  )
  expect(told.map(({ actor, says }) => `${actor} ${says.replace(/token \w+/, 'token …')}`)).toEqual([
    'cli:setup disabled vic: left',
    'cli:setup created the token … for vic',
    'cli:setup created the user vic as viewer',
  ])
  const lines = (await run(['audit', 'list', '--actor', 'setup', '--limit', '1', '--oldest-first'])).out
  expect(lines).toMatch(/^\d{4}-\S+Z {2}cli:setup {2}created the token \w{16} for ada {2}\d+\n$/)
  const wrong = await run(['audit', 'list', '--type', 'CreditGrantd'])
  expect(wrong).toMatchObject({ code: 2 })
  expect(wrong.err).toContain('did you mean CreditGranted?')
  expect(await cliJson(['audit', 'list', '--since', '2999-01-01'], environment)).toEqual([])
}, 120_000)
