/** Look-ups share SQL statements. Each caller gets the answer to its own look-up, and the answer is never older than the request. */
import pg from 'pg'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { profileCache } from '../../projections/profile-cache.ts'
import { createLookUps } from '../../src/capabilities/profile/record/look-ups.ts'
import { Unavailable } from '../../src/event-log/port.ts'
import { prepareProjections } from '../../src/projector/tables.ts'
import { until } from '../support/house.ts'
import { databaseForFile } from '../support/postgres.ts'

let statements: number
const database = await databaseForFile()
const { pool } = database
const client = await pool.connect()
await prepareProjections(client, [profileCache])
client.release()
pool.on('acquire', () => {
  statements++
})
beforeEach(async () => {
  await pool.query('truncate profile_suppressions')
  statements = 0
})

const hmacOf = (n: number): string => `hmac-${n}`
const suppress = (hmac: string) =>
  pool.query('insert into profile_suppressions (hmac, suppressed_at) values ($1, now())', [hmac])

test('a thousand concurrent look-ups need only a few statements, and each caller gets the answer for its identifier', async () => {
  for (let n = 0; n < 40; n += 3) await suppress(hmacOf(n))
  const lookUps = createLookUps(pool)
  statements = 0
  const asked = Array.from({ length: 1_000 }, (_, n) => n % 170)
  const found = await Promise.all(asked.map((n) => lookUps.of(hmacOf(n))))
  expect(found.map(({ suppressed }) => suppressed)).toEqual(asked.map((n) => n < 40 && n % 3 === 0))
  expect(found.every(({ row, sealedKey }) => row === undefined && sealedKey === null)).toBe(true)
  // The 170 identifiers fit in two statements of 64 and one with the rest.
  expect(statements).toBeLessThanOrEqual(Math.ceil(1_000 / 64))
})

test('data committed before a look-up starts is visible to it, however many look-ups are running', async () => {
  const lookUps = createLookUps(pool)
  const before = Array.from({ length: 300 }, (_, n) => lookUps.of(hmacOf(n)))
  for (let n = 0; n < 20; n++) {
    await suppress(`late-${n}`)
    const around = [lookUps.of('somebody'), lookUps.of(`late-${n}`)]
    expect((await Promise.all(around)).map(({ suppressed }) => suppressed)).toEqual([false, true])
  }
  await Promise.all(before)
})

test('a database failure is an outage for the look-ups that it affects, but not for later ones', async () => {
  const lookUps = createLookUps(pool)
  await pool.query('alter table profile_suppressions rename to elsewhere')
  const failed = await Promise.allSettled(Array.from({ length: 200 }, (_, n) => lookUps.of(hmacOf(n))))
  expect(new Set(failed.map(({ status }) => status))).toEqual(new Set(['rejected']))
  await pool.query('alter table elsewhere rename to profile_suppressions')
  expect(await lookUps.of('somebody')).toEqual({ suppressed: false, row: undefined, sealedKey: null })

  const ended = new pg.Pool({ connectionString: 'postgres://nobody@127.0.0.1:1/none' })
  await expect(createLookUps(ended).of('somebody')).rejects.toBeInstanceOf(Unavailable)
  await ended.end()
})

describe('a database that does not answer', () => {
  /** Identifiers per statement, running statements, and waiting statements. */
  const [batchMax, underWayMax, waitingMax] = [64, 2, 64]
  let holder: pg.Client
  /** A second connection is needed, because a transaction would not see the change. */
  let watcher: pg.Client

  beforeEach(async () => {
    holder = new pg.Client({ connectionString: database.url })
    watcher = new pg.Client({ connectionString: database.url })
    await Promise.all([holder.connect(), watcher.connect()])
    await holder.query('begin')
    await holder.query('lock table profile_suppressions in access exclusive mode')
  })
  afterEach(async () => {
    await Promise.all([holder.end(), watcher.end()])
  })

  /** The process ids of the statements that wait for the lock. */
  const hanging = async (): Promise<number[]> =>
    (
      await watcher.query<{ pid: number }>(
        `select pid from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`,
      )
    ).rows.map(({ pid }) => pid)

  /** Starts `count` callers with different identifiers. Resolves when as many statements hang as may run. */
  const askFor = async (
    { of }: ReturnType<typeof createLookUps>,
    count: number,
  ): Promise<readonly Promise<unknown>[]> => {
    const told = Array.from({ length: count }, (_, n) => of(hmacOf(n)).catch((error: unknown) => error))
    await until('the statements hang', async () => (await hanging()).length === underWayMax)
    return told
  }

  test('is an outage for all waiting callers together, not one statement after the other', async () => {
    const lookUps = createLookUps(pool)
    statements = 0
    const callers = 10 * batchMax
    const told: unknown[] = []
    for (const one of await askFor(lookUps, callers)) void one.then((answer) => told.push(answer))
    // The lock is still held, so a caller that needs another statement would not get an answer.
    for (const pid of await hanging()) await watcher.query('select pg_terminate_backend($1)', [pid])
    await until(
      'all callers have an answer, or more statements run',
      async () => told.length === callers || statements > underWayMax,
    )
    expect(statements).toBe(underWayMax)
    expect(told.filter((one) => one instanceof Unavailable)).toHaveLength(callers)
    await holder.query('rollback')
    expect((await lookUps.of('somebody')).suppressed).toBe(false)
  })

  test('makes as many callers wait as fit in the queue; the next caller is refused immediately', async () => {
    const lookUps = createLookUps(pool)
    const first = await askFor(lookUps, underWayMax * batchMax)
    const waiting = Array.from({ length: waitingMax * batchMax }, (_, n) => lookUps.of(`waiting-${n}`))
    let told: unknown
    lookUps.of('one more').catch((error: unknown) => {
      told = error
    })
    await new Promise((resolve) => setImmediate(resolve))
    expect(told).toBeInstanceOf(Unavailable)
    await holder.query('rollback')
    const known = { suppressed: false, row: undefined, sealedKey: null }
    for (const answer of await Promise.all([...first, ...waiting])) expect(answer).toEqual(known)
    expect(await lookUps.of('one more')).toEqual(known)
  })
})
