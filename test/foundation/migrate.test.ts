/** Migrations are applied once, in order, completely or not at all, and never to a database with another history. */
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import pg from 'pg'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { migrate } from '../../src/foundation/migrate.ts'
import { emptyDatabase, type TestDatabase, testDatabase } from '../support/postgres.ts'

let database: TestDatabase
let dir = ''

beforeEach(async () => {
  database = await emptyDatabase()
  dir = await mkdtemp(join(tmpdir(), 'enrichment-migrations-'))
})

afterEach(async () => {
  await database.drop()
  await rm(dir, { recursive: true, force: true })
})

describe('applying', () => {
  test('files are applied in order, recorded with their checksum, and not applied again', async () => {
    await file('0002_fill.sql', `insert into a values (1); insert into a values (2); -- a ; and a 'quote`)
    await file('0001_create.sql', 'create table a (n int);')
    await file('README.md', 'not a migration')
    expect(await run()).toEqual({ applied: ['0001_create.sql', '0002_fill.sql'] })
    expect(
      await rows(
        'select number, name, length(sha256) as digits, applied_at <= now() as past from schema_migrations order by 1',
      ),
    ).toEqual([
      { number: 1, name: '0001_create.sql', digits: 64, past: true },
      { number: 2, name: '0002_fill.sql', digits: 64, past: true },
    ])
    expect(await run()).toEqual({ applied: [] })
    await file('0003_more.sql', 'insert into a values (3)')
    expect(await run()).toEqual({ applied: ['0003_more.sql'] })
    expect(await rows('select n from a order by n')).toEqual([{ n: 1 }, { n: 2 }, { n: 3 }])
  })

  test('an empty directory migrates nothing', async () => {
    expect(await run()).toEqual({ applied: [] })
  })

  test('with five simultaneous runners, each file is applied by exactly one', async () => {
    await file('0001_create.sql', 'create table a (n int)')
    await file('0002_fill.sql', 'insert into a select 1 from pg_sleep(0.05)')
    const results = await Promise.all([1, 2, 3, 4, 5].map(run))
    expect(results.flatMap(({ applied }) => applied)).toEqual(['0001_create.sql', '0002_fill.sql'])
    expect(await rows('select n from a')).toEqual([{ n: 1 }])
  })

  test('a runner that loses its connection while it waits for another one names that reason', async () => {
    const other = await connected(database.url)
    // The lock that every runner takes.
    await other.query('select pg_advisory_lock(7220186521)')
    const waiting = run()
    waiting.catch(() => undefined)
    const end = `
      select pg_terminate_backend(pid) as ended from pg_locks
       where locktype = 'advisory' and not granted and database = (select oid from pg_database where datname = current_database())`
    await expect.poll(() => rows(end)).toEqual([{ ended: true }])
    await expect(waiting).rejects.toThrow(/^terminating connection due to administrator command$/)
    await other.end()
  })

  test('the server ends the connection of a process that is frozen while it migrates', async () => {
    const seen = `insert into a select name, setting from pg_settings where name like 'idle\\_%session\\_timeout'`
    await file(
      '0001_first.sql',
      `create table a (name text, setting text); ${seen}; set idle_session_timeout = 0`,
    )
    await file('0002_second.sql', seen)
    await run()
    const settings = ['idle_in_transaction_session_timeout', 'idle_session_timeout']
    expect(await rows('select name, setting from a order by name, setting')).toEqual(
      settings.flatMap((name) => [1, 2].map(() => ({ name, setting: '30000' }))),
    )
  })

  test('a schema whose name needs quotes is found again, also if the database quotes every name', async () => {
    const name = new URL(database.url).pathname.slice(1)
    await rows(`
      create schema "My-App"; alter database ${name} set search_path = "My-App"; alter database ${name} set quote_all_identifiers = on`)
    const withRoles = () => migrate({ url: database.url, serviceUrl: database.url })
    expect(await withRoles()).toEqual({ applied: expect.arrayContaining(['0001_event_log.sql']) })
    expect(await withRoles()).toEqual({ applied: [] })
    expect(
      await rows(
        `select count(*)::int as tables from pg_tables where schemaname = 'My-App' and tablename in ('log_mark', 'schema_migrations')`,
      ),
    ).toEqual([{ tables: 2 }])
    expect(await rows('select current_schemas(false)::text as path')).toEqual([
      { path: '{projections,My-App}' },
    ])
  })

  test('a failing file leaves nothing behind, keeps the ones before it, and is applied once corrected', async () => {
    await file('0001_create.sql', 'create table a (n int)')
    await file('0002_broken.sql', 'create table b (n int);\n\ninsert into nowhere values (1);')
    await expect(run()).rejects.toThrow(
      /0002_broken\.sql failed at line 3: relation "nowhere" does not exist\. It was rolled back/,
    )
    expect(await rows(`select to_regclass('b') as b`)).toEqual([{ b: null }])
    expect(await rows('select name from schema_migrations')).toEqual([{ name: '0001_create.sql' }])
    await file('0002_broken.sql', 'create table b (n int)')
    expect(await run()).toEqual({ applied: ['0002_broken.sql'] })
  })

  test('a file that ends the transaction by itself is refused', async () => {
    await file('0001_commits.sql', 'create table a (n int); commit; create table b (n int)')
    await expect(run()).rejects.toThrow(/0001_commits\.sql.*must not contain begin, commit or rollback/)
    expect(
      await rows(`select to_regclass('a') as a, to_regclass('schema_migrations') is not null as kept`),
    ).toEqual([{ a: null, kept: true }])
  })

  test('an unreachable database is an error', async () => {
    const url = new URL(database.url)
    url.pathname = '/does_not_exist'
    await expect(migrate({ url: url.href, dir })).rejects.toThrow(/does_not_exist/)
  })
})

test.each(['LATIN1', 'SQL_ASCII'])(
  'a database with the encoding %s is refused and left empty',
  async (encoding) => {
    const name = `test_encoding_${encoding.toLowerCase()}_${process.pid}`
    const url = new URL(database.url)
    url.pathname = `/${name}`
    await rows(
      `create database ${name} template template0 encoding '${encoding}' locale_provider libc locale 'C'`,
    )
    try {
      await file('0001_create.sql', 'create table a (n int)')
      await expect(migrate({ url: url.href, dir })).rejects.toThrow(
        `the database ${name} has the encoding ${encoding}, which cannot store all text. Create it with UTF8`,
      )
      const client = new pg.Client({ connectionString: url.href })
      await client.connect()
      const made = await client.query(`select from pg_class where relnamespace = 'public'::regnamespace`)
      await client.end()
      expect(made.rows).toEqual([])
    } finally {
      await rows(`drop database ${name} with (force)`)
    }
  },
)

describe('a database with another history is refused', () => {
  beforeEach(async () => {
    await file('0001_create.sql', 'create table a (n int)')
    await file('0002_more.sql', 'create table b (n int)')
  })

  test('an applied file was edited', async () => {
    await run()
    await file('0001_create.sql', 'create table a (n bigint)')
    await expect(run()).rejects.toThrow(/0001_create\.sql differs from .* Restore the original file/)
  })

  test('a release before 1.0 migrated the database', async () => {
    await run()
    await file('0002_another.sql', 'create table c (n int)')
    await rm(join(dir, '0002_more.sql'))
    await expect(run()).rejects.toThrow(
      'it was migrated by a release before 1.0 and cannot be used with this release. Use an empty database or DATA_DIR. Nothing was changed.',
    )
    expect(await rows(`select to_regclass('c') as c`)).toEqual([{ c: null }])
  })

  test('the database has a migration this version does not know', async () => {
    await run()
    await rm(join(dir, '0002_more.sql'))
    await expect(run()).rejects.toThrow(
      /migration 0002_more\.sql, which is not in .*Start that version or a later one/,
    )
  })

  test('a number is missing', async () => {
    await file('0004_late.sql', 'select 1')
    await expect(run()).rejects.toThrow(/0004_late\.sql: number 0003 is missing before it/)
  })

  test('a number is used twice', async () => {
    await file('0002_other.sql', 'select 1')
    await expect(run()).rejects.toThrow(/0002_more\.sql and .*0002_other\.sql have the same number/)
  })

  test('a name does not have the form of a migration', async () => {
    await file('3-late.sql', 'select 1')
    await expect(run()).rejects.toThrow(/3-late\.sql does not have the name of a migration/)
  })

  test('a row was deleted from the middle of the record', async () => {
    await run()
    await rows('delete from schema_migrations where number = 1')
    await expect(run()).rejects.toThrow(
      /0001_create\.sql was never applied to this database, but later migrations were/,
    )
  })

  test('all these refusals leave the database unchanged', async () => {
    await file('0004_late.sql', 'select 1')
    await expect(run()).rejects.toThrow()
    expect(await rows(`select to_regclass('a') as a`)).toEqual([{ a: null }])
  })
})

describe('test databases', () => {
  test('are migrated, independent of each other, and removed when dropped', async () => {
    const [one, two] = await Promise.all([testDatabase(), testDatabase()])
    expect(await migrate({ url: one.url })).toEqual({ applied: [] })
    await rows('create table only_here (n int)', one.url)
    expect(await rows(`select to_regclass('only_here') as found`, two.url)).toEqual([{ found: null }])
    const open = await connected(two.url)
    await Promise.all([one.drop(), two.drop()])
    await two.drop()
    await expect(open.query('select 1')).rejects.toThrow()
    await expect(rows('select 1', one.url)).rejects.toThrow(/does not exist/)
  })
})

const run = () => migrate({ url: database.url, dir })

const file = (name: string, sql: string) => writeFile(join(dir, name), sql)

async function connected(url: string): Promise<pg.Client> {
  const client = new pg.Client({ connectionString: url })
  client.on('error', () => {})
  await client.connect()
  return client
}

async function rows(statement: string, url = database.url): Promise<unknown[]> {
  const client = await connected(url)
  try {
    return (await client.query<Record<string, unknown>>(statement)).rows
  } finally {
    await client.end()
  }
}
