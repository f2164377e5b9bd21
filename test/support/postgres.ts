/** Databases for tests in a real PostgreSQL. Each caller gets its own migrated database. */
import { randomBytes } from 'node:crypto'
import { rm } from 'node:fs/promises'
import { setTimeout as sleep } from 'node:timers/promises'
import pg from 'pg'
import { afterAll, inject } from 'vitest'
// Declares the types of the values that the run provides.
import type {} from './global-setup.ts'
import { keyDirOf } from './key-dir.ts'
import { cutLog } from './segments.ts'

export type TestDatabase = {
  /** The URL of the caller's own database, for a superuser. */
  url: string
  /** The URL of the database for the service's role. It works once a foundation has been opened with both URLs. */
  serviceUrl: string
  /** The directory of the keys for sealed data. It is created with the first key. */
  keyDir: string
  /** Drops the database and ends all remaining connections. Can be called twice. */
  drop(): Promise<void>
}

/**
 * A fresh database with every migration applied and no rows. Creating it takes a few dozen milliseconds; most test files create
 * one. Throws if the run was started without `test/vitest.config.ts`, whose global setup starts the server.
 */
export async function testDatabase(): Promise<TestDatabase> {
  return await createTestDatabase(inject('postgresTemplates').migrated)
}

/**
 * A database that also has the tables of the read models, as after the first start of a service. With `separated`, the service
 * has its own role; otherwise it is the superuser. Starts without those tables are tested with `testDatabase()`.
 */
export async function preparedDatabase({ separated = false } = {}): Promise<TestDatabase> {
  const templates = inject('postgresTemplates')
  return await createTestDatabase(separated ? templates.separated : templates.prepared)
}

/** A database with a pool of connections for all tests of a file. They close after the last test. */
export async function databaseForFile({
  open = testDatabase,
  max = 4,
}: {
  readonly open?: () => Promise<TestDatabase>
  readonly max?: number
} = {}): Promise<TestDatabase & { readonly pool: pg.Pool }> {
  const database = await open()
  const pool = new pg.Pool({ connectionString: database.url, max })
  // The database can be dropped before the server has released a connection.
  pool.on('error', () => undefined)
  afterAll(async () => {
    await pool.end()
    await database.drop()
  })
  return { ...database, pool }
}

/** A database without migrations, for tests of the steps before them. */
export async function emptyDatabase(): Promise<TestDatabase> {
  return await createTestDatabase('template0')
}

async function createTestDatabase(template: string): Promise<TestDatabase> {
  const admin = asAdmin()
  const name = `test_${process.pid}_${randomBytes(4).toString('hex')}`
  // Copying the files takes a fifth of the time of the default strategy, which writes every page to the write-ahead log.
  await admin.query(`create database ${name} template ${template} strategy file_copy`)
  // A clone does not inherit its template's settings. Opening a foundation would set these values.
  if (template !== 'template0')
    await admin.query(`alter database ${name} set search_path = projections, public`)
  const url = new URL(inject('postgresUrl'))
  url.pathname = `/${name}`
  const keyDir = keyDirOf(url.href)
  const service = new URL(url)
  service.username = 'test_service'
  service.password = 'test_service'
  return {
    url: url.href,
    serviceUrl: service.href,
    keyDir,
    drop: async () => {
      await left(admin, name)
      await admin.query(`drop database if exists ${name} with (force)`)
      await rm(keyDir, { recursive: true, force: true })
    },
  }
}

/**
 * The server closes connections shortly after their pool has ended. If the database were dropped earlier, they would fail with an
 * error that no code handles. Connections that remain after this wait are ended by force.
 */
async function left(admin: pg.Pool, name: string): Promise<void> {
  for (const until = performance.now() + leavingMs; performance.now() < until; await sleep(10)) {
    const { rows } = await admin.query('select from pg_stat_activity where datname = $1 limit 1', [name])
    if (rows.length === 0) return
  }
}

const leavingMs = 500

/** One connection for all databases of this process: opening a connection takes a fifth as long as creating a database. */
let admin: pg.Pool | undefined

function asAdmin(): pg.Pool {
  const url = inject('postgresUrl')
  if (url === undefined) throw new Error('No test server. Run: vitest run --config test/vitest.config.ts')
  if (admin === undefined) {
    admin = new pg.Pool({ connectionString: url, max: 2, idleTimeoutMillis: 0, allowExitOnIdle: true })
    // The server stops before this process ends, so this connection breaks.
    admin.on('error', () => undefined)
  }
  return admin
}

/** A database for all tests of a file, and the variables for processes that use it. */
export const variablesForFile = async () => {
  const { url, pool } = await databaseForFile()
  const SECRET_KEY = 'a secret of the test, long enough to be one'
  return { pool, environment: { DATABASE_URL: url, SECRET_KEY } }
}

/** Restores the event log in a database, in place, from a copy made when it ended at `position`. */
export const restorePostgresLog = async (url: string, position: bigint): Promise<void> => {
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  try {
    await client.query('begin')
    await client.query('lock table log_mark in exclusive mode')
    await cutLog(client, position)
    await client.query('commit')
  } finally {
    await client.end()
  }
}
