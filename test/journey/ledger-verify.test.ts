import pg from 'pg'
import { afterAll, describe, expect, test } from 'vitest'
import { testDatabase } from '../support/postgres.ts'
import { changeEvent } from '../support/segments.ts'
import { cli, cliJson } from '../support/service.ts'

/** The command line's reports about ledgers that were changed without the service. */

type Fault = { revision: number; digest: string; fault: string }
type Verified = {
  ok: boolean
  ledgers: {
    organization_id: string
    ok: boolean
    fault: Fault | null
    known_faults: Fault[]
    account_row: string
  }[]
}

const database = await testDatabase()
const pool = new pg.Pool({ connectionString: database.url, max: 1 })
const environment = { DATABASE_URL: database.url, SECRET_KEY: 'a secret of the test, long enough to be one' }
const orgs: string[] = []
for (const name of ['One', 'Two', 'Three']) {
  const made = await cliJson<{ organization_id: string }>(['org', 'create', name], environment)
  await cliJson(['credits', 'grant', made.organization_id, '10', '--reason', 'opening'], environment)
  orgs.push(made.organization_id)
}
// Folds the events written so far.
await cliJson(['projection', 'verify', '--all'], environment)

afterAll(async () => {
  await pool.end()
  await database.drop()
})

const verify = async (): Promise<Verified> => {
  const { code, out } = await cli(['ledger', 'verify', '--json'], environment)
  const verified = JSON.parse(out) as Verified
  expect(code).toBe(verified.ok ? 0 : 1)
  return verified
}
const ledgerOf = ({ ledgers }: Verified, org = ''): Verified['ledgers'][number] | undefined =>
  ledgers.find(({ organization_id }) => organization_id === org)

describe('ledger verify', () => {
  test('reports unchanged ledgers as intact', async () => {
    const verified = await verify()
    expect(verified.ok).toBe(true)
    expect(verified.ledgers.map(({ ok, account_row }) => [ok, account_row])).toEqual(
      orgs.map(() => [true, 'sealed']),
    )
  })

  test('a changed row, a changed event, a truncated end and a missing ledger are each named, and do not end the run', async () => {
    const [one, two, three] = orgs
    await pool.query(
      'update account_lots_v1 set remaining_micro = remaining_micro + 1 where organization_id = $1',
      [one],
    )
    await changeEvent(pool, { stream: `ledger-${two}`, revision: 1 }, ({ data }) => ({
      data: data.replace('opening', 'closing'),
    }))
    await pool.query(
      `delete from log_segments g using log_streams s where s.id = g.stream_id and s.name = $1`,
      [`ledger-${three}`],
    )
    const verified = await verify()
    expect(ledgerOf(verified, one)).toMatchObject({ ok: false, fault: null, account_row: 'changed' })
    expect(ledgerOf(verified, two)).toMatchObject({ ok: false, fault: { revision: 1 } })
    expect(ledgerOf(verified, three)).toMatchObject({
      ok: false,
      fault: { revision: 0, fault: expect.stringContaining('there are no events') },
    })
    const { out } = await cli(['ledger', 'verify'], environment)
    expect(out).toMatch(new RegExp(`^CHANGED ${one} `, 'm'))
    expect(out).toMatch(new RegExp(`^BROKEN {2}${two} {2}revision 1`, 'm'))
  })
})
