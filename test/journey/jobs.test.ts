import { once } from 'node:events'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { type TestDatabase, testDatabase } from '../support/postgres.ts'
import { cli, cliJson, eventually, type ServiceProcess, startCli, startWorker } from '../support/service.ts'

/** Jobs on the command line, while another process runs them. */

let database: TestDatabase
let environment: Record<string, string>
let worker: ServiceProcess

type Listed = {
  name: string
  last_outcome: string | null
  next_run_at: string
  failed_24h: number
  dead_letters: number
}

beforeAll(async () => {
  database = await testDatabase()
  environment = { DATABASE_URL: database.url, SECRET_KEY: 'a secret of the test, long enough to be one' }
})

afterAll(async () => {
  await worker?.end('SIGKILL')
  await database?.drop()
})

test('a job is listed and run immediately, and the exit code shows failure or success', async () => {
  worker = startWorker({ ...environment, ROLES: 'jobs,projector' })
  await eventually(
    async () => ((await cliJson<Listed[]>(['jobs', 'list'], environment)).length > 7 ? true : undefined),
    30_000,
  )

  const wrong = await cli(['jobs', 'run', 'checkpiont'], environment)
  expect(wrong.code).toBe(2)
  expect(wrong.err).toContain('there is no job "checkpiont"; did you mean checkpoint?')

  const ran = await cliJson<{ succeeded: boolean; duration_seconds: number }>(
    ['jobs', 'run', 'forget-answers'],
    environment,
  )
  expect(ran).toMatchObject({ job: 'forget-answers', succeeded: true, error: null, result: '{"did": 0}' })
  const listed = await cliJson<Listed[]>(['jobs', 'list'], environment)
  const job = listed.find(({ name }) => name === 'forget-answers')
  expect(job).toMatchObject({ cron: '17 * * * *', last_outcome: 'succeeded', failed_24h: 0, dead_letters: 0 })
  expect(Date.parse(job?.next_run_at ?? '')).toBeGreaterThan(Date.now())
  expect(new Date(job?.next_run_at ?? '').getUTCMinutes()).toBe(17)
  expect((await cli(['jobs', 'dead'], environment)).out).toBe('there are no dead letters\n')
  const none = await cli(['jobs', 'retry', '--all'], environment)
  expect(none).toMatchObject({ code: 1, err: 'there are no dead letters\n' })
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
