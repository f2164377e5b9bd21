/** Projections and jobs, as operators see and change them in the dashboard. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { keyUsage } from '../../projections/key-usage.ts'
import { ledgerLines } from '../../projections/ledger-lines.ts'
import { putUser } from '../../src/administration/users/users.ts'
import { liveTable } from '../../src/projector/tables.ts'
import { type Browser, type DashboardHost, give, openDashboardHost, signedIn } from './dashboard-host.ts'
import { openScene } from './scene.ts'

let room: DashboardHost
let ada: Browser

beforeAll(async () => {
  room = await openDashboardHost()
  const user = { name: 'ada', password: 'correct horse battery staple' }
  await putUser(room.foundation.pool, user)
  ada = await signedIn(room, user)
  await openScene(room, { nowMs: Date.now(), days: 1 })
  await room.caughtUp()
})
afterAll(() => room?.close())

const given = (verb: string, fields: Record<string, string>) =>
  give(ada, `/commands/projection/${verb}`, fields)

test('every projection is listed with its position, and links to its state', async () => {
  const { body, statusCode } = await ada.get('/operations')
  expect(statusCode).toBe(200)
  for (const name of [keyUsage.name, ledgerLines.name])
    expect(body).toContain(`href="/commands/projection/list?name=${name}"`)
  expect(body).toContain('No jobs are scheduled yet')
  const one = (await ada.get(`/commands/projection/list?name=${keyUsage.name}`)).body
  expect(one).toContain(`href="/commands/projection/rebuild?name=${keyUsage.name}"`)
  expect(one).not.toContain(`?name=${ledgerLines.name}"`)
  for (const name of ['nothing', '%00'])
    expect((await ada.get(`/commands/projection/list?name=${name}`)).statusCode).toBe(422)
})

describe('a rebuild', () => {
  test('does not remove rows whose events a restored log has lost, and lists the possible losses', async () => {
    const { pool } = room.foundation
    // Adds a line, and then a last event, that are not in the log.
    const lines = liveTable(ledgerLines)('ledger_lines')
    const { rows: moved } = await pool.query(
      `update ${lines} set revision = 1000000 where (ledger, revision) =
         (select ledger, revision from ${lines} where kind = 'grant' limit 1) returning ledger`,
    )
    expect(moved).toHaveLength(1)
    await pool.query(
      `update projection_checkpoints set digest = 'another', state = 'halted', error = 'restored' where name = $1`,
      [ledgerLines.name],
    )
    const wanted = { name: ledgerLines.name, reason: 'restored' }
    const { statusCode, body } = await given('rebuild', wanted)
    expect([statusCode, body]).toEqual([
      422,
      expect.stringContaining('Only the rows contain the following facts'),
    ])
    expect((await given('rebuild', { ...wanted, 'accept-loss': 'another' })).statusCode).toBe(422)
    expect((await pool.query(`select from ${lines} where revision = 1000000`)).rows).toHaveLength(1)
  })
})
