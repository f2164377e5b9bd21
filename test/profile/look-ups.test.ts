/** Look-ups that share statements: everybody gets their own answer, nobody an older one than they asked for. */
import pg from 'pg'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { profileCache } from '../../projections/profile-cache.ts'
import { createLookUps } from '../../src/capabilities/profile/look-ups.ts'
import { Unavailable } from '../../src/event-log/port.ts'
import { prepareProjections } from '../../src/projector/tables.ts'
import { type TestDatabase, testDatabase } from '../support/postgres.ts'

let database: TestDatabase
let pool: pg.Pool
let statements: number
beforeEach(async () => {
  database = await testDatabase()
  pool = new pg.Pool({ connectionString: database.url, max: 4 })
  pool.on('error', () => undefined)
  const client = await pool.connect()
  await prepareProjections(client, [profileCache])
  client.release()
  statements = 0
  pool.on('acquire', () => {
    statements++
  })
})
afterEach(async () => {
  await pool.end()
  await database.drop()
})

const hmacOf = (n: number): string => `hmac-${n}`
const suppress = (hmac: string) =>
  pool.query('insert into profile_suppressions (hmac, suppressed_at) values ($1, now())', [hmac])

test('of a thousand at once each is told about the identifier it asked for, in a few statements', async () => {
  for (let n = 0; n < 40; n += 3) await suppress(hmacOf(n))
  const lookUps = createLookUps(pool)
  statements = 0
  const asked = Array.from({ length: 1_000 }, (_, n) => n % 170)
  const found = await Promise.all(asked.map((n) => lookUps.of(hmacOf(n))))
  expect(found.map(({ suppressed }) => suppressed)).toEqual(asked.map((n) => n < 40 && n % 3 === 0))
  expect(found.every(({ row, sealedKey }) => row === undefined && sealedKey === null)).toBe(true)
  // Two of 64 identifiers each, and what is left of 170.
  expect(statements).toBeLessThanOrEqual(Math.ceil(1_000 / 64))
})

test('what was committed before somebody asks is seen, however many look-ups are under way', async () => {
  const lookUps = createLookUps(pool)
  const before = Array.from({ length: 300 }, (_, n) => lookUps.of(hmacOf(n)))
  for (let n = 0; n < 20; n++) {
    await suppress(`late-${n}`)
    const around = [lookUps.of('somebody'), lookUps.of(`late-${n}`)]
    expect((await Promise.all(around)).map(({ suppressed }) => suppressed)).toEqual([false, true])
  }
  await Promise.all(before)
})

test('a database that fails is an outage for those who asked, and for nobody after', async () => {
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
