/** Rows that a rebuild replaced are kept and folded on, and can take their place again; a rebuild that was killed goes on. */
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { accounts } from '../../projections/accounts.ts'
import { ledgerLines } from '../../projections/ledger-lines.ts'
import type { Projection } from '../../projections/projection.ts'
import type { EventLog } from '../../src/event-log/port.ts'
import type { Ledger } from '../../src/ledger/commit.ts'
import { dropExpiredKept, readKept } from '../../src/projector/kept.ts'
import { rebuildProjections } from '../../src/projector/rebuild.ts'
import { NotKept, rollBack } from '../../src/projector/rollback.ts'
import { Cancelled } from '../../src/projector/second-set.ts'
import { keptTable, liveTable, nextTable } from '../../src/projector/tables.ts'
import {
  type House,
  ledgerOver,
  openHouse,
  openOrganizations,
  organizationIds,
  plainCall,
  plainGrant,
  rowsOf,
  seal,
  until,
  untilProjected,
} from './history.ts'

const [org = '', other = ''] = organizationIds

let house: House
let ledger: Ledger

beforeEach(async () => {
  house = await openHouse()
  ledger = ledgerOver(house.eventLog)
  await openOrganizations(ledger)
  for (const organizationId of organizationIds)
    await ledger.submit(organizationId, plainGrant('opening', '100000'))
})
afterEach(() => house.close())

const calls = (prefix: string, count: number): Promise<unknown> =>
  Promise.all(
    Array.from({ length: count }, (_, i) =>
      ledger.submit(organizationIds[i % 3] ?? '', plainCall(`${prefix}-${i}`)),
    ),
  )
const kept = (projection: Projection) => rowsOf(house.pool, projection, keptTable(projection))
const keptOf = async ({ name }: Projection) => (await readKept(house.pool)).find((one) => one.name === name)
/** Waits until the kept rows, too, stand at the head. */
const untilKeptProjected = async (projection: Projection): Promise<void> => {
  await untilProjected(house)
  await until('the kept rows stand at the head', async () => {
    const head = await house.eventLog.head()
    return (await keptOf(projection))?.position === head
  })
}
const back = (projection: Projection) => rollBack({ ...house, seal }, projection)
/** Somebody writes into the live rows what no event says. */
const spoil = (projection: Projection) =>
  house.pool.query(
    `update ${liveTable(projection)('ledger_lines')} set amount_micro = amount_micro - 7000000
      where (ledger, revision) = (select ledger, max(revision) from ${liveTable(projection)('ledger_lines')}
                                   where ledger = ledger_key($1) group by 1)`,
    [org],
  )

describe('the rows a rebuild replaced', () => {
  test('are folded on beside the live ones, and a rollback and its rollback change places at one position', async () => {
    house.start()
    await calls('first', 30)
    await untilProjected(house)
    await house.rebuild(accounts)
    await calls('second', 30)
    await untilKeptProjected(accounts)
    expect(await kept(accounts)).toEqual(await house.live(accounts))
    const { generation } = await house.checkpointOf(accounts)
    expect(await back(accounts)).toEqual({ position: await house.eventLog.head(), folded: 0 })
    expect(await house.checkpointOf(accounts)).toMatchObject({ generation: generation + 1, state: 'live' })
    await calls('third', 30)
    await untilKeptProjected(accounts)
    expect(await kept(accounts)).toEqual(await house.live(accounts))
    expect((await house.verify(accounts)).differences).toEqual([])
    await back(accounts)
    await calls('fourth', 3)
    await untilKeptProjected(accounts)
    expect((await house.verify(accounts)).differences).toEqual([])
  })

  test('that are behind are folded up to the live ones first: readers never go back in time', async () => {
    const { stop } = house.start()
    await calls('first', 10)
    await untilProjected(house)
    await stop()
    await house.rebuild(ledgerLines)
    const before = await keptOf(ledgerLines)
    await house.pool.query('alter table projection_kept rename to elsewhere')
    await house.pool.query('create table projection_kept (like elsewhere including all)')
    const again = house.start()
    await calls('second', 20)
    await untilProjected(house)
    await again.stop()
    await house.pool.query('drop table projection_kept')
    await house.pool.query('alter table elsewhere rename to projection_kept')
    const rows = await house.live(ledgerLines)
    expect((await keptOf(ledgerLines))?.position).toBe(before?.position)
    expect((await back(ledgerLines)).folded).toBeGreaterThanOrEqual(20)
    expect(await house.live(ledgerLines)).toEqual(rows)
  })

  test('that no one can write to any more are dropped, and the live ones go on', async () => {
    const { messages } = house.start()
    await calls('first', 5)
    await untilProjected(house)
    await house.rebuild(ledgerLines)
    await house.pool.query(`drop table ${keptTable(ledgerLines)('ledger_lines')}`)
    await calls('second', 5)
    await until('the keeping has ended', async () => (await keptOf(ledgerLines)) === undefined)
    await untilProjected(house)
    expect((await house.verify(ledgerLines)).differences).toEqual([])
    expect(messages.filter((message) => message.includes('kept for a rollback'))).toHaveLength(1)
    await expect(back(ledgerLines)).rejects.toThrow(NotKept)
  })

  test('are dropped after their days, tables and all, and not before', async () => {
    house.start()
    await untilProjected(house)
    await house.rebuild(accounts)
    expect(await dropExpiredKept(house.pool, [accounts])).toEqual([])
    await house.pool.query(`update projection_kept set kept_until = now()`)
    expect(await dropExpiredKept(house.pool, [accounts])).toEqual(['accounts'])
    const left = await house.pool.query(
      `select tablename from pg_tables where tablename like '%\\_kept' and tablename <> 'projection_kept'`,
    )
    expect(left.rows).toEqual([])
    await calls('after', 5)
    await untilProjected(house)
  })

  test('of another version are not rolled back to, and the message says by what they are', async () => {
    house.start()
    await untilProjected(house)
    await house.rebuild(ledgerLines)
    await house.pool.query('update projection_kept set version = 7')
    await expect(back(ledgerLines)).rejects.toThrow('of version 7, which this release does not know')
  })

  test('of another event log are not rolled back to', async () => {
    const { stop } = house.start()
    await untilProjected(house)
    await stop()
    await house.rebuild(ledgerLines)
    await house.pool.query(`update projection_kept set digest = 'another'`)
    await expect(back(ledgerLines)).rejects.toThrow('from another event log')
  })
})

describe('a switch', () => {
  test('names every figure of money in which new and old rows differ, and takes place all the same', async () => {
    house.start()
    await calls('first', 9)
    await untilProjected(house)
    await spoil(ledgerLines)
    const { differences, switched } = await house.rebuild(ledgerLines)
    expect(switched).toBe(true)
    expect(differences).toEqual([
      {
        ...{ projection: 'ledger_lines', organization_id: org, figure: 'balance' },
        ...{ live: expect.any(String), rebuilt: expect.any(String) },
      },
    ])
    const [{ live, rebuilt } = { live: null, rebuilt: null }] = differences
    expect(BigInt(rebuilt ?? 0) - BigInt(live ?? 0)).toBe(7_000_000n)
    expect((await house.rebuild(ledgerLines)).differences).toEqual([])
  })

  test('names an organization that only one of the two knows', async () => {
    house.start()
    await calls('first', 9)
    await untilProjected(house)
    await house.pool.query(
      `delete from ${liveTable(ledgerLines)('ledger_lines')} where ledger = ledger_key($1)`,
      [other],
    )
    const { differences } = await house.rebuild(ledgerLines)
    expect(differences.map(({ organization_id, figure, live }) => [organization_id, figure, live])).toEqual([
      [other, 'balance', null],
      [other, 'lines', null],
    ])
  })
})

describe('a rebuild that ends before its switch', () => {
  /** Lets some batches through, and then breaks off: as a process that is killed. */
  const breaking = (batches: number, error: Error): EventLog => ({
    ...house.eventLog,
    async *subscribe(options) {
      let left = batches
      for await (const item of house.eventLog.subscribe({ ...options, batchMax: 300 })) {
        if (left-- === 0) throw error
        yield item
      }
    },
  })
  const attempt = (error: Error, projection: Projection = ledgerLines) =>
    rebuildProjections({ url: house.url, eventLog: breaking(3, error), seal, projections: [projection] })
  const next = nextTable(ledgerLines)('ledger_lines')
  const leftRows = async (): Promise<number> =>
    (await house.pool.query<{ n: number }>(`select count(*)::integer as n from ${next}`)).rows[0]?.n ?? 0

  beforeEach(async () => {
    house.start()
    // More than is folded while the live projector waits for the switch.
    await calls('before', 1_500)
    await untilProjected(house)
  })

  test('is gone on with by the next one, which gives the same rows', async () => {
    const before = await house.live(ledgerLines)
    await expect(attempt(new Error('killed'))).rejects.toThrow('killed')
    const left = await leftRows()
    expect(left).toBeGreaterThan(0)
    await calls('after', 20)
    const whole = await house.eventLog.head()
    const { resumed, events, differences } = await house.rebuild(ledgerLines)
    expect({ resumed, differences }).toEqual({ resumed: true, differences: [] })
    expect(BigInt(events)).toBeLessThan(whole)
    await untilProjected(house)
    expect((await house.live(ledgerLines)).ledger_lines).toEqual(
      expect.arrayContaining(before.ledger_lines ?? []),
    )
    expect((await house.verify(ledgerLines)).differences).toEqual([])
  })

  test('of several projections, each goes on where its own rows end', async () => {
    await expect(attempt(new Error('killed'))).rejects.toThrow('killed')
    const { resumed, differences } = await rebuildProjections({
      ...{ url: house.url, eventLog: house.eventLog, seal, projections: [accounts, ledgerLines] },
    })
    expect({ resumed, differences }).toEqual({ resumed: true, differences: [] })
    for (const projection of [accounts, ledgerLines])
      expect((await house.verify(projection)).differences).toEqual([])
    expect((await house.pool.query('select from halted_streams')).rows).toEqual([])
  })

  test.each([
    ['other code began it', `update projection_builds set fold = 'other'`],
    ['another log was read', `update projection_builds set digest = 'other'`],
    ['its tables are gone', `drop table ${next}`],
  ])('is begun again where %s', async (_, change) => {
    await expect(attempt(new Error('killed'))).rejects.toThrow('killed')
    expect(await leftRows()).toBeGreaterThan(0)
    await house.pool.query(change)
    expect(await house.rebuild(ledgerLines)).toMatchObject({ resumed: false, differences: [] })
    expect((await house.verify(ledgerLines)).differences).toEqual([])
  })

  test('leaves nothing where it was cancelled', async () => {
    await expect(attempt(new Cancelled('by user:ann'))).rejects.toThrow('by user:ann')
    await expect(leftRows()).rejects.toThrow('does not exist')
    expect((await house.pool.query('select from projection_builds')).rows).toEqual([])
  })
})
