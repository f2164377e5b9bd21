/** Long-running work that people request: the rights it needs, its outcome if its process ends, and the stored data about it. */
import { randomUUID } from 'node:crypto'
import { PgBoss } from 'pg-boss'
import { ulid } from 'ulid'
import { expect, test } from 'vitest'
import { declarationNamed } from '../../src/administration/declarations.ts'
import type { Given } from '../../src/administration/declare.ts'
import { longWorkQueue } from '../../src/administration/jobs/jobs.ts'
import {
  answerOf,
  type LongWork,
  longWork,
  longWorks,
  requestLongWork,
  takeBack,
} from '../../src/administration/jobs/long-work.ts'
import { changeRole, createUser, setDisabled } from '../../src/administration/users/user-changes.ts'
import { workInStores } from '../../src/cli/declared.ts'
import { contextOf } from '../../src/cli/host.ts'
import { givenIn, typedIn } from '../../src/cli/parse.ts'
import { parseConfig } from '../../src/config.ts'
import { startJobs } from '../../src/jobs/run.ts'
import { houseForFile, until } from '../support/house.ts'
import { logger } from '../support/logger.ts'
import { pricedCall } from '../support/memory-process.ts'

const label = { actor: 'cli:ada', role: null } as const

const house = await houseForFile()

const request = async (
  name: string,
  given: Given,
  operator: LongWork['operator'] = label,
): Promise<string> => {
  const id = randomUUID()
  await requestLongWork(house.foundation, { id, declared: declarationNamed(name), given, operator }, logger)
  return id
}

const ended = async (id: string): Promise<LongWork> => {
  let work: LongWork | null = null
  await until('the work has ended', async () => {
    work = await longWork(house.foundation.pool, id)
    return work !== null && work.state !== 'waiting' && work.state !== 'running'
  })
  return work as unknown as LongWork
}

const withWorker = async <T>(body: () => Promise<T>): Promise<T> => {
  const jobs = await startJobs(house.foundation, logger)
  try {
    return await body()
  } finally {
    await jobs.stop()
  }
}

test('is done with the rights that the person has when it begins', async () => {
  const { foundation } = house
  const actor = 'cli:setup'
  for (const name of ['dora', 'rolf', 'finn'])
    await createUser(foundation, { name, role: 'operations', organizationId: null, actor })
  const asked = await Promise.all(
    ['dora', 'rolf', 'finn'].map((name) =>
      request('event-log checkpoint', {}, { actor: `user:${name}`, role: 'operations' }),
    ),
  )
  await setDisabled(foundation, { name: 'dora', disabled: true, reason: 'left', actor })
  await changeRole(foundation, { name: 'rolf', role: 'viewer', organizationId: null, actor })
  await withWorker(async () => {
    const [disabled, demoted, allowed] = await Promise.all(asked.map(ended))
    for (const refused of [disabled, demoted])
      expect(refused).toMatchObject({
        state: 'refused',
        outcome: {
          message: expect.stringContaining('no longer has permission to do this, so nothing was done'),
        },
      })
    expect(allowed?.state).toBe('done')
  })
})

test.each([
  ['a rebuild is done again', 'projection rebuild', { name: 'key_usage' }, 'done'],
  ['a re-rate is not planned twice', 'rerate plan', { book: '1' }, 'failed'],
])('if its process ends, %s', async (_, name, given, state) => {
  const { foundation, query } = house
  const id = await request(name, given)
  const gone = new PgBoss({ connectionString: foundation.url, createSchema: false, supervise: false })
  await gone.start()
  expect((await gone.fetch(longWorkQueue)).map((job) => job.id)).toEqual([id])
  expect((await longWork(foundation.pool, id))?.state).toBe('running')
  // Makes the job's heartbeats look overdue.
  await query(`update pgboss.job set heartbeat_on = now() - interval '2 minutes' where id = $1`, [id])
  // Makes a check due, no matter when another process last checked.
  await query(`update pgboss.queue set monitor_on = null, monitor_claim_on = null where name = 'long-work'`)
  await gone.supervise(longWorkQueue)
  await gone.stop({ graceful: false })
  await query(`update pgboss.job set start_after = now() where id = $1 and state = 'retry'`, [id])
  await withWorker(async () => expect((await ended(id)).state).toBe(state))
})

test('accepts any text, and refuses the same input as the command', async () => {
  const hostile = 'org_\u0000\ud800"</pre>'
  const id = await request('ledger verify', { organization: hostile })
  const work = await withWorker(() => ended(id))
  expect(work).toMatchObject({ state: 'refused', given: { organization: 'org_\u0000\ud800"</pre>' } })
  expect(() => answerOf(work)).toThrow('U+0000')
})

test('a command-line change is executed by the process that runs jobs, if there is one and --here is not given', async () => {
  const { foundation } = house
  const declared = declarationNamed('projection rebuild')
  const machine = { config: parseConfig({}), logger, progress: () => undefined }
  const worked = async (...args: string[]) => {
    const before = (await longWorks(foundation.pool, 100)).length
    const left: string[] = []
    const typed = typedIn(declared, ['key_usage', ...args])
    const { json } = await workInStores(declared, {
      typed,
      given: await givenIn(declared.fields, typed),
      json: true,
      open: async () => contextOf(foundation, label, machine),
      write: async () => undefined,
      leaves: (sentence) => left.push(sentence),
    }).run()
    expect(json).toMatchObject({ projections: [{ name: 'key_usage' }] })
    return { jobs: (await longWorks(foundation.pool, 100)).length - before, left }
  }
  expect(await worked()).toEqual({ jobs: 0, left: [] })
  await withWorker(async () => {
    const { jobs, left } = await worked()
    expect(jobs).toBe(1)
    expect(left.join()).toMatch(/^(|The service continues the work: "jobs show [0-9a-f-]{36}" shows .*)$/)
    expect(await worked('--here')).toEqual({ jobs: 0, left: [] })
  })
})

test('is requested once under one id, and can be cancelled until it begins', async () => {
  const { foundation } = house
  const id = randomUUID()
  const asked = { id, declared: declarationNamed('ledger verify'), given: {}, operator: label }
  await Promise.all([1, 2, 3].map(() => requestLongWork(foundation, asked, logger)))
  expect((await longWorks(foundation.pool, 100)).filter((work) => work.id === id)).toHaveLength(1)
  expect(await takeBack(foundation, id, logger)).toBe(true)
  const other = await request('ledger verify', {})
  await withWorker(() => ended(other))
  expect(await longWork(foundation.pool, id)).toMatchObject({ state: 'failed', startedAt: null })
  expect(await takeBack(foundation, other, logger)).toBe(false)
  expect(await longWork(foundation.pool, 'no id')).toBeNull()
})

test('refunds no call that was made after it was requested, however late it begins', async () => {
  const { foundation } = house
  const { organizationId, keyId } = await house.partner({ credits: '100' })
  const call = (atMs: number) =>
    foundation.ledger.submit(organizationId, pricedCall({ requestId: ulid(atMs), price: '2', keyId, atMs }))
  const requestedMs = Date.now()
  await call(requestedMs - 60_000)
  const given = { key: keyId, from: new Date(requestedMs - 120_000).toISOString(), reason: 'slow' }
  const id = await request('credits refund-calls', { ...given, reference: 'SLA-1' })
  await call(Date.now() + 1)
  const { outcome } = await withWorker(() => ended(id))
  expect(outcome).toMatchObject({ kind: 'done', answer: { json: { calls: 1, refunded: 1, credits: '2' } } })
})
