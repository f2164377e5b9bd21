/** Databases for tests: real PostgreSQL, migrated, one per caller, independent of every other. */
import { randomBytes } from 'node:crypto'
import { rm } from 'node:fs/promises'
import { setTimeout as sleep } from 'node:timers/promises'
import pg from 'pg'
import { inject } from 'vitest'
// For its declaration of what the run provides.
import type {} from './global-setup.ts'
import { keyDirOf } from './key-dir.ts'
import { cutLog } from './segments.ts'

export type TestDatabase = {
  /** Superuser connection to a database nobody else uses. */
  url: string
  /** The same by the role the service runs as, once a foundation was opened with both. */
  serviceUrl: string
  /** Where the keys of what is sealed in it are; made when the first is. */
  keyDir: string
  /** Drops it, ending whatever is still connected. May be called twice. */
  drop(): Promise<void>
}

/**
 * A fresh database with every migration applied and no rows. Takes some tens of milliseconds; one per test file is the custom.
 * Throws when the run was started without `test/vitest.config.ts`, whose global setup starts the server.
 */
export async function testDatabase(): Promise<TestDatabase> {
  return await createTestDatabase(inject('postgresTemplates').migrated)
}

/**
 * The same with the tables of the read models, as the first start of a service makes them: by the superuser, or by the role that
 * the service has to itself. What a start does to a database that lacks them is tested over `testDatabase()`.
 */
export async function preparedDatabase({ separated = false } = {}): Promise<TestDatabase> {
  const templates = inject('postgresTemplates')
  return await createTestDatabase(separated ? templates.separated : templates.prepared)
}

/** The same without migrations: for tests of what comes before them. */
export async function emptyDatabase(): Promise<TestDatabase> {
  return await createTestDatabase('template0')
}

async function createTestDatabase(template: string): Promise<TestDatabase> {
  const admin = asAdmin()
  const name = `test_${process.pid}_${randomBytes(4).toString('hex')}`
  // Copying the files costs a fifth of writing every page to the write-ahead log.
  await admin.query(`create database ${name} template ${template} strategy file_copy`)
  // What a database says about itself is not cloned with it; a foundation would set the same.
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
 * A pool has ended before the server has let go of its connections: one that is ended by force meanwhile is an error that no one
 * listens to any more. Those that stay are ended all the same.
 */
async function left(admin: pg.Pool, name: string): Promise<void> {
  for (const until = performance.now() + leavingMs; performance.now() < until; await sleep(10)) {
    const { rows } = await admin.query('select from pg_stat_activity where datname = $1 limit 1', [name])
    if (rows.length === 0) return
  }
}

const leavingMs = 500

/** One connection for all databases of this process: making one takes a fifth of the time of making a database. */
let admin: pg.Pool | undefined

function asAdmin(): pg.Pool {
  const url = inject('postgresUrl')
  if (url === undefined) throw new Error('No test server. Run: vitest run --config test/vitest.config.ts')
  if (admin === undefined) {
    admin = new pg.Pool({ connectionString: url, max: 2, idleTimeoutMillis: 0, allowExitOnIdle: true })
    // The server ends before this process does.
    admin.on('error', () => undefined)
  }
  return admin
}

/** Restores the event log in a database, in place, from a copy made when it ended at `position`. */
export const restorePostgresLog = async (url: string, position: bigint): Promise<void> => {
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  try {
    await client.query('begin')
    await client.query('lock table log_head in exclusive mode')
    await cutLog(client, position)
    await client.query('commit')
  } finally {
    await client.end()
  }
}
