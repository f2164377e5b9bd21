import pg from 'pg'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { type TestDatabase, testDatabase } from '../support/postgres.ts'
import { type CliResult, cli, cliJson } from '../support/service.ts'

/** Who gives a command: proved by a token, labelled by anything else, and told by every event. */

let database: TestDatabase
let pool: pg.Pool
let environment: Record<string, string>

beforeAll(async () => {
  database = await testDatabase()
  pool = new pg.Pool({ connectionString: database.url, max: 1 })
  environment = { DATABASE_URL: database.url, SECRET_KEY: 'a secret of the test, long enough to be one' }
}, 60_000)

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

test('an event names the person whose token gave the command, until the token is revoked', async () => {
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
}, 60_000)

test('a token that is none is refused by every command, reading ones too', async () => {
  const { code, out, err } = await run(['org', 'list'], { OPERATOR_TOKEN: 'enl_operator_x' })
  expect({ code, out }).toEqual({ code: 2, out: '' })
  expect(err).toBe('OPERATOR_TOKEN: not a token as "user token" shows it; it may be cut off\n')
}, 60_000)
