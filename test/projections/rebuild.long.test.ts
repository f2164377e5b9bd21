/**
 * Read models are rebuilt from the log next to the live ones, compared with them, and switched. A half-built read model is never
 * visible.
 */
import { setTimeout } from 'node:timers/promises'
import pg from 'pg'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { accounts } from '../../projections/accounts.ts'
import { apiKeys } from '../../projections/api-keys.ts'
import { projections } from '../../projections/index.ts'
import { keyUsage } from '../../projections/key-usage.ts'
import { ledgerLines } from '../../projections/ledger-lines.ts'
import { profileCache } from '../../projections/profile-cache.ts'
import type { Projection } from '../../projections/projection.ts'
import type { EventLog } from '../../src/event-log/port.ts'
import { keyStream, ledgerStream } from '../../src/events/streams.ts'
import type { Ledger } from '../../src/ledger/write/ledger.ts'
import { snapshotFrom } from '../../src/ledger/write/snapshot.ts'
import { rebuildProjections } from '../../src/projector/rebuild.ts'
import { liveTable, nextTable, prepareProjections, rebuildLock } from '../../src/projector/tables.ts'
import {
  appendTo,
  type House,
  issueKey,
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
  writeHistory,
} from './history.ts'

const [org = ''] = organizationIds

let house: House
let ledger: Ledger

const openEmpty = async (): Promise<void> => {
  house = await openHouse()
  ledger = ledgerOver(house.eventLog)
}

/** The projector's warnings and errors. */
const troubles = (messages: readonly string[]): string[] =>
  messages.filter((message) => /stopped|again|halted|cannot/.test(message))

/** The columns of the tables, as readers see them. */
const seen = (projection: Projection) =>
  rowsOf(house.pool, projection, (name) => {
    const table = projection.tables.find((one) => one.name === name)
    return `(select ${Object.keys(table?.columns ?? {}).join(', ')} from ${name})`
  })
const raised = (projection: Projection): Projection => ({ ...projection, version: projection.version + 1 })

const open = async (): Promise<void> => {
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

const leftovers = async (): Promise<string[]> =>
  (
    await house.pool.query<{ name: string }>(
      `select relname as name from pg_class where relname like '%\\_next' and relkind = 'r' order by 1`,
    )
  ).rows.map(({ name }) => name)

describe('a rebuild', () => {
  beforeEach(openEmpty)
  afterEach(() => house.close())

  test('results in the same rows as the live projector, for the same history', async () => {
    await writeHistory(house.eventLog, { seed: 3, steps: 40 })
    house.start()
    await untilProjected(house)
    for (const projection of projections) {
      const before = await house.live(projection)
      const { events } = await house.rebuild(projection)
      expect(events).toBeGreaterThan(5)
      expect(await house.live(projection)).toEqual(before)
      expect(await seen(projection)).toEqual(before)
    }
    expect((await house.verifyAll()).flatMap(({ differences }) => differences)).toEqual([])
    expect(await leftovers()).toEqual([])
  })

  test('while the projector runs and calls continue, readers always see complete tables', async () => {
    await open()
    const { messages } = house.start()
    await calls('before', 300)
    await untilProjected(house)
    const stopping = new AbortController()
    const failures: string[] = []
    const looping = async (step: () => Promise<void>): Promise<void> => {
      while (!stopping.signal.aborted) {
        await step().catch((error: unknown) => {
          failures.push(error instanceof Error ? error.message : String(error))
          stopping.abort()
        })
        // Without a pause, the readers would leave too little processor time for the rebuild.
        await setTimeout(5)
      }
    }
    const never = (what: string, sees: number, least: number): void => {
      if (sees < least) throw new Error(`${what}: a reader saw ${sees} after ${least}`)
    }
    const reader = async (): Promise<void> => {
      const client = new pg.Client({ connectionString: house.url })
      await client.connect()
      const least = { lines: 301, used: 0, charged: 0 }
      await looping(async () => {
        const { rows } = await client.query<{
          lines: string
          used: string
          charged: string
          accounts: string
          lots: string
        }>(
          `select (select count(*) from ledger_lines) as lines, (select sum(calls) from key_usage) as used,
                  (select sum(charged_micro) from accounts) as charged, (select count(*) from accounts) as accounts,
                  (select count(*) from account_lots) as lots`,
        )
        for (const what of ['lines', 'used', 'charged'] as const) {
          const sees = Number(rows[0]?.[what])
          never(what, sees, least[what])
          least[what] = sees
        }
        never('accounts', Number(rows[0]?.accounts), 3)
        never('lots', Number(rows[0]?.lots), 3)
      })
      await client.end()
    }
    let round = 0
    const writer = looping(async () => {
      await calls(`live-${round++}`, 30)
      // Without a pause, the log would grow faster than a busy machine can fold it.
      await setTimeout(20)
    })
    const snapshot = snapshotFrom(house.pool, seal)
    const loader = looping(async () => {
      if ((await snapshot(org)) === null) throw new Error('an account disappeared')
    })
    const readers = [reader(), reader()]
    const rebuilt: unknown[] = []
    for (const projection of projections)
      rebuilt.push(await house.rebuild(projection).catch((error: unknown) => error))
    stopping.abort()
    await Promise.all([writer, loader, ...readers])
    expect(failures).toEqual([])
    expect(rebuilt).toEqual(rebuilt.map(() => expect.objectContaining({ events: expect.any(Number) })))
    await untilProjected(house)
    expect(troubles(messages)).toEqual([])
    expect((await house.verifyAll()).flatMap(({ differences }) => differences)).toEqual([])
    expect(round).toBeGreaterThan(2)
  })

  test('does not deadlock with the projector', async () => {
    await open()
    const { messages } = house.start()
    await calls('before', 10)
    await untilProjected(house)
    // Moving a checkpoint takes long, so a batch is running most of the time.
    await house.pool.query(`
      create function linger() returns trigger language plpgsql as $$ begin perform pg_sleep(0.15); return null; end $$;
      create trigger linger before update of position on projection_checkpoints for each statement execute function linger()`)
    let writing = true
    const writer = (async () => {
      for (let round = 0; writing; round++) await calls(`round-${round}`, 10)
    })()
    const outcomes: unknown[] = []
    for (let round = 0; round < 4; round++)
      outcomes.push(await house.rebuild(ledgerLines).then(() => 'rebuilt', String))
    writing = false
    await writer
    await house.pool.query('drop trigger linger on projection_checkpoints')
    await untilProjected(house)
    expect({ outcomes, troubles: troubles(messages) }).toEqual({
      outcomes: Array(4).fill('rebuilt'),
      troubles: [],
    })
  })

  test('leaves the live tables unchanged if it is cancelled, and the next one continues', async () => {
    await open()
    house.start()
    await calls('c', 30)
    await untilProjected(house)
    const before = await house.live(ledgerLines)
    const givingUp = new AbortController()
    await house.pool.query(`update projection_checkpoints set updated_at = now()`)
    const late: Projection = {
      ...ledgerLines,
      fold: (events) => {
        givingUp.abort()
        return ledgerLines.fold(events)
      },
    }
    const given = rebuildProjections({
      url: house.url,
      eventLog: house.eventLog,
      seal,
      projections: [late],
      signal: givingUp.signal,
    })
    await expect(given).rejects.toThrow(/abort/i)
    expect(await house.live(ledgerLines)).toEqual(before)
    expect(await seen(ledgerLines)).toEqual(before)
    // The tables stay, so that the next rebuild could continue from their rows. The stopped rebuild had not written any.
    expect(await leftovers()).toEqual(['ledger_lines', 'statement_ledgers'].map(nextTable(ledgerLines)))
    expect(await house.rebuild(ledgerLines)).toMatchObject({ resumed: false, differences: [] })
    expect(await leftovers()).toEqual([])
    expect(await house.live(ledgerLines)).toEqual(before)
  })

  test('drops, at the next start, the tables of a killed rebuild, but none of a running one', async () => {
    await open()
    const left = nextTable(keyUsage)('key_usage')
    const running = new pg.Client({ connectionString: house.url })
    await running.connect()
    const start = async (): Promise<void> => {
      const client = await house.pool.connect()
      await prepareProjections(client, projections)
      client.release()
    }
    await start()
    await house.pool.query(`create table ${left} (a integer)`)
    await running.query('select pg_advisory_lock(hashtext($1))', [rebuildLock(keyUsage)])
    await start()
    expect(await leftovers()).toEqual([left])
    // A killed process loses its connection, and with it the lock.
    await running.end()
    await until('it is dropped', async () => {
      await start()
      return (await leftovers()).length === 0
    })
  })

  test('is refused if another rebuild of the projection is running, and does not disturb that one', async () => {
    await open()
    house.start()
    await calls('c', 20)
    await untilProjected(house)
    const waiting = Promise.withResolvers<void>()
    const reached = Promise.withResolvers<void>()
    const slow: EventLog = {
      ...house.eventLog,
      async *subscribe(options) {
        reached.resolve()
        await waiting.promise
        yield* house.eventLog.subscribe(options)
      },
    }
    const first = rebuildProjections({
      url: house.url,
      eventLog: slow,
      seal,
      projections: [keyUsage],
    }).then(() => 'rebuilt', String)
    await reached.promise
    const second = await house.rebuild(keyUsage).then(() => 'rebuilt', String)
    waiting.resolve()
    expect([await first, second]).toEqual([
      'rebuilt',
      expect.stringContaining('being rebuilt by another process'),
    ])
    expect((await house.verify(keyUsage)).differences).toEqual([])
    expect(await leftovers()).toEqual([])
  })

  test('clears parked events that can be folded now', async () => {
    await open()
    house.start()
    await calls('c', 3)
    await untilProjected(house)
    await house.pool.query(
      `insert into parked_events (projection, position, stream, error) values ('key_usage', 1, 'x', 'x'), ('api_keys', 1, 'x', 'x')`,
    )
    await house.rebuild(keyUsage)
    expect((await house.pool.query('select projection from parked_events')).rows).toEqual([
      { projection: 'api_keys' },
    ])
  })
})

describe('verify', () => {
  // Each test leaves rows that equal the log.
  beforeAll(async () => {
    await openEmpty()
    await open()
    house.start()
    await calls('c', 9)
    await untilProjected(house)
  })
  afterAll(() => house.close())

  test('reports unchanged rows as equal', async () => {
    const verdicts = new Map((await house.verifyAll()).map((verdict) => [verdict.name, verdict]))
    const position = await house.eventLog.head()
    for (const projection of projections) {
      const rows = Object.values(await house.live(projection)).flat().length
      expect(verdicts.get(projection.name)).toMatchObject({ differences: [], position, rows })
    }
    expect(await leftovers()).toEqual([])
  })

  test.each([
    ['changed', ledgerLines, 'ledger_lines', 'update $t set amount_micro = 0 where revision = 2', 1, 1],
    ['deleted', ledgerLines, 'ledger_lines', 'delete from $t where revision = 2', 0, 1],
    ['changed', accounts, 'account_lots', 'update $t set remaining_micro = remaining_micro + 1', 3, 3],
    [
      'added',
      keyUsage,
      'key_usage',
      `insert into $t values ('K9abcdefghijklmz', '2026-03-01', 'ip_lookup', 'answered', 1)`,
      1,
      0,
    ],
    [
      'added twice',
      keyUsage,
      'key_last_used',
      `insert into $t select 'K' || n, now() from generate_series(1, 9) n`,
      5,
      0,
    ],
  ] as const)(
    'a row %s by hand in %o is reported',
    async (_, projection, table, change, onlyLive, onlyRebuilt) => {
      await house.pool.query(
        change
          .replace('$t', liveTable(projection)(table))
          .replaceAll('revision = 2', `revision = 2 and ledger = ledger_key('${org}')`),
      )
      const { differences } = await house.verify(projection)
      expect(differences.map((one) => [one.table, one.onlyLive.length, one.onlyRebuilt.length])).toEqual([
        [table, onlyLive, onlyRebuilt],
      ])
      await house.rebuild(projection)
      expect((await house.verify(projection)).differences).toEqual([])
    },
  )
})

/** All projections, with `other` in place of the one with its name. */
const inPlace = (other: Projection): readonly Projection[] =>
  projections.map((one) => (one.name === other.name ? other : one))

describe('a raised version', () => {
  beforeEach(openEmpty)
  afterEach(() => house.close())

  /** The same figures in a column with another name, and one additional column. */
  const usageV2: Projection = {
    ...keyUsage,
    version: keyUsage.version + 1,
    tables: keyUsage.tables.map((table) =>
      table.name === 'key_last_used'
        ? { ...table, columns: { ...table.columns, remark: "text default 'second version'" } }
        : table,
    ),
  }

  test('is built next to the old version and switched; the old tables are dropped', async () => {
    await open()
    const old = house.start()
    await calls('old', 30)
    await untilProjected(house)
    await old.stop()
    await calls('between', 30)
    house.start({ only: inPlace(usageV2) })
    await until(
      'the version is raised',
      async () => (await house.checkpointOf(keyUsage)).version === usageV2.version,
    )
    await untilProjected(house)
    await expect(house.live(keyUsage)).rejects.toThrow('does not exist')
    const { rows } = await house.pool.query(
      'select remark, (select sum(calls) from key_usage)::integer as calls from key_last_used',
    )
    expect(rows).toEqual([{ remark: 'second version', calls: 60 }])
    await calls('new', 3)
    await untilProjected(house)
    expect((await house.pool.query('select sum(calls)::integer as calls from key_usage')).rows).toEqual([
      { calls: 63 },
    ])
    expect((await house.verify(usageV2)).differences).toEqual([])
  })

  test('of a read model that parks: an event that cannot be folded is parked again and does not block', async () => {
    await open()
    await calls('c', 5)
    await appendTo(house.eventLog, keyStream('K9abcdefghijklmn'), {
      type: 'SomethingOfTomorrow',
      data: '{}',
    })
    await issueKey(house.eventLog, 'K9abcdefghijklmo')
    const old = house.start()
    await untilProjected(house)
    await old.stop()
    house.start({ only: inPlace(raised(apiKeys)) })
    await calls('after', 5)
    await until(
      'the version is raised',
      async () => (await house.checkpointOf(apiKeys)).version === apiKeys.version + 1,
    )
    await untilProjected(house)
    expect((await house.pool.query('select projection, stream from parked_events')).rows).toEqual([
      { projection: 'audit', stream: keyStream('K9abcdefghijklmn') },
      { projection: 'api_keys', stream: keyStream('K9abcdefghijklmn') },
    ])
    expect((await house.pool.query('select count(*)::integer as n from api_keys')).rows).toEqual([{ n: 1 }])
  })

  test('an event that the database refuses is parked if the read model parks; if the rows are money, those of its stream stop', async () => {
    await open()
    await calls('c', 5)
    const [bad, unread, good] = ['K9abcdefghijklmn', 'K9abcdefghijklmo', 'K9abcdefghijklmp'] as const
    await issueKey(house.eventLog, bad)
    await issueKey(house.eventLog, unread)
    // The event log accepts any JSON text, but the database refuses the date in this one.
    await appendTo(
      house.eventLog,
      keyStream(bad),
      { type: 'ApiKeyRevoked', data: `{"key_id":"${bad}","reason":"leaked"}` },
      { metadata: '{"schema_version":1,"actor":"test","effective_at":"2026-99-99T00:00:00.000Z"}' },
    )
    await appendTo(house.eventLog, keyStream(unread), { type: 'ApiKeyRevoked', data: '"\u0001' })
    await issueKey(house.eventLog, good)
    const { messages } = house.start()
    await untilProjected(house)
    expect(messages).toContain(
      'projector: an event of a projection about access was set aside, because it cannot be applied',
    )
    const parked = async () =>
      (
        await house.pool.query(
          `select projection, stream, position from parked_events where projection = 'api_keys' order by position`,
        )
      ).rows
    const byProjector = await parked()
    expect(byProjector).toMatchObject([{ stream: keyStream(bad) }, { stream: keyStream(unread) }])
    const rows = await house.live(apiKeys)
    await house.rebuild(apiKeys)
    expect(await parked()).toEqual(byProjector)
    expect(await house.live(apiKeys)).toEqual(rows)
    expect((await house.verify(apiKeys)).differences).toEqual([])
    await house.rebuild({ ...apiKeys, money: true })
    expect(
      (await house.pool.query('select stream, position from halted_streams order by position')).rows,
    ).toEqual(byProjector.map(({ stream, position }) => ({ stream, position })))
    expect(await house.live(apiKeys)).toEqual(rows)
    expect(await leftovers()).toEqual([])
  })

  test('an event with U+0000, which PostgreSQL cannot store in text, is set aside by the projector and by a rebuild', async () => {
    const key = 'K9abcdefghijklmn'
    await issueKey(house.eventLog, key)
    await appendTo(house.eventLog, keyStream(key), {
      type: 'ApiKeyRevoked',
      data: `{"key_id":"${key}","reason":"leaked\\u0000"}`,
    })
    const { messages } = house.start()
    await untilProjected(house)
    expect(messages).toContain(
      'projector: an event of a projection about access was set aside, because it cannot be applied',
    )
    const parked = async () => (await house.pool.query('select projection, stream from parked_events')).rows
    expect(await parked()).toEqual([{ projection: 'api_keys', stream: keyStream(key) }])
    await house.rebuild(apiKeys)
    expect(await parked()).toEqual([{ projection: 'api_keys', stream: keyStream(key) }])
  })

  test('of money that cannot be built: the old version stays and the others continue', async () => {
    await open()
    const old = house.start()
    await untilProjected(house)
    await old.stop()
    await appendTo(house.eventLog, ledgerStream(org), { type: 'SomethingOfTomorrow', data: '{}' })
    const halting = house.start()
    await untilProjected(house, ['api_keys', 'key_usage'])
    await halting.stop()
    const before = await seen(ledgerLines)
    const broken: Projection = {
      ...raised(ledgerLines),
      fold: (events) => {
        if (events.length > 0) throw new Error('a fold with a bug')
        return []
      },
    }
    house.start({ only: [accounts, broken, apiKeys, keyUsage, profileCache] })
    await issueKey(house.eventLog, 'K9abcdefghijklmn')
    await untilProjected(house, ['api_keys', 'key_usage'])
    expect(await seen(ledgerLines)).toEqual(before)
    expect((await house.checkpointOf(ledgerLines)).version).toBe(ledgerLines.version)
  })
})
