/**
 * One PostgreSQL server for the whole test run, with the template databases that tests clone. Its settings make it fast but not
 * durable, and its files are in memory if there is enough of it.
 */
import { existsSync } from 'node:fs'
import { access, constants, mkdtemp, readdir, readFile, rm, stat, statfs, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import pg from 'pg'
import type { TestProject } from 'vitest/node'
import { projections } from '../../projections/index.ts'
import { startEmbeddedPostgres } from '../../src/foundation/embedded/server.ts'
import { migrate } from '../../src/foundation/migrate.ts'
import { prepareProjections } from '../../src/projector/tables.ts'

declare module 'vitest' {
  interface ProvidedContext {
    /** The URL of the run's server, for a superuser. Tests do not use its database `enrichment`. */
    postgresUrl: string
    /** The databases that tests clone. They accept no connections. */
    postgresTemplates: Templates
  }
}

export type Templates = {
  /** All migrations, but no rows. */
  readonly migrated: string
  /** All migrations and the tables of the read models, which belong to the superuser. */
  readonly prepared: string
  /** All migrations, the tables of the read models, and the rights of a service with its own role. */
  readonly separated: string
}

/** With these settings, data is lost only on a power failure, which ends the test run anyway. */
const fast = {
  fsync: 'off',
  synchronous_commit: 'off',
  full_page_writes: 'off',
  shared_buffers: '64MB',
  // Journeys of several processes run three at a time.
  max_connections: '500',
  max_wal_size: '256MB',
  min_wal_size: '80MB',
  // Its processes start thousands of times, and need not show their work in their titles.
  update_process_title: 'off',
  // Databases live for seconds, too short for statistics and vacuums.
  autovacuum: 'off',
  io_method: 'sync',
  log_min_messages: 'fatal',
  log_min_error_statement: 'fatal',
}

const templates: Templates = {
  migrated: 'template_migrated',
  prepared: 'template_prepared',
  separated: 'template_separated',
}
/** The service's role, if a test separates it from the owner. Migrations grant it rights, so it must exist. */
const serviceRole = 'test_service'

/** Linux keeps the files of this directory in memory. In a container its default size is 64 MB, which is too small. */
const memoryDir = '/dev/shm'
export const prefix = 'enrichment-test-'
const memoryBytesMin = 4 * 1024 ** 3

const leftAfterMs = 3_600_000

/**
 * Removes the files that killed runs left in memory, because they would stay until a reboot. The files of a running server are
 * not removed.
 */
const removeLeft = async (): Promise<void> => {
  for (const name of await readdir(memoryDir)) {
    if (!name.startsWith(prefix)) continue
    const dir = join(memoryDir, name)
    const { mtimeMs } = await stat(dir).catch(() => ({ mtimeMs: Date.now() }))
    if (Date.now() - mtimeMs < leftAfterMs) continue
    const lines = await readFile(join(dir, 'postgres', 'postmaster.pid'), 'utf8').catch(() => '')
    if (existsSync(`/proc/${Number(lines.split('\n')[0]) || 'none'}`)) continue
    await rm(dir, { recursive: true, force: true }).catch(() => undefined)
  }
}

/** Returns the fastest directory for database files. The tests create hundreds of databases, which is several times faster in memory. */
export const fastestDir = async (): Promise<string> => {
  try {
    await access(memoryDir, constants.W_OK)
    await removeLeft()
    const { bavail, bsize } = await statfs(memoryDir)
    return bavail * bsize >= memoryBytesMin ? memoryDir : tmpdir()
  } catch {
    return tmpdir()
  }
}

export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const dataDir = await mkdtemp(join(await fastestDir(), prefix))
  const removeDir = () => rm(dataDir, { recursive: true, force: true })
  try {
    const postgres = await startEmbeddedPostgres({ dataDir, settings: fast })
    const teardown = async () => {
      await postgres.stop()
      await removeDir()
    }
    try {
      // Connections are opened thousands of times, and checking a password takes longer than the rest.
      await writeFile(join(dataDir, 'postgres', 'pg_hba.conf'), 'host all all 127.0.0.1/32 trust\n')
      await asking(postgres.url, (client) => client.query('select pg_reload_conf()'))
      await createTemplates(postgres.url)
    } catch (error) {
      await postgres.stop()
      throw error
    }
    project.provide('postgresUrl', postgres.url)
    project.provide('postgresTemplates', templates)
    return teardown
  } catch (error) {
    await removeDir()
    throw error
  }
}

async function createTemplates(url: string): Promise<void> {
  const at = (database: string, role?: string): string => {
    const named = new URL(url)
    named.pathname = `/${database}`
    if (role !== undefined) named.username = named.password = role
    return named.href
  }
  const { migrated, prepared, separated } = templates
  await asking(url, async (client) => {
    await client.query(`create database ${migrated}`)
    await client.query(`create role ${serviceRole} login password '${serviceRole}'`)
  })
  await migrate({ url: at(migrated) })
  await asking(url, async (client) => {
    for (const name of [prepared, separated]) {
      await client.query(`create database ${name} template ${migrated}`)
      await client.query(`alter database ${name} set search_path = projections, public`)
    }
  })
  await asking(at(prepared), (client) => prepareProjections(client, projections))
  await migrate({ url: at(separated), serviceUrl: at(separated, serviceRole) })
  await asking(at(separated, serviceRole), (client) => prepareProjections(client, projections))
  // The first connection after a change writes a cache of the catalogue. The clones copy that file, so their connections are faster.
  for (const name of [migrated, prepared, separated]) await asking(at(name), async () => undefined)
}

const asking = async (url: string, ask: (client: pg.Client) => Promise<unknown>): Promise<void> => {
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  try {
    await ask(client)
  } finally {
    await client.end()
  }
}
