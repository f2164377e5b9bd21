import type pg from 'pg'
import { PgBoss } from 'pg-boss'
import type { Logger } from 'pino'
import { createOutage } from '../concurrency/outage.ts'

/** The application name of the connections that run jobs. */
export const jobsApplication = 'jobs'

const stopTimeoutMs = 2_000

/** Opens a connection that can request jobs, but runs none. A migration must have created the queue's schema. */
export const openBoss = async (
  url: string,
  logger: Logger,
): Promise<{ readonly boss: PgBoss; close(): Promise<void> }> => {
  const boss = new PgBoss({
    connectionString: url,
    application_name: 'job-queue',
    max: 1,
    supervise: false,
    schedule: false,
    createSchema: false,
  })
  boss.on('error', createOutage({ logger, what: 'job queue' }).failed)
  await boss.start()
  return { boss, close: () => boss.stop({ graceful: false, timeout: stopTimeoutMs }) }
}

/**
 * Lets workers look for these jobs now instead of within 30 s. pg-boss notifies workers of a new job, but not of a retried one.
 */
export const wakeWorkers = async (pool: Pick<pg.Pool, 'query'>, jobs: readonly string[]): Promise<void> => {
  await pool.query(
    `select pg_notify('pgboss_' || left(encode(sha224('pgboss'::bytea), 'hex'), 24), job) from unnest($1::text[]) job`,
    [jobs],
  )
}
