/** Projections and jobs, as an operator looks at them and acts on them in the dashboard. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { keyUsage } from '../../projections/key-usage.ts'
import { ledgerLines } from '../../projections/ledger-lines.ts'
import { putUser } from '../../src/administration/users/users.ts'
import { decodeEvent } from '../../src/event-log/stored-event.ts'
import { operatorStream } from '../../src/events/streams.ts'
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

const recorded = async (type: string) =>
  (await room.foundation.eventLog.read(operatorStream, { direction: 'backwards', max: 50 }))
    .map(decodeEvent)
    .filter((event) => event.type === type)
    .map(({ data, metadata }) => ({ data, actor: metadata.actor }))

const usage = `/operations/projections/${keyUsage.name}`

const given = (verb: string, fields: Record<string, string>) =>
  give(ada, `/commands/projection/${verb}`, fields)

test('every projection is listed with where it is, and leads to its page', async () => {
  const { body, statusCode } = await ada.get('/operations')
  expect(statusCode).toBe(200)
  for (const name of [keyUsage.name, ledgerLines.name])
    expect(body).toContain(`href="/operations/projections/${name}"`)
  expect(body).toContain('No job was ever scheduled')
  expect((await ada.get('/operations/projections/nothing')).statusCode).toBe(404)
  expect((await ada.get('/operations/projections/%00')).statusCode).toBe(404)
})

describe('a rebuild', () => {
  test('says who asked and why', async () => {
    expect((await ada.get(usage)).body).toContain(`href="/commands/projection/rebuild?name=${keyUsage.name}"`)
    const done = await given('rebuild', { name: keyUsage.name, reason: 'a <b>rule</b> changed' })
    expect([done.statusCode, done.body.includes('<h1>Done</h1>')]).toEqual([200, true])
    expect(await recorded('RebuildRequested')).toMatchObject([
      { actor: 'user:ada', data: { projections: [keyUsage.name], reason: 'a <b>rule</b> changed' } },
    ])
    expect((await ada.get('/operations')).body).toContain('a &lt;b&gt;rule&lt;/b&gt; changed')
  })

  test('of rows that alone know what a restored log has lost leaves them, and lists what would be lost', async () => {
    const { pool } = room.foundation
    // A line that the log does not hold, and neither the event the rows end at.
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
    expect([statusCode, body]).toEqual([422, expect.stringContaining('Only the rows know the following')])
    expect((await given('rebuild', { ...wanted, 'accept-loss': 'another' })).statusCode).toBe(422)
    expect((await pool.query(`select from ${lines} where revision = 1000000`)).rows).toHaveLength(1)
  })
})

describe('an event that was set aside', () => {
  const park = (projection: string) =>
    room.foundation.pool.query(
      `insert into parked_events (projection, position, stream, error) values ($1, 1, 'key-<i>', 'unreadable')
         on conflict do nothing`,
      [projection],
    )

  test('is shown, and the projection goes on without it where a person says why', async () => {
    await park(keyUsage.name)
    const shown = await ada.get(usage)
    expect(shown.body).toContain('key-&lt;i&gt;')
    expect(shown.body).toContain('<a href="/events/at/1">1</a>')
    const href = `/commands/projection/release?name=${keyUsage.name}&amp;position=1`
    expect(shown.body).toContain(`href="${href}"`)
    const wanted = { name: keyUsage.name, position: '1', reason: 'a test' }
    expect((await given('release', wanted)).body).toContain('<h1>Done</h1>')
    expect(await recorded('ParkedEventReleased')).toMatchObject([
      { actor: 'user:ada', data: { projection: keyUsage.name, position: '1', reason: 'a test' } },
    ])
    expect((await given('release', { ...wanted, position: '1 or 2' })).statusCode).toBe(422)
  })

  test('of money stays, whatever a form says', async () => {
    await park(ledgerLines.name)
    const path = `/operations/projections/${ledgerLines.name}`
    expect((await ada.get(path)).body).not.toContain('Go on without it')
    const { statusCode, body } = await given('release', {
      name: ledgerLines.name,
      position: '1',
      reason: 'x',
    })
    expect(statusCode).toBe(422)
    expect(body).toContain('is of money')
  })

  test('is retried by folding everything anew', async () => {
    await park(keyUsage.name)
    await room.foundation.pool.query(
      `update parked_events set released_at = null, released_by = null, reason = null where projection = $1`,
      [keyUsage.name],
    )
    expect((await given('retry', { name: keyUsage.name })).body).toContain('<dt>Retried</dt><dd>1</dd>')
  })
})

test('a rebuild that runs elsewhere is shown, and told to end', async () => {
  await room.foundation.pool.query(
    `insert into projection_rebuilds (rebuild_id, projections, actor, reason, position, target)
     values ('elsewhere', array[$1], 'cli:bob', 'from the command line', 5, 10)`,
    [keyUsage.name],
  )
  const { body } = await ada.get(usage)
  expect(body).toContain('Position 5 of 10')
  expect(body).toContain('cli:bob: from the command line')
  expect((await given('cancel', { name: keyUsage.name })).body).toContain('<h1>Done</h1>')
  const { rows } = await room.foundation.pool.query(
    `select cancelled_by from projection_rebuilds where rebuild_id = 'elsewhere'`,
  )
  expect(rows).toEqual([{ cancelled_by: 'user:ada' }])
})

test('a job that there is not is no job to run', async () => {
  const answer = await ada.submit('/commands/jobs/run', { name: 'nothing' })
  expect([answer.statusCode, answer.body]).toEqual([422, expect.stringContaining('There is no job')])
})
