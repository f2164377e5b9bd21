/** A server whose connections are all in use accepts new ones soon, so the start waits. Messages contain the remedy. */
import pg from 'pg'
import { expect, test } from 'vitest'
import { databaseCheck } from '../../src/administration/checks/database.ts'
import { connectedWithin, moreConnections } from '../../src/foundation/database-connection.ts'
import { logger } from '../support/logger.ts'
import { testDatabase } from '../support/postgres.ts'

test('a start waits while all connections are in use, and otherwise the remedy is to allow more', async () => {
  const database = await testDatabase()
  const admin = new pg.Client({ connectionString: database.url })
  await admin.connect()
  const role = `limited_${new URL(database.url).pathname.slice(1)}`
  const url = new URL(database.url)
  url.username = role
  url.password = 'limited'
  const pool = new pg.Pool({ connectionString: url.href })
  try {
    await admin.query(`create role ${role} login password 'limited' connection limit 0`)
    await expect(connectedWithin(url.href, 0, logger)).rejects.toThrow(
      `Cannot connect to the database at ${url.host}: too many connections for role "${role}". ${moreConnections}`,
    )
    const found = await databaseCheck.look({ pool, where: null })
    expect(found).toMatchObject({ says: expect.stringContaining(role), advice: moreConnections })

    let waits = (): void => undefined
    const waiting = new Promise<void>((resolve) => {
      waits = resolve
    })
    const connecting = connectedWithin(url.href, 30_000, { info: waits })
    connecting.catch(() => undefined)
    await Promise.race([waiting, connecting])
    await admin.query(`alter role ${role} connection limit 1`)
    await (await connecting).end()
  } finally {
    await pool.end()
    await admin.query(`drop role ${role}`)
    await admin.end()
    await database.drop()
  }
})
