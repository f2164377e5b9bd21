/** The statement's rows refer to their ledger by a number. */
import { afterAll, expect, test } from 'vitest'
import { ledgerKeyOf } from '../../projections/ledger-lines.ts'
import { statementLines } from '../../src/administration/ledgers/lines.ts'
import type { Ledger } from '../../src/ledger/write/ledger.ts'
import {
  ledgerOver,
  openHouse,
  openOrganizations,
  organizationIds,
  plainCall,
  plainGrant,
  untilProjected,
} from './history.ts'

const [org = '', other = ''] = organizationIds

let ledger: Ledger

const house = await openHouse()
ledger = ledgerOver(house.eventLog)
await openOrganizations(ledger)
for (const organizationId of organizationIds)
  await ledger.submit(organizationId, plainGrant('opening', '100000'))
for (let n = 0; n < 12; n++) await ledger.submit(organizationIds[n % 3] ?? '', plainCall(`call-${n}`))
const projector = house.start()
await untilProjected(house)
await projector.stop()
afterAll(() => house.close())

test('a line is found through its index', async () => {
  const plan = async (): Promise<string> => {
    const { text, values } = statementLines({ organization: org }, { first: 0n, below: 1_000n, max: 3 })
    await house.pool.query('set enable_seqscan = off')
    const { rows } = await house.pool.query<{ 'QUERY PLAN': string }>(`explain ${text}`, [...values])
    return rows.map((row) => row['QUERY PLAN']).join('\n')
  }
  expect(await plan()).toMatch(
    /Index Scan Backward using ledger_lines_v2_pkey.*\n\s*Index Cond: \(\(l?\.?ledger = /,
  )
})

test('a ledger has the same number in the database and in the code', async () => {
  for (const organizationId of [...organizationIds, '', 'org_Ünïcode', String.raw`org_\x41'--`]) {
    const { rows } = await house.pool.query<{ ledger: string }>('select ledger_key($1)::text as ledger', [
      organizationId,
    ])
    expect(rows[0]?.ledger).toBe(ledgerKeyOf(organizationId).toString())
  }
})

test('a ledger with the same number as another is halted, and none of its lines appear in the other ledger', async () => {
  await house.pool.query('delete from ledger_lines_v2 where ledger = ledger_key($1)', [org])
  await house.pool.query(
    `update statement_ledgers_v2 set organization_id = 'org_other' where ledger = ledger_key($1)`,
    [org],
  )
  const again = house.start()
  await ledger.submit(org, plainCall('more'))
  await ledger.submit(other, plainCall('more'))
  await untilProjected(house)
  const { rows } = await house.pool.query('select projection, stream from halted_streams')
  expect(rows).toEqual([{ projection: 'ledger_lines', stream: `ledger-${org}` }])
  const { rows: lines } = await house.pool.query('select 1 from ledger_lines where ledger = ledger_key($1)', [
    org,
  ])
  expect(lines).toEqual([])
  expect(
    (await house.pool.query('select 1 from ledger_lines where organization_id = $1', [other])).rows,
  ).toHaveLength(6)
  await again.stop()
})
