import pg from 'pg'
import { afterEach, expect, test, vi } from 'vitest'
import { settingsLost, withSessionSettings } from '../../src/foundation/session-settings.ts'
import { houseForFile } from '../support/house.ts'
import { testDatabase } from '../support/postgres.ts'
import { eventually } from '../support/service.ts'

/** A database whose defaults are not those of a new PostgreSQL. */
const unusual = {
  timezone: 'America/St_Johns',
  datestyle: 'German',
  intervalstyle: 'sql_standard',
  bytea_output: 'escape',
  extra_float_digits: '-10',
  standard_conforming_strings: 'off',
  array_nulls: 'off',
  transform_null_equals: 'on',
  default_transaction_isolation: 'serializable',
  idle_session_timeout: '2s',
  statement_timeout: '100ms',
}

const setUnusual = async (query: (sql: string) => Promise<unknown>, whose: string): Promise<void> => {
  for (const [name, value] of Object.entries(unusual)) await query(`alter ${whose} set ${name} = '${value}'`)
}

afterEach(() => vi.unstubAllEnvs())

test('the settings of a connection take precedence over those of the database, the URL and PGOPTIONS', async () => {
  const database = await testDatabase()
  const settingsAt = async (url: string, own: pg.ClientConfig = {}) => {
    const connectionString = withSessionSettings(withSessionSettings(url))
    const client = new pg.Client({ connectionString, ...own })
    await client.connect()
    try {
      const names = [...Object.keys(unusual), 'work_mem']
      const { rows } = await client.query<{ name: string; setting: string }>(
        'select lower(name) as name, setting from pg_settings where lower(name) = any ($1)',
        [names],
      )
      return Object.fromEntries(rows.map(({ name, setting }) => [name, setting]))
    } finally {
      await client.end()
    }
  }
  try {
    const admin = new pg.Client({ connectionString: database.url })
    await admin.connect()
    await setUnusual((sql) => admin.query(sql), `database ${new URL(database.url).pathname.slice(1)}`)
    await admin.end()
    const expected = {
      timezone: 'UTC',
      datestyle: 'ISO, YMD',
      intervalstyle: 'postgres',
      bytea_output: 'hex',
      extra_float_digits: '1',
      standard_conforming_strings: 'on',
      array_nulls: 'on',
      transform_null_equals: 'off',
      default_transaction_isolation: 'read committed',
      idle_session_timeout: '0',
      statement_timeout: '0',
    }
    expect(await settingsAt(database.url)).toMatchObject(expected)
    expect(await settingsAt(database.url, { statement_timeout: 5_000 })).toMatchObject({
      statement_timeout: '5000',
    })
    const withOptions = new URL(database.url)
    const options = encodeURIComponent('-c work_mem=512kB -c timezone=Asia/Tokyo')
    withOptions.search = `application_name=a%26b&options=${options}`
    expect(await settingsAt(withOptions.href)).toMatchObject({
      ...expected,
      work_mem: '512',
    })
    vi.stubEnv('PGOPTIONS', '-c work_mem=768kB -c timezone=Asia/Tokyo')
    withOptions.search = ''
    expect(await settingsAt(withOptions.href)).toMatchObject({ ...expected, work_mem: '768' })
  } finally {
    await database.drop()
  }
})

test.each(['a/b c%2Fd;e:f@g&h=i+j,k$ü', '100%'])(
  'the database named %j is opened by its encoded name',
  async (name) => {
    const database = await testDatabase()
    const admin = new pg.Client({ connectionString: database.url })
    await admin.connect()
    const url = new URL(database.url)
    url.pathname = `/${encodeURIComponent(name)}`
    const client = new pg.Client({ connectionString: withSessionSettings(withSessionSettings(url.href)) })
    try {
      await admin.query(`create database ${admin.escapeIdentifier(name)} template template0`)
      await client.connect()
      expect((await client.query('select current_database() as name')).rows).toEqual([{ name }])
    } finally {
      await client.end()
      await admin.query(`drop database if exists ${admin.escapeIdentifier(name)} with (force)`)
      await admin.end()
      await database.drop()
    }
  },
)

test('with Turkish rules for letters, no setting counts as lost', async () => {
  const database = await testDatabase()
  const admin = new pg.Client({ connectionString: database.url })
  await admin.connect()
  const url = new URL(database.url)
  url.pathname = `${url.pathname}_turkish`
  const name = url.pathname.slice(1)
  const client = new pg.Client({ connectionString: withSessionSettings(url.href) })
  try {
    await admin.query(
      `create database ${name} template template0 locale_provider icu icu_locale 'tr-TR' locale 'C.UTF-8'`,
    )
    await client.connect()
    expect((await client.query(`select lower('I') as letter`)).rows).toEqual([{ letter: 'ı' }])
    expect(await settingsLost(client)).toEqual([])
  } finally {
    await client.end()
    await admin.query(`drop database if exists ${name} with (force)`)
    await admin.end()
    await database.drop()
  }
})

const house = await houseForFile()
const [row] = await house.query('select current_database() as name')
await setUnusual((sql) => house.query(sql), `database ${row?.name}`)
// New connections have the changed settings.
await house.query(
  'select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()',
)
// The processes must first notice that their old connections have ended.
const partner = await eventually(() => house.partner().catch(() => undefined))

test('with such a database, concurrent calls are answered and charged, and rows contain what the log says', async () => {
  const answers = await Promise.all(
    Array.from({ length: 40 }, () => house.lookup(partner, { ip: '81.2.69.142' })),
  )
  expect(answers.map(({ status }) => status)).toEqual(answers.map(() => 200))
  await house.projected()
  const facts = (await house.eventsOf(partner.organizationId)).filter(({ type }) => type === 'KeyUsed')
  expect(facts).toHaveLength(40)
  const { rows } = await house.foundation.pool.query<{ day: string; calls: string; last: Date }>(
    `select day::text as day, sum(calls)::text as calls,
            (select max(effective_at) from ledger_lines where organization_id = $1 and kind = 'call') as last
       from usage_days where organization_id = $1 group by day`,
    [partner.organizationId],
  )
  const last =
    facts
      .map(({ metadata }) => metadata.effective_at)
      .toSorted()
      .at(-1) ?? ''
  expect(rows).toEqual([{ day: last.slice(0, 10), calls: '40', last: new Date(last) }])
})
