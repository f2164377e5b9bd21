import { expect, test } from 'vitest'
import { houseForFile } from '../support/house.ts'
import { eventually } from '../support/service.ts'

/** Calls while the database is read-only, as after a failover to a standby. */

const house = await houseForFile()
const partner = await house.partner()

/** Makes new connections from all processes read-only or writable, and ends the old ones. */
const readOnly = async (on: boolean): Promise<void> => {
  const [row] = await house.query('select current_database() as name')
  await house.query(`alter database ${row?.name} set default_transaction_read_only = ${on ? 'on' : 'off'}`)
  if (on)
    await house.query(
      'select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()',
    )
}

test('SQLSTATE 25006 becomes 503 with Retry-After on every kind of call; calls work again once the database accepts writes', async () => {
  expect((await house.lookup(partner, { ip: '81.2.69.142' })).status).toBe(200)
  await readOnly(true)
  // All processes must first notice that their old connections have ended.
  await eventually(() =>
    house.eventsOf(partner.organizationId).then(
      () => true,
      () => undefined,
    ),
  )
  const asked = [
    () => house.lookup(partner, { ip: '81.2.69.142' }),
    () => house.lookup(partner, { ip: '81.2.69.142' }, { 'idempotency-key': 'once' }),
    () => house.post(partner, '/v1/email/validate', { email: 'ada@example.invalid' }),
    () => house.post(partner, '/v1/profnet/profile', { id: 'vinaxo-braxstone-001' }),
    () => house.post(partner, '/pixel/block', { domain: 'example.com' }),
  ]
  for (const ask of asked) {
    const { status, body, headers, events } = await ask()
    expect([status, body.code, Number(headers.get('retry-after')) > 0]).toEqual([503, 'SYS_002', true])
    expect(events).toEqual([])
  }
  await readOnly(false)
  await eventually(async () =>
    (await house.lookup(partner, { ip: '81.2.69.142' })).status === 200 ? true : undefined,
  )
})
