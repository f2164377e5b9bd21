import pg from 'pg'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { type TestDatabase, testDatabase } from '../support/postgres.ts'
import {
  cli,
  cliJson,
  createPartner,
  eventually,
  lookup,
  type Service,
  startService,
} from '../support/service.ts'

/** Someone changes rows of a read model and another process starts: only the ledger decides what can be paid. */

let database: TestDatabase
let pool: pg.Pool
let environment: Record<string, string>
const services: Service[] = []

beforeAll(async () => {
  database = await testDatabase()
  pool = new pg.Pool({ connectionString: database.url, max: 1 })
  environment = { DATABASE_URL: database.url, SECRET_KEY: 'a secret of the test, long enough to be one' }
  services.push(await startService(environment))
})

afterAll(async () => {
  await Promise.all(services.map((service) => service.end('SIGTERM')))
  await pool.end()
  await database.drop()
})

test('a grant of 10 pays for 10 of 20 calls even if its rows are changed; the chain stays intact', async () => {
  const partner = await createPartner('10', environment)
  const call = async (service: Service | undefined, i: number): Promise<number> =>
    (await lookup(service?.apiUrl ?? '', partner.apiKey, `8.8.${i}.8`)).status
  const statuses: number[] = []
  for (let i = 0; i < 5; i++)
    statuses.push(
      await eventually(async () => {
        const status = await call(services[0], i)
        return status === 401 ? undefined : status
      }),
    )
  const projected = async (): Promise<void> => {
    await eventually(async () => {
      const { rows } = await pool.query<{ behind: boolean }>(
        `select exists (select from projection_checkpoints where position < (select position from log_head)) as behind`,
      )
      return rows[0]?.behind === false ? true : undefined
    })
  }
  await projected()
  await pool.query('update account_lots_v1 set remaining_micro = remaining_micro + 5000000')
  services.push(await startService({ ...environment, ROLES: 'api,dashboard' }))
  for (let i = 5; i < 20; i++) statuses.push(await call(services[1], i))
  expect(statuses.filter((status) => status === 200)).toHaveLength(10)
  expect(statuses.filter((status) => status === 402)).toHaveLength(10)

  await projected()
  await pool.query(`update accounts_v1 set digest = 'x'`)
  services.push(await startService({ ...environment, ROLES: 'api,dashboard' }))
  await cliJson(['credits', 'grant', partner.organizationId, '2'], environment)
  const later: number[] = []
  for (let i = 0; i < 4; i++) later.push(await call(services[2], i))
  expect(later).toEqual([200, 200, 402, 402])
  const verified = await cli(['ledger', 'verify', partner.organizationId, '--json'], environment)
  expect(JSON.parse(verified.out)).toMatchObject({ ledgers: [{ fault: null }] })
  await cliJson(['projection', 'rebuild', 'accounts'], environment)
  expect(await cliJson(['ledger', 'verify', partner.organizationId], environment)).toMatchObject({ ok: true })
  expect(await cliJson(['projection', 'verify', '--all'], environment)).not.toContainEqual(
    expect.objectContaining({ ok: false }),
  )
})
