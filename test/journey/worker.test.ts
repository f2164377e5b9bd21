import pg from 'pg'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { type TestDatabase, testDatabase } from '../support/postgres.ts'
import { cliJson, eventually, type ServiceProcess, startWorker } from '../support/service.ts'

/** Workers as real processes: one folds the event log into rows, the others wait to replace it. */

/** A killed projector is replaced within 15 seconds. */
const replacedWithinMs = 15_000

let database: TestDatabase
let pool: pg.Pool
let environment: Record<string, string>
const workers: ServiceProcess[] = []

beforeAll(async () => {
  database = await testDatabase()
  pool = new pg.Pool({ connectionString: database.url, max: 1 })
  environment = {
    DATABASE_URL: database.url,
    SECRET_KEY: 'a secret of the test, long enough to be one',
  }
})

afterAll(async () => {
  await Promise.all(workers.map((worker) => worker.end('SIGKILL')))
  await pool?.end()
  await database?.drop()
})

/** The owner and epoch of the lease. The owner begins with the id of the process. */
const lease = async (): Promise<{ pid: number; epoch: number } | undefined> => {
  const { rows } = await pool.query<{ owner: string; epoch: string }>(
    `select owner, epoch from leases where name = 'projector'`,
  )
  const [held] = rows
  return held && { pid: Number(held.owner.split('-')[0]), epoch: Number(held.epoch) }
}

/** Writes a fact from outside, and resolves when it is in the rows. */
const projected = async (name: string, deadlineMs: number): Promise<void> => {
  const { organization_id: id } = await cliJson<{ organization_id: string }>(
    ['org', 'create', name],
    environment,
  )
  await eventually(
    async () =>
      (await pool.query('select 1 from accounts where organization_id = $1', [id])).rows[0] as unknown,
    deadlineMs,
  )
}

test('a killed worker is replaced by a waiting one within 15 seconds; no fact is lost or folded twice', async () => {
  const first = startWorker(environment)
  workers.push(first)
  const held = await eventually(lease, 30_000)
  expect(held.pid).toBe(first.child.pid)
  await projected('Before', 30_000)
  const second = startWorker(environment)
  workers.push(second)
  // It asks for the lease over its own connection, and does not get it.
  await eventually(async () => {
    const { rows } = await pool.query(
      `select 1 from pg_stat_activity where datname = current_database() and query like 'insert into leases%'`,
    )
    return rows.length >= 2 ? true : undefined
  })
  expect(await lease()).toEqual(held)

  const killedAt = performance.now()
  expect(await first.end('SIGKILL')).toBe('SIGKILL')
  await projected('After', replacedWithinMs)
  expect(performance.now() - killedAt).toBeLessThan(replacedWithinMs)
  expect(await lease()).toEqual({ pid: second.child.pid, epoch: held.epoch + 1 })
  expect(
    (await pool.query<{ name: string }>('select name from accounts order by name')).rows.map(
      ({ name }) => name,
    ),
  ).toEqual(['After', 'Before'])
  expect(await second.end('SIGTERM')).toBe(0)
  const verified = await cliJson<{ ok: boolean }[]>(['projection', 'verify', '--all'], environment)
  expect(verified.every(({ ok }) => ok)).toBe(true)
})
