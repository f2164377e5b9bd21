import { execFile } from 'node:child_process'
import { join } from 'node:path'
import { promisify } from 'node:util'
import pg from 'pg'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { DatabaseClient } from '../../src/concurrency/database-client.ts'
import { emptyDatabase, type TestDatabase } from '../support/postgres.ts'

const answerMaxMs = 1_000

describe('a client of PostgreSQL', () => {
  let database: TestDatabase
  let pool: pg.Pool

  beforeAll(async () => {
    database = await emptyDatabase()
    pool = new pg.Pool({
      Client: DatabaseClient,
      connectionString: database.url,
      query_timeout: answerMaxMs,
    })
  })
  afterAll(async () => {
    await pool.end()
    await database.drop()
  })

  test.each(['the pool', 'a connection'])('%s keeps no parameter in memory after the answer', async (by) => {
    // In its own process, because V8 allocates objects in the old generation where many of them survived before, for example in other tests.
    const { stdout } = await promisify(execFile)(
      process.execPath,
      ['--expose-gc', join(import.meta.dirname, 'kept-parameters.ts'), database.url, by],
      { env: {} },
    )
    const { kept, sent } = JSON.parse(stdout) as { kept: number; sent: number }
    expect(kept).toBeLessThan(sent / 4)
  })

  test.each(['the pool', 'a connection'])(
    'a statement on %s without an answer in time fails, and its late answer is ignored',
    async (on) => {
      const client = on === 'the pool' ? pool : await pool.connect()
      await expect(client.query('select pg_sleep($1)', [(1.5 * answerMaxMs) / 1_000])).rejects.toThrow(
        'Query read timeout',
      )
      const { rows } = await client.query('select 2 as two')
      expect(rows).toEqual([{ two: 2 }])
      if ('release' in client) client.release()
    },
  )

  test('the stack of an error contains the caller', async () => {
    const client = await pool.connect()
    const error: unknown = await client.query('select 1 / 0').catch((thrown: unknown) => thrown)
    client.release()
    expect(error).toBeInstanceOf(pg.DatabaseError)
    expect(error).toHaveProperty('stack', expect.stringContaining('database-client.test.ts'))
  })
})
