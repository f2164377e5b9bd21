/** Rebuilt rows of money replace the live ones only if their totals match the log. A killed rebuild can be continued. */
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { accounts } from '../../projections/accounts.ts'
import { ledgerLines } from '../../projections/ledger-lines.ts'
import type { Projection } from '../../projections/projection.ts'
import type { Change } from '../../projections/rows.ts'
import type { EventLog, RecordedEvent } from '../../src/event-log/port.ts'
import { ledgerStream } from '../../src/events/streams.ts'
import type { Ledger } from '../../src/ledger/write/ledger.ts'
import { TotalsDiffer } from '../../src/projector/compare-totals.ts'
import { type OnlyInRows, onlyInRows } from '../../src/projector/only-in-rows.ts'
import { rebuildProjections } from '../../src/projector/rebuild.ts'
import { Cancelled } from '../../src/projector/second-set.ts'
import { liveTable, nextTable } from '../../src/projector/tables.ts'
import {
  type House,
  ledgerOver,
  openHouse,
  openOrganizations,
  organizationIds,
  plainCall,
  plainGrant,
  seal,
  until,
  untilProjected,
} from './history.ts'

const [org = '', other = ''] = organizationIds

let house: House
let ledger: Ledger

const open = async (): Promise<void> => {
  house = await openHouse()
  ledger = ledgerOver(house.eventLog)
  await openOrganizations(ledger)
  for (const organizationId of organizationIds)
    await ledger.submit(organizationId, plainGrant('opening', '100000'))
}

const calls = (prefix: string, count: number): Promise<unknown> =>
  Promise.all(
    Array.from({ length: count }, (_, i) =>
      ledger.submit(organizationIds[i % 3] ?? '', plainCall(`${prefix}-${i}`)),
    ),
  )
/** The log after the event store has deleted old events of a ledger. */
const withoutOldest = (): EventLog => ({
  ...house.eventLog,
  async *subscribe(options) {
    const lost = ({ stream, revision }: RecordedEvent): boolean =>
      stream === ledgerStream(org) && revision > 0 && revision < 4
    for await (const item of house.eventLog.subscribe(options))
      yield item.kind === 'events' ? { ...item, events: item.events.filter((one) => !lost(one)) } : item
  },
})

/** Changes the live rows so that they no longer match the events. */
const spoil = (projection: Projection) =>
  house.pool.query(
    `update ${liveTable(projection)('ledger_lines')} set amount_micro = amount_micro - 7000000
      where (ledger, revision) = (select ledger, max(revision) from ${liveTable(projection)('ledger_lines')}
                                   where ledger = ledger_key($1) group by 1)`,
    [org],
  )

describe('a switch', () => {
  beforeEach(open)
  afterEach(() => house.close())

  test('repairs live rows whose totals differ from the log, and reports every figure', async () => {
    house.start()
    await calls('first', 9)
    await untilProjected(house)
    await spoil(ledgerLines)
    const { differences, switched } = await house.rebuild(ledgerLines)
    expect(switched).toBe(true)
    expect(differences).toEqual([
      {
        projection: 'ledger_lines',
        organization_id: org,
        figure: 'balance',
        live: expect.any(String),
        rebuilt: expect.any(String),
      },
    ])
    const [{ live, rebuilt } = { live: null, rebuilt: null }] = differences
    expect(BigInt(rebuilt ?? 0) - BigInt(live ?? 0)).toBe(7_000_000n)
    expect((await house.rebuild(ledgerLines)).differences).toEqual([])
  })

  test('reports an organization that only one of the two has', async () => {
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

  test.each([
    ['the same', ledgerLines],
    ['a new', { ...ledgerLines, version: ledgerLines.version + 1 }],
  ])(
    'to %s version needs consent if only the live rows contain events of a ledger',
    async (_, projection) => {
      house.start()
      await calls('first', 9)
      await untilProjected(house)
      const before = await house.live(ledgerLines)
      const scavenged = withoutOldest()
      const onlyThere: OnlyInRows[] = []
      const rebuild = (consents: boolean) =>
        rebuildProjections({
          url: house.url,
          eventLog: scavenged,
          seal,
          projections: [projection],
          mayReplace: async (client) => {
            onlyThere.push(...(await onlyInRows(client, [projection])))
            return consents
          },
        })
      expect(await rebuild(false)).toMatchObject({ switched: false, differences: [] })
      expect(onlyThere).toMatchObject([
        { kind: 'charge', what: '1 lines', organization_id: org },
        { kind: 'grant', what: '1 lines', organization_id: org },
      ])
      expect(await house.live(ledgerLines)).toEqual(before)
      expect(await rebuild(true)).toMatchObject({ switched: true })
    },
  )

  test('to a new version is left to an operator by the projector if only the live rows contain events', async () => {
    const older = house.start()
    await calls('first', 9)
    await untilProjected(house)
    await older.stop()
    const before = await house.live(ledgerLines)
    const raised = { ...ledgerLines, version: ledgerLines.version + 1 }
    const { messages } = house.start({ only: [raised], eventLog: withoutOldest() })
    await until('it is refused', () => messages.some((message) => message.includes('has lost events')))
    expect(await house.live(ledgerLines)).toEqual(before)
  })

  /** Folds like `ledger_lines`, but passes the changes through `change`. */
  const folding = (change: (changes: Change[]) => Change[]): Projection => ({
    ...ledgerLines,
    fold: (events) => change(ledgerLines.fold(events)),
  })
  const first = <Row>(rows: readonly Row[], change: (row: Row) => Row[]): Row[] =>
    rows.flatMap((row, index) => (index === 0 ? change(row) : [row]))
  const lines = (change: (row: Record<string, unknown>) => Record<string, unknown>[]) =>
    folding((changes) =>
      changes.map((one) => (one.kind === 'insert' ? { ...one, rows: first(one.rows, change) } : one)),
    )

  test.each([
    ['a line too few', lines(() => []), 'lines'],
    ['an amount that is not in the log', lines((row) => [{ ...row, amount_micro: 5n }]), 'balance'],
    ['no rows at all', folding(() => []), 'balance'],
  ] as const)(
    'does not take place with %s: the live rows stay, and no new rows remain',
    async (_, projection, figure) => {
      house.start()
      await calls('first', 9)
      await untilProjected(house)
      const before = await house.live(ledgerLines)
      const attempt = house.rebuild(projection)
      await expect(attempt).rejects.toThrow(TotalsDiffer)
      await expect(attempt).rejects.toThrow(figure)
      expect(await house.live(ledgerLines)).toEqual(before)
      const left = await house.pool.query(`select tablename from pg_tables where tablename like '%\\_next'`)
      expect(left.rows).toEqual([])
      expect((await house.pool.query('select from projection_builds')).rows).toEqual([])
      expect(await house.rebuild(ledgerLines)).toMatchObject({ switched: true, differences: [] })
    },
  )

  test('is not made if it would stop a ledger whose rows have not stopped', async () => {
    house.start()
    await calls('first', 9)
    await untilProjected(house)
    const before = await house.live(ledgerLines)
    const halting: Projection = {
      ...ledgerLines,
      fold: (events) => {
        if (events.some(({ stream }) => stream.endsWith(other))) throw new Error('a fold with a bug')
        return ledgerLines.fold(events)
      },
    }
    await expect(house.rebuild(halting)).rejects.toThrow(`cannot fold event`)
    expect(await house.live(ledgerLines)).toEqual(before)
  })
})

describe('a rebuild that ends before its switch', () => {
  /** Delivers some batches and then fails, like a killed process. */
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

  // Each test leaves exactly the rows that follow from the log.
  beforeAll(async () => {
    await open()
    house.start()
    // Makes more calls than the rebuild folds while the live projector waits for the switch.
    await calls('before', 1_500)
    await untilProjected(house)
  })
  afterAll(() => house.close())

  test('is continued by the next one, with the same rows as a result', async () => {
    const before = await house.live(ledgerLines)
    await expect(attempt(new Error('killed'))).rejects.toThrow('killed')
    const left = await leftRows()
    expect(left).toBeGreaterThan(0)
    await calls('after', 20)
    const { resumed, differences } = await house.rebuild(ledgerLines)
    expect({ resumed, differences }).toEqual({ resumed: true, differences: [] })
    await untilProjected(house)
    const after = new Set((await house.live(ledgerLines)).ledger_lines)
    expect(before.ledger_lines?.filter((row) => !after.has(row))).toEqual([])
    expect((await house.verify(ledgerLines)).differences).toEqual([])
  })

  test('of several projections is continued for each where its own rows end', async () => {
    await expect(attempt(new Error('killed'))).rejects.toThrow('killed')
    const { resumed, differences } = await rebuildProjections({
      url: house.url,
      eventLog: house.eventLog,
      seal,
      projections: [accounts, ledgerLines],
    })
    expect({ resumed, differences }).toEqual({ resumed: true, differences: [] })
    for (const projection of [accounts, ledgerLines])
      expect((await house.verify(projection)).differences).toEqual([])
    expect((await house.pool.query('select from halted_streams')).rows).toEqual([])
  })

  test('is not switched in if its rows have been changed since', async () => {
    await expect(attempt(new Error('killed'))).rejects.toThrow('killed')
    await house.pool.query(`delete from ${next} where revision = (select max(revision) from ${next})`)
    await expect(house.rebuild(ledgerLines)).rejects.toThrow(TotalsDiffer)
    expect((await house.verify(ledgerLines)).differences).toEqual([])
  })

  test.each([
    ['other code started it', `update projection_builds set fold = 'other'`],
    ['another log was read', `update projection_builds set digest = 'other'`],
    ['its tables were dropped', `drop table ${next}`],
  ])('starts over if %s', async (_, change) => {
    await expect(attempt(new Error('killed'))).rejects.toThrow('killed')
    expect(await leftRows()).toBeGreaterThan(0)
    await house.pool.query(change)
    expect(await house.rebuild(ledgerLines)).toMatchObject({ resumed: false, differences: [] })
    expect((await house.verify(ledgerLines)).differences).toEqual([])
  })

  test('leaves nothing if it was cancelled', async () => {
    await expect(attempt(new Cancelled('by user:ann'))).rejects.toThrow('by user:ann')
    await expect(leftRows()).rejects.toThrow('does not exist')
    expect((await house.pool.query('select from projection_builds')).rows).toEqual([])
  })
})
