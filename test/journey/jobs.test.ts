import { once } from 'node:events'
import { afterAll, expect, test } from 'vitest'
import { testDatabase } from '../support/postgres.ts'
import { cliJson, eventually, startCli, startWorker } from '../support/service.ts'

/** Jobs on the command line, while another process runs them. */

type Listed = { name: string; last_outcome: string | null }

const database = await testDatabase()
const environment = { DATABASE_URL: database.url, SECRET_KEY: 'a secret of the test, long enough to be one' }
const worker = startWorker({ ...environment, ROLES: 'jobs,projector' })
await eventually(async () =>
  (await cliJson<Listed[]>(['jobs', 'list'], environment)).length > 7 ? true : undefined,
)

afterAll(async () => {
  await worker.end('SIGKILL')
  await database.drop()
})

test('a failed job: exit code 1, a dead letter with the error, and a retry that succeeds', async () => {
  const pg = await import('pg')
  const client = new pg.default.Client({ connectionString: database.url })
  await client.connect()
  try {
    await client.query('begin')
    await client.query('alter table idempotent_calls rename to idempotent_calls_away')
    const { child, ended } = startCli(['jobs', 'run', 'forget-answers', '--json'], environment)
    // The lock on the table holds the run back until the run has written its progress.
    if (child.stderr !== null) await once(child.stderr, 'data')
    await client.query('commit')
    const failed = await ended
    expect(failed.code).toBe(1)
    expect(JSON.parse(failed.out)).toMatchObject({
      succeeded: false,
      error: 'relation "idempotent_calls" does not exist',
    })
    expect(failed.err).toMatch(/^\{"job":"forget-answers","state":"(waiting|running)","seconds":\d+\}\n/)
    const [letter] = await cliJson<{ id: string }[]>(['jobs', 'dead', 'forget-answers'], environment)
    expect(letter).toMatchObject({
      job: 'forget-answers',
      error: 'relation "idempotent_calls" does not exist',
    })
    await client.query('alter table idempotent_calls_away rename to idempotent_calls')
    expect(await cliJson(['jobs', 'retry', letter?.id ?? ''], environment)).toEqual({
      retried: [{ job: 'forget-answers', runs: 1 }],
    })
    await eventually(async () => {
      const listed = await cliJson<Listed[]>(['jobs', 'list'], environment)
      return listed.find(({ name }) => name === 'forget-answers')?.last_outcome === 'succeeded'
        ? true
        : undefined
    })
  } finally {
    await client.end()
  }
})
