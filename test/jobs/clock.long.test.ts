/** Scheduled jobs can be started by a person, are retried, become dead letters when they fail, and appear in metrics. */
import { afterAll, beforeEach, expect, test } from 'vitest'
import { declarationNamed } from '../../src/administration/declarations.ts'
import type { Given } from '../../src/administration/declare.ts'
import { deadLetters, type JobRow, knownJobs, pruneDeadLetters } from '../../src/administration/jobs/jobs.ts'
import { nextRuns, retryDeadLetters, runNow } from '../../src/administration/jobs/now.ts'
import type { ScheduledJob } from '../../src/call/capability.ts'
import { contextOf } from '../../src/cli/host.ts'
import { wakeWorkers } from '../../src/foundation/job-queue.ts'
import { startJobs } from '../../src/jobs/run.ts'
import { createHealth } from '../../src/metrics/health.ts'
import { createMetrics } from '../../src/metrics/metrics.ts'
import { samples } from '../metrics/samples.ts'
import { houseForFile, until } from '../support/house.ts'
import { logger } from '../support/logger.ts'

const by = { actor: 'user:ada', logger }

let work: () => Promise<number>
let runs = 0
let underWay = 0
let underWayMax = 0

/** A schedule that never becomes due while the test runs. */
const yearly = { purpose: 'counts its runs', cron: '0 0 29 2 *', expireSeconds: 60 } as const

const house = await houseForFile()
const metrics = createMetrics()
createHealth({ ...house.foundation, config: house.config }).meter(metrics.meters)
const run = async (): Promise<number> => {
  runs += 1
  underWay += 1
  underWayMax = Math.max(underWayMax, underWay)
  return work().finally(() => {
    underWay -= 1
  })
}
const jobs = await startJobs(house.foundation, logger, {
  jobs: { leap: { ...yearly, run } satisfies ScheduledJob },
  meters: metrics.meters,
})
afterAll(() => jobs.stop())
beforeEach(async () => {
  runs = 0
  work = async () => 7
  await house.query(`delete from pgboss.job where name in ('leap', 'dead-letters')`)
})

const leap = async (): Promise<JobRow> => {
  const job = (await knownJobs(house.foundation.pool)).find(({ name }) => name === 'leap')
  if (job === undefined) throw new Error('the job is not known')
  return job
}
/** Runs a command as every interface does. */
const command = async (name: string, given: Given, progress = (..._: unknown[]): void => undefined) => {
  const operator = { actor: by.actor, role: null }
  const context = contextOf(house.foundation, operator, { config: house.config, logger, progress })
  return declarationNamed(name).read(given).run(context)
}
const runLeap = () => command('jobs run', { name: 'leap' })
const dead = () => deadLetters(house.foundation.pool, { job: null, max: 100 })
const fails = async (): Promise<number> => {
  throw new Error('no room left')
}
const operations = async () =>
  (await house.recorded())
    .filter(({ stream }) => stream === 'operator')
    .map(({ type, data, metadata }) => ({ type, data: JSON.parse(data), actor: JSON.parse(metadata).actor }))

test("a previous release's schedule that this release does not have is removed", async () => {
  const schedules = async (): Promise<unknown[]> =>
    (await house.query('select name from pgboss.schedule')).map(({ name }) => name)
  await house.query(
    `insert into pgboss.queue select (jsonb_populate_record(q, '{"name": "of-before"}')).* from pgboss.queue q where name = 'leap'`,
  )
  await house.query(
    `insert into pgboss.schedule select (jsonb_populate_record(s, '{"name": "of-before"}')).* from pgboss.schedule s where name = 'leap'`,
  )
  expect(await schedules()).toContain('of-before')
  const others = await startJobs(house.foundation, logger, {
    jobs: { leap: { ...yearly, run: async () => 0 } },
  })
  await others.stop()
  expect(await schedules()).not.toContain('of-before')
  expect(await schedules()).toContain('leap')
})

test('a run that a person requests is executed immediately by the process that runs jobs, and its outcome is returned', async () => {
  const states: string[] = []
  const result = await runNow(house.foundation, {
    job: await leap(),
    ...by,
    onProgress: ({ state }) => states.push(state),
  })
  expect(result).toMatchObject({ succeeded: true, error: null, result: '{"did": 7}' })
  expect(runs).toBe(1)
  expect((await operations()).at(-1)).toEqual({
    type: 'JobRequested',
    data: { job: 'leap', run_id: result.run_id },
    actor: 'user:ada',
  })
  expect(await leap()).toMatchObject({ state: 'completed', active: 0, failed_24h: 0, expire_seconds: 60 })
})

test('a requested run that fails returns the reason, is not retried, and becomes a dead letter', async () => {
  const { promise: shown, resolve: show } = Promise.withResolvers<unknown>()
  // The run ends after its progress has been shown.
  work = () => shown.then(fails)
  const failed = await command('jobs run', { name: 'leap' }, (_, figures) => show(figures))
  expect(failed).toMatchObject({
    failed: true,
    json: { job: 'leap', succeeded: false, error: 'no room left', result: null },
  })
  expect(await shown).toEqual({
    job: 'leap',
    state: expect.stringMatching(/^(waiting|running)$/),
    seconds: expect.any(Number),
  })
  expect(runs).toBe(1)
  expect(await dead()).toMatchObject([
    { job: 'leap', error: 'no room left', data: null, tries: 1, done_since: false },
  ])
  expect(await leap()).toMatchObject({
    state: 'failed',
    message: 'no room left',
    failed_24h: 1,
    dead_letters: 1,
  })
})

test('a scheduled run is tried three times before it becomes a dead letter', async () => {
  work = fails
  const { PgBoss } = await import('pg-boss')
  const boss = new PgBoss({
    connectionString: house.foundation.url,
    supervise: false,
    schedule: false,
    createSchema: false,
  })
  boss.on('error', () => undefined)
  await boss.start()
  try {
    const id = (await boss.send('leap', null)) ?? ''
    for (const tried of [1, 2]) {
      await until(`attempt ${tried} has failed`, async () => {
        const [run] = await house.query('select state, retry_count from pgboss.job where id = $1', [id])
        return run?.state === 'retry' && run.retry_count === tried - 1
      })
      expect(await dead()).toEqual([])
      // Ends the job's pause, and notifies the worker, which would otherwise check again only after 30 s.
      await house.query(`update pgboss.job set start_after = now() where id = $1`, [id])
      await wakeWorkers(house.foundation.pool, ['leap'])
    }
    await until('the third attempt has failed', async () => (await dead()).length === 1)
    expect(runs).toBe(3)
    expect(await dead()).toMatchObject([{ job: 'leap', error: 'no room left', tries: 3 }])
  } finally {
    await boss.stop({ graceful: false, timeout: 1_000 })
  }
})

test('all dead letters are retried: with one run if their data are the same, and with one run each if they differ', async () => {
  work = fails
  for (let n = 0; n < 3; n++) await runLeap()
  expect(await dead()).toHaveLength(3)
  work = async () => 1
  expect(await retryDeadLetters(house.foundation, { id: null, ...by })).toEqual([{ job: 'leap', runs: 1 }])
  expect(await dead()).toEqual([])
  await until('it was done', async () => runs === 4)
  await until('it has succeeded', async () => (await leap()).state === 'completed')
  expect((await operations()).at(-1)).toEqual({
    type: 'DeadLettersRetried',
    data: { runs: [{ job: 'leap', runs: 1 }] },
    actor: 'user:ada',
  })
})

test('one dead letter is retried by its id; an unknown id is refused', async () => {
  work = fails
  await runLeap()
  await runLeap()
  const [newest, oldest] = await dead()
  work = async () => 1
  expect(await command('jobs retry', { id: newest?.id })).toMatchObject({
    json: { retried: [{ job: 'leap', runs: 1 }] },
  })
  expect(await dead()).toMatchObject([{ id: oldest?.id }])
  await until('it has succeeded', async () => (await leap()).state === 'completed')
  expect((await command('jobs list', {})).json).toContainEqual(
    expect.objectContaining({ name: 'leap', last_outcome: 'succeeded' }),
  )
  // The retry also did the work of the older run, so the older run's dead letter no longer counts.
  expect(await dead()).toMatchObject([{ id: oldest?.id, done_since: true }])
  expect(await leap()).toMatchObject({ dead_letters: 0 })
  await expect(retryDeadLetters(house.foundation, { id: newest?.id ?? '', ...by })).rejects.toThrow(
    `there is no dead letter ${newest?.id}`,
  )
})

test('retrying all is refused if there are no dead letters', async () => {
  await expect(retryDeadLetters(house.foundation, { id: null, ...by })).rejects.toThrow(
    'there are no dead letters',
  )
})

test('the newest twenty dead letters of each job are kept', async () => {
  await house.query(
    `insert into pgboss.job (name, source_name, created_on)
     select 'dead-letters', job, now() - n * interval '1 min' from generate_series(1, 50) n, unnest(array['leap', 'other']) job`,
  )
  await pruneDeadLetters(house.foundation.pool)
  const kept = await dead()
  expect(kept).toHaveLength(40)
  expect(Math.max(...kept.map(({ age_seconds }) => age_seconds))).toBeLessThan(20.5 * 60)
})

test('two runs of a job that are requested together are executed one after the other', async () => {
  underWayMax = 0
  const { promise: released, resolve: release } = Promise.withResolvers<void>()
  work = () => released.then(() => 1)
  const states = new Set<string>()
  const job = await leap()
  const both = [1, 2].map(() =>
    runNow(house.foundation, { job, ...by, onProgress: ({ state }) => states.add(state) }),
  )
  await until('one waits for the other', async () => states.has('waits_for_another'))
  release()
  const results = await Promise.all(both)
  expect(results.map(({ succeeded }) => succeeded)).toEqual([true, true])
  expect({ runs, underWayMax }).toEqual({ runs: 2, underWayMax: 1 })
})

test('metrics count runs by job and outcome, and include the time of the last success and the failed runs', async () => {
  await runLeap()
  work = fails
  await runLeap()
  const written = await metrics.text()
  expect(samples(written, 'jobs_runs_total')['{name="leap",outcome="failed"}']).toBeGreaterThan(0)
  expect(samples(written, 'jobs_runs_total')['{name="checkpoint",outcome="failed"}']).toBe(0)
  expect(samples(written, 'jobs_duration_seconds_count')['{name="leap"}']).toBeGreaterThan(1)
  const at = samples(written, 'jobs_last_success_timestamp_seconds')['{name="leap"}'] ?? 0
  expect(Math.abs(Date.now() / 1_000 - at)).toBeLessThan(60)
  expect(samples(written, 'jobs_dead_letters')['{name="leap"}']).toBe(1)
  const ages = samples(written, 'jobs_success_age_seconds')
  expect(ages['{name="leap"}']).toBeLessThan(60)
  // The job never ran, so its age counts from the time it was scheduled. A job that only runs on request is never late.
  expect(ages['{name="reconcile-ledgers"}']).toBeLessThan(3_600)
  expect(Object.keys(ages)).not.toContain('{name="checkpoint-asked"}')
})

test('every scheduled job has dead letters, three attempts, and a maximum time', async () => {
  const queues = await house.query(
    `select q.name, q.retry_limit, q.dead_letter, q.expire_seconds from pgboss.queue q join pgboss.schedule s on s.name = q.name`,
  )
  expect(queues.length).toBeGreaterThan(7)
  expect(
    queues.filter(
      (one) =>
        one.retry_limit !== 2 || one.dead_letter !== 'dead-letters' || Number(one.expire_seconds) > 21_600,
    ),
  ).toEqual([])
})

test.each([
  ['37 2 * * *', '2026-12-31T23:59:30.000Z', '2027-01-01T02:37:00.000Z'],
  ['*/5 * * * *', '2027-12-31T23:57:00.000Z', '2028-01-01T00:00:00.000Z'],
  ['0 0 29 2 *', '2027-03-01T00:00:00.000Z', '2028-02-29T00:00:00.000Z'],
  ['nonsense', '2027-03-01T00:00:00.000Z', undefined],
])('%s is due next, after %s, at %s', async (cron, at, next) => {
  const found = await nextRuns(house.foundation.url, [{ name: 'x', cron }], Date.parse(at))
  expect(found.get('x')?.toISOString()).toBe(next)
})

// Must be the last test, because no process runs jobs afterwards.
test('a requested run that processes do not take is cancelled, and the reason says how to fix this', async () => {
  const job = await leap()
  await jobs.stop()
  const parts = { job, ...by, onProgress: () => undefined, takenWithinMs: 1_000 }
  expect(await runNow(house.foundation, parts)).toMatchObject({
    succeeded: false,
    duration_ms: null,
    error: 'the run was cancelled because no process took it within 1 s: start a process with the role jobs',
  })
  expect(await house.query(`select state::text from pgboss.job where name = 'leap'`)).toEqual([
    { state: 'cancelled' },
  ])
})
