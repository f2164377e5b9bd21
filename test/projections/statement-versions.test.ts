/**
 * The statement's rows name their ledger by a number since version 2. A release that reads by it meets rows of version 1, which name
 * the organization: it answers the same from them until its own are built.
 */
import { afterEach, beforeEach, expect, test } from 'vitest'
import { projections } from '../../projections/index.ts'
import { movedBefore, organizationsOfRequest, placesOfRequest } from '../../projections/ledger-index.ts'
import { ledgerKeyOf, ledgerLines, unbalancedAccounts } from '../../projections/ledger-lines.ts'
import type { Query } from '../../projections/projection.ts'
import { callsOfRequest, lastLineOf, lineSums, linesOf } from '../../projections/statement-lines.ts'
import { linesAfter, linesBefore, linesOfRequest } from '../../src/dashboard/queries.ts'
import type { Ledger } from '../../src/ledger/commit.ts'
import { prepareProjections } from '../../src/projector/tables.ts'
import {
  type House,
  ledgerOver,
  openHouse,
  openOrganizations,
  organizationIds,
  plainCall,
  plainGrant,
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
  for (let n = 0; n < 12; n++) await ledger.submit(organizationIds[n % 3] ?? '', plainCall(`call-${n}`))
})
afterEach(() => house.close())

const range = { from: 0, to: 1_000, fromMs: 0, toMs: Date.parse('2100-01-01T00:00:00.000Z') }

/** What every reader of the statement is told. */
const told = async (): Promise<unknown[]> => {
  const { rows } = await house.pool.query<{ request_id: string }>(
    'select request_id from ledger_lines where request_id is not null order by revision limit 1',
  )
  const requestId = rows[0]?.request_id ?? ''
  const questions: Query<unknown>[] = [
    lastLineOf(org),
    lastLineOf('org_01K9PPPPPPPPPPPPPPPPPPPPP9'),
    callsOfRequest(requestId, org),
    callsOfRequest(requestId, null),
    lineSums(org, range),
    linesOf(org, range),
    unbalancedAccounts(),
    movedBefore(org, 6),
    placesOfRequest(org, { requestId, max: 10 }),
    organizationsOfRequest(requestId, 10),
    linesBefore(org, { revision: '1000', max: 3 }),
    linesAfter(org, { revision: '2', max: 3 }),
    linesOfRequest(org, { requestId, max: 10 }),
  ]
  const answers: unknown[] = []
  for (const { text, values } of questions) {
    const { rows: answer } = await house.pool.query(text, [...values])
    // Groups come in any order.
    answers.push(text.includes('group by') ? answer.map((row) => JSON.stringify(row)).sort() : answer)
  }
  return answers
}

/** Makes the rows what the release before wrote. */
const asFirstVersion = async (): Promise<void> => {
  await house.pool.query(`
    create table ledger_lines_v1 as
      select n.organization_id, l.revision, gen_random_uuid() as event_id, l.kind, l.request_id, l.key_id, l.capability, l.outcome,
             l.code, l.calls, l.amount_micro, l.rule, l.rule_version, l.price_book_version, l.charge_id, l.grant_id, l.adjusts, l.lines,
             l.idempotent, l.effective_at
        from ledger_lines_v2 l join statement_ledgers_v2 n using (ledger);
    alter table ledger_lines_v1 add primary key (organization_id, revision);
    drop view ledger_lines, statement_ledgers;
    drop function ledger_key(text);
    drop table ledger_lines_v2, statement_ledgers_v2;
    create view ledger_lines as select * from ledger_lines_v1;
    update projection_checkpoints set version = 1 where name = 'ledger_lines'`)
}

test('readers are told the same by rows of the version before, while theirs are built, and after', async () => {
  const projector = house.start()
  await untilProjected(house)
  await projector.stop()
  const before = await told()
  expect(before.flat().length).toBeGreaterThan(20)
  await asFirstVersion()
  const client = await house.pool.connect()
  try {
    // Every process that starts does so.
    await prepareProjections(client, projections)
    await prepareProjections(client, projections)
  } finally {
    client.release()
  }
  expect(await told()).toEqual(before)
  house.start()
  await until('its own rows are live', async () => (await house.checkpointOf(ledgerLines)).version === 2)
  expect(await told()).toEqual(before)
})

test('a line is found by its index whatever the version', async () => {
  const projector = house.start()
  await untilProjected(house)
  await projector.stop()
  const plan = async (): Promise<string> => {
    const { text, values } = linesBefore(org, { revision: '1000', max: 3 })
    await house.pool.query('set enable_seqscan = off')
    const { rows } = await house.pool.query<{ 'QUERY PLAN': string }>(`explain ${text}`, [...values])
    return rows.map((row) => row['QUERY PLAN']).join('\n')
  }
  expect(await plan()).toMatch(
    /Index Scan Backward using ledger_lines_v2_pkey.*\n\s*Index Cond: \(\(l?\.?ledger = /,
  )
  await asFirstVersion()
  const client = await house.pool.connect()
  await prepareProjections(client, projections).finally(() => client.release())
  expect(await plan()).toMatch(
    /Index Scan Backward using ledger_lines_v1_pkey.*\n\s*Index Cond: \(\(.*organization_id = /,
  )
})

test('the number of a ledger is the same in the database and here', async () => {
  const projector = house.start()
  await untilProjected(house)
  await projector.stop()
  for (const organizationId of [...organizationIds, '', 'org_Ünïcode', String.raw`org_\x41'--`]) {
    const { rows } = await house.pool.query<{ ledger: string }>('select ledger_key($1)::text as ledger', [
      organizationId,
    ])
    expect(rows[0]?.ledger).toBe(ledgerKeyOf(organizationId).toString())
  }
})

test('a ledger whose number another one has is halted, and no line of it is told as the other one', async () => {
  const projector = house.start()
  await untilProjected(house)
  await projector.stop()
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
