/**
 * One PostgreSQL for the whole run, in a temporary directory, fast instead of durable, with a migrated template database that
 * `testDatabase()` clones.
 */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import pg from 'pg'
import type { TestProject } from 'vitest/node'
import { startEmbeddedPostgres } from '../../src/foundation/embedded/embedded-postgres.ts'
import { migrate } from '../../src/foundation/migrate.ts'

declare module 'vitest' {
  interface ProvidedContext {
    /** Superuser connection to the run's server; database `enrichment`, which no test uses. */
    postgresUrl: string
    /** Name of the migrated database that tests clone. Nobody may be connected to it. */
    postgresTemplate: string
  }
}

/** Loses data on a power cut only, which ends the test run anyway. */
const FAST = {
  fsync: 'off',
  synchronous_commit: 'off',
  full_page_writes: 'off',
  shared_buffers: '64MB',
  log_min_messages: 'fatal',
  log_min_error_statement: 'fatal',
}

const TEMPLATE = 'template_migrated'
/** What the service runs as where a test gives it a role of its own; a database grants it something when it is migrated. */
const SERVICE_ROLE = 'test_service'

export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const dataDir = await mkdtemp(join(tmpdir(), 'enrichment-test-'))
  const removeDir = () => rm(dataDir, { recursive: true, force: true })
  try {
    const postgres = await startEmbeddedPostgres({ dataDir, settings: FAST })
    const teardown = async () => {
      await postgres.stop()
      await removeDir()
    }
    try {
      await createTemplate(postgres.url)
    } catch (error) {
      await postgres.stop()
      throw error
    }
    project.provide('postgresUrl', postgres.url)
    project.provide('postgresTemplate', TEMPLATE)
    return teardown
  } catch (error) {
    await removeDir()
    throw error
  }
}

async function createTemplate(url: string): Promise<void> {
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  try {
    await client.query(`create database ${TEMPLATE}`)
    await client.query(`create role ${SERVICE_ROLE} login password '${SERVICE_ROLE}'`)
  } finally {
    await client.end()
  }
  const templateUrl = new URL(url)
  templateUrl.pathname = `/${TEMPLATE}`
  await migrate({ url: templateUrl.href })
}
