/** Work that one process requests and another executes: how much of it waits, when it is executed, and how often. */
import pg from 'pg'
import { afterAll, expect, test } from 'vitest'
import { openJobQueue } from '../../src/jobs/queue.ts'
import { type Jobs, startJobs } from '../../src/jobs/run.ts'
import { houseForFile, until } from '../support/house.ts'
import { logger } from '../support/logger.ts'

const house = await houseForFile()
const queue = openJobQueue(house.foundation.url, logger)
afterAll(() => queue?.close())

const jobsOf = (name: string) =>
  house.query(
    `select state, singleton_key as key, data->>'data' as data, retry_limit from pgboss.job where name = $1
      order by created_on`,
    [name],
  )

type Run = (data: string) => Promise<unknown>

const start = (name: string, run: Run, more: { concurrencyMax?: number; expireSeconds?: number } = {}) => {
  const jobs = { [name]: { run, concurrencyMax: 1, expireSeconds: 60, ...more } }
  return startJobs(house.foundation, logger, { jobs })
}

const running = async <T>(jobs: Promise<Jobs>, body: () => Promise<T>): Promise<T> => {
  const started = await jobs
  try {
    return await body()
  } finally {
    await started.stop()
  }
}

const noted = (): { notes: string[]; note: Run } => {
  const notes: string[] = []
  return { notes, note: async (data) => notes.push(data) }
}

test('while a job with a key is queued, a second request adds nothing; other keys and other names have their own jobs', async () => {
  for (const [name, key] of [
    ['one-waits', 'a'],
    ['one-waits', 'a'],
    ['one-waits', 'b'],
    ['another-name', 'a'],
  ] as const)
    await queue.send(name, `about ${key}`, { afterSeconds: 600, key })
  expect((await jobsOf('one-waits')).map(({ key }) => key)).toEqual(['a', 'b'])
  expect(await jobsOf('another-name')).toHaveLength(1)
})

test('of many simultaneous requests with one key, from several processes, only the first is queued', async () => {
  const other = openJobQueue(house.foundation.url, logger)
  try {
    await Promise.all(
      Array.from({ length: 20 }, (_, n) =>
        (n % 2 === 0 ? queue : other).send('at-once', String(n), { afterSeconds: 600, key: 'one' }),
      ),
    )
    expect(await jobsOf('at-once')).toHaveLength(1)
  } finally {
    await other.close()
  }
})

test('a job runs when it is due, with its data, and not earlier', async () => {
  const { notes, note } = noted()
  await queue.send('in-time', 'due', { afterSeconds: 0, key: 'due' })
  await queue.send('in-time', 'not due', { afterSeconds: 600, key: 'not due' })
  await running(start('in-time', note), () => until('a job is done', async () => notes.length > 0))
  expect(notes).toEqual(['due'])
  expect((await jobsOf('in-time')).map(({ state, key }) => [key, state])).toEqual([
    ['due', 'completed'],
    ['not due', 'created'],
  ])
})

test('after a run, the same key can be requested again', async () => {
  const { notes, note } = noted()
  for (const data of ['first', 'second']) {
    await queue.send('again', data, { afterSeconds: 0, key: 'one' })
    await running(start('again', note), () => until(`the ${data} is done`, async () => notes.at(-1) === data))
  }
  expect(notes).toEqual(['first', 'second'])
})

test('a job that fails is not retried', async () => {
  let tries = 0
  await queue.send('fails', 'x', { afterSeconds: 0, key: 'one' })
  const failing = start('fails', async () => {
    tries += 1
    throw new Error('the data no longer exist')
  })
  await running(failing, () =>
    until('the job has failed', async () => (await jobsOf('fails'))[0]?.state === 'failed'),
  )
  expect(tries).toBe(1)
  expect((await jobsOf('fails'))[0]?.retry_limit).toBe(0)
})

test('several jobs run at the same time, but no more than allowed', async () => {
  const { promise: released, resolve: release } = Promise.withResolvers<void>()
  const { notes, note } = noted()
  let underWay = 0
  let underWayMax = 0
  let done = 0
  for (const key of ['a', 'b', 'c', 'd']) await queue.send('several', key, { afterSeconds: 0, key })
  await queue.send('looked-for-after', 'x', { afterSeconds: 0, key: 'x' })
  const several = async (): Promise<void> => {
    underWay += 1
    underWayMax = Math.max(underWayMax, underWay)
    await released
    underWay -= 1
    done += 1
  }
  const slow = startJobs(house.foundation, logger, {
    jobs: {
      several: { run: several, concurrencyMax: 2, expireSeconds: 60 },
      'looked-for-after': { run: note, concurrencyMax: 1, expireSeconds: 60 },
    },
  })
  await running(slow, async () => {
    await until('two are under way', async () => underWay >= 2 && notes.length === 1)
    // The second queue's job has run. By then, a third worker of the first queue would also have taken a job.
    expect(underWayMax).toBe(2)
    release()
    await until('all are done', async () => done === 4)
  })
  expect(underWayMax).toBe(2)
})

test('a full queue is processed without the pauses of a nearly empty one', async () => {
  const { notes, note } = noted()
  const count = 20
  for (let n = 0; n < count; n++) await queue.send('many', String(n), { afterSeconds: 0, key: String(n) })
  // pg-boss counts once a minute, and reads the stored count when it starts.
  await house.query(`update pgboss.queue set ready_count = $1 where name = 'many'`, [count])
  // At one job every five seconds, two or three would be done when the time is over.
  await running(start('many', note), () => until('all are done', async () => notes.length === count))
})

test("a job's maximum time is set by its runner, even if the requesting process created the queue", async () => {
  const { notes, note } = noted()
  await queue.send('expires', 'x', { afterSeconds: 0, key: 'one' })
  await running(start('expires', note, { expireSeconds: 7 }), () =>
    until('it is done', async () => notes.length === 1),
  )
  await queue.send('expires', 'y', { afterSeconds: 600, key: 'two' })
  expect(
    await house.query(`select data->>'data' as data, expire_seconds from pgboss.job where name = 'expires'
      and state = 'created'`),
  ).toEqual([{ data: 'y', expire_seconds: 7 }])
})

test('a queue without requests opens no connection, and can be closed', async () => {
  const unused = openJobQueue('postgres://nobody@127.0.0.1:1/none', logger)
  await unused.close()
})

test('an unreachable database fails only the current request', async () => {
  const url = new URL(house.foundation.url)
  const absent = `${url.pathname.slice(1)}_later`
  url.pathname = `/${absent}`
  const migrated = new URL(house.foundation.migrationUrl)
  migrated.pathname = url.pathname
  const early = openJobQueue(migrated.href, logger)
  const admin = new pg.Client({ connectionString: house.foundation.migrationUrl })
  await admin.connect()
  try {
    const asked = () => early.send('early', 'x', { afterSeconds: 600, key: 'one' })
    await expect(asked()).rejects.toThrow(/does not exist/)
    await admin.query(`create database ${absent}`)
    const schema = new pg.Client({ connectionString: migrated.href })
    await schema.connect()
    await schema.query('create schema pgboss')
    await schema.end()
    await expect(asked()).resolves.toBeUndefined()
  } finally {
    await early.close()
    await admin.query(`drop database if exists ${absent} with (force)`)
    await admin.end()
  }
})
