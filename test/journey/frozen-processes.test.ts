/** A process that is frozen for longer than its lease, as when its machine is suspended, and then continues. */
import pg from 'pg'
import { expect, test } from 'vitest'
import { testDatabase } from '../support/postgres.ts'
import { cliJson, createPartner, eventually, lookup, startService, startWorker } from '../support/service.ts'

/** The server ends the transaction after 30 s. The rest is for starting a process on a busy machine. */
const takeOverMaxMs = 120_000

test('a projector that is frozen in the middle of a transaction is replaced, and writes nothing when it continues', async () => {
  const database = await testDatabase()
  const environment = {
    DATABASE_URL: database.url,
    SECRET_KEY: 'a secret of the test, long enough to be one',
  }
  const pool = new pg.Pool({ connectionString: database.url, max: 2 })
  const rowsOf = async (text: string): Promise<unknown[]> => (await pool.query(text)).rows
  const service = await startService({ ...environment, ROLES: 'api' })
  const first = startWorker(environment)
  let second: ReturnType<typeof startWorker> | undefined
  const callsInRows = async (): Promise<number> => {
    const [row] = await rowsOf('select coalesce(sum(calls), 0)::int as n from projections.key_usage')
    return (row as { n: number }).n
  }
  try {
    const { apiKey, organizationId } = await createPartner('1000', environment)
    const call = async (): Promise<void> =>
      void (await eventually(async () =>
        (await lookup(service.apiUrl, apiKey, '8.8.8.8')).status === 200 ? true : undefined,
      ))
    await call()
    await eventually(async () => ((await callsInRows()) === 1 ? true : undefined))

    const blocker = await pool.connect()
    await blocker.query('begin')
    await blocker.query('lock table projections.accounts_v1 in exclusive mode')
    await call()
    const waiting = `select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`
    await eventually(async () => ((await rowsOf(waiting)).length > 0 ? true : undefined))
    first.child.kill('SIGSTOP')
    await blocker.query('rollback')
    blocker.release()
    // The server completes the statement, and the frozen process holds the locks of its transaction.
    const open = `select from pg_stat_activity where datname = current_database() and state = 'idle in transaction'`
    await eventually(async () => ((await rowsOf(open)).length > 0 ? true : undefined))

    second = startWorker(environment)
    await eventually(async () => ((await callsInRows()) === 2 ? true : undefined), takeOverMaxMs)
    const leases = `select owner, epoch from leases where name = 'projector'`
    const taken = await rowsOf(leases)
    first.child.kill('SIGCONT')
    await eventually(async () => (first.output().includes('fails') ? true : undefined))
    await call()
    await eventually(async () => ((await callsInRows()) === 3 ? true : undefined))
    expect(await rowsOf(leases)).toEqual(taken)
    const verified = await cliJson<{ ok: boolean }[]>(['projection', 'verify', '--all'], environment)
    expect(verified.filter(({ ok }) => !ok)).toEqual([])
    expect(verified.length).toBeGreaterThan(0)
    expect(await cliJson(['credits', 'balance', organizationId], environment)).toMatchObject({
      balance: '997',
    })
  } finally {
    first.child.kill('SIGCONT')
    await pool.end()
    for (const process of [first, second, service]) await process?.end('SIGTERM')
    await database.drop()
  }
})
