/** Every event is folded into rows exactly once, even if projectors die or lag, or an event cannot be folded. */
import { pino } from 'pino'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { accounts } from '../../projections/accounts.ts'
import { projections } from '../../projections/index.ts'
import { ledgerLines } from '../../projections/ledger-lines.ts'
import type { Projection } from '../../projections/projection.ts'
import { type EventLog, type LogPlace, placeOf } from '../../src/event-log/port.ts'
import { openPostgresEventLog } from '../../src/event-log/postgres/index.ts'
import { eventIdOf } from '../../src/event-log/stored-event.ts'
import { keyStream, ledgerStream, referenceStream } from '../../src/events/streams.ts'
import type { Ledger } from '../../src/ledger/write/ledger.ts'
import { snapshotFrom } from '../../src/ledger/write/snapshot.ts'
import {
  Fenced,
  moveCheckpoints,
  readCheckpoints,
  strayCheckpoints,
} from '../../src/projector/checkpoints.ts'
import { acquireLease, leaseTtlMs, releaseLease } from '../../src/projector/held-work.ts'
import { liveTable } from '../../src/projector/tables.ts'
import { restorePostgresLog } from '../support/postgres.ts'
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
  projectionNames,
  seal,
  until,
  untilProjected,
} from './history.ts'

const [org = '', otherOrg = ''] = organizationIds

let house: House
let ledger: Ledger

beforeEach(async () => {
  house = await openHouse()
  ledger = ledgerOver(house.eventLog)
  await openOrganizations(ledger)
  await ledger.submit(org, plainGrant('opening', '1000'))
  await ledger.submit(otherOrg, plainGrant('opening', '1000'))
})

afterEach(() => house.close())

const calls = async (prefix: string, count: number, organizationId = org): Promise<void> => {
  await Promise.all(
    Array.from({ length: count }, (_, i) => ledger.submit(organizationId, plainCall(`${prefix}-${i}`))),
  )
}

const place = (position: bigint): LogPlace => ({
  position,
  eventId: '00000000-0000-4000-8000-000000000000',
  digest: 'x',
})

const count = async (what: string): Promise<number> =>
  Number((await house.pool.query<{ n: string }>(`select count(*) as n from ${what}`)).rows[0]?.n)

const callsUsed = async (): Promise<number> =>
  Number((await house.pool.query<{ n: string }>('select sum(calls) as n from key_usage')).rows[0]?.n)

const untilHalted = async (...only: readonly Projection[]): Promise<void> => {
  for (const projection of only)
    await until(
      `${projection.name} has halted`,
      async () => (await house.checkpointOf(projection)).state === 'halted',
    )
}

const stopped = async (): Promise<unknown[]> =>
  (
    await house.pool.query(
      'select projection, stream, position from halted_streams order by projection, position',
    )
  ).rows

const parked = async (): Promise<unknown[]> =>
  (await house.pool.query('select projection, stream from parked_events order by projection, position')).rows

/** Compares every projection's rows with those of a rebuild from the log. */
const expectSound = async (only: readonly Projection[] = projections): Promise<void> => {
  const verdicts = await house.verifyAll(only)
  expect(verdicts.map(({ name }) => name).sort()).toEqual(only.map(({ name }) => name).sort())
  for (const { name, differences } of verdicts) expect(differences, name).toEqual([])
}

const allRows = async (): Promise<Record<string, string[]>> => {
  const all: Record<string, string[]> = {}
  for (const projection of projections) Object.assign(all, await house.live(projection))
  return all
}

describe('following', () => {
  test('earlier events in the log and later events become rows; a restart changes nothing', async () => {
    await calls('before', 20)
    const first = house.start()
    await untilProjected(house)
    await calls('live', 20)
    await issueKey(house.eventLog, 'K9abcdefghijklmn')
    await untilProjected(house)
    expect(await count(`ledger_lines where kind = 'call' and amount_micro = -1000000`)).toBe(40)
    expect(await count('api_keys')).toBe(1)
    await first.stop()
    const rows = await allRows()
    house.start({ owner: 'two' })
    await calls('later', 1, otherOrg)
    await untilProjected(house)
    const after = await allRows()
    expect(after.api_keys).toEqual(rows.api_keys)
    expect(after.ledger_lines).toHaveLength((rows.ledger_lines?.length ?? 0) + 1)
    await expectSound()
  })

  test('a batch is written with its checkpoint or not at all', async () => {
    house.start()
    await untilProjected(house)
    await house.pool.query(`
      create function refuse() returns trigger language plpgsql as $$ begin raise exception 'no' using errcode = '53100'; end $$;
      create trigger refuse before update on projection_checkpoints for each row
        when (new.position <> old.position) execute function refuse()`)
    const before = await allRows()
    await calls('stuck', 5)
    const { messages } = house.start({ owner: 'watcher' })
    await until('the projector has failed', async () => {
      const { rows } = await house.pool.query(
        `select 1 from pg_stat_database where datname = current_database() and xact_rollback > 0`,
      )
      return rows.length > 0
    })
    expect(await allRows()).toEqual(before)
    await house.pool.query('drop trigger refuse on projection_checkpoints')
    await untilProjected(house)
    expect(messages).not.toContain(
      'projector: a stream was halted at an event that cannot be applied; its rows do not include this event or later ones',
    )
    await expectSound()
  })
})

describe('fencing', () => {
  test.each([
    ['a stale epoch', 'update projection_checkpoints set lease_epoch = 8'],
    ['a moved checkpoint', 'update projection_checkpoints set position = position + 1'],
    ['a halted projection', `update projection_checkpoints set state = 'halted'`],
  ])('%s: Fenced, and nothing of the transaction is written', async (_, change) => {
    await house.start().stop()
    await house.pool.query(`update projection_checkpoints set lease_epoch = 7, position = 5`)
    await house.pool.query(change)
    const before = await readCheckpoints(house.pool)
    const client = await house.pool.connect()
    try {
      await client.query('begin')
      await client.query(
        `insert into parked_events (projection, position, stream, error) values ('x', 1, 'x', 'x')`,
      )
      const moves = projections.map(({ name, version }) => ({ name, version, generation: 0, from: 5n }))
      await expect(moveCheckpoints(client, moves, { to: place(9n), epoch: 7n })).rejects.toThrow(Fenced)
    } finally {
      await client.query('rollback')
      client.release()
    }
    expect(await readCheckpoints(house.pool)).toEqual(before)
    expect(await count('parked_events')).toBe(0)
  })

  test('if one of several checkpoints is at another position: Fenced', async () => {
    const { stop } = house.start()
    await untilProjected(house)
    await stop()
    const head = await house.eventLog.head()
    await house.pool.query(`update projection_checkpoints set lease_epoch = 7`)
    await house.pool.query(
      `update projection_checkpoints set position = position - 1 where name = 'accounts'`,
    )
    const client = await house.pool.connect()
    try {
      const moves = projections.map(({ name, version }) => ({
        name,
        version,
        generation: 0,
        from: head,
      }))
      const level = moves.filter(({ name }) => name !== 'accounts')
      await client.query('begin')
      await moveCheckpoints(client, level, { to: place(head + 1n), epoch: 7n })
      await client.query('rollback')
      await expect(moveCheckpoints(client, moves, { to: place(head + 1n), epoch: 7n })).rejects.toThrow(
        Fenced,
      )
    } finally {
      client.release()
    }
  })

  test('a projector that lost its lease stops writing', async () => {
    const { messages } = house.start()
    await untilProjected(house)
    const before = await allRows()
    await house.pool.query(
      `update leases set owner = 'another', epoch = epoch + 1, expires_at = now() + interval '1 hour'`,
    )
    await house.pool.query('update projection_checkpoints set lease_epoch = lease_epoch + 1')
    await calls('fenced', 10)
    await until('the projector notices', () =>
      messages.some((message) => message.includes('another projector has moved a checkpoint')),
    )
    expect(await allRows()).toEqual(before)
  })

  test.each([
    ['all', projections],
    ['one whose rows cannot be written twice', [ledgerLines]],
  ] as const)(
    'a projector that lost its lease while the next one wrote the same events neither halts nor parks anything: %s',
    async (_, only) => {
      const late = gatedLog(house.eventLog)
      const own = only.map(({ name }) => name)
      const one = house.start({ owner: 'one', eventLog: late.eventLog, only })
      await untilProjected(house, own)
      late.close()
      await issueKey(house.eventLog, 'K9abcdefghijklmn')
      await calls('both', 10)
      await until('the late projector holds events', () => late.holding())
      const two = house.start({ owner: 'two', only })
      await until('the next projector has the lease', async () => {
        await house.pool.query(`update leases set expires_at = now() - interval '1 s' where owner = 'one'`)
        return two.messages.includes('projector: started')
      })
      await untilProjected(house, own)
      late.open()
      await until('the late projector has tried', () =>
        one.messages.some((message) => message !== 'projector: started'),
      )
      expect(await Promise.all(only.map(house.checkpointOf))).toMatchObject(
        only.map(() => ({ state: 'live' })),
      )
      expect(await parked()).toEqual([])
      await calls('after', 3)
      await untilProjected(house, own)
      await expectSound(only)
    },
  )

  test("a projector of an older release does not move a newer version's checkpoint", async () => {
    const raised: Projection = { ...ledgerLines, version: ledgerLines.version + 1 }
    house.start()
    await calls('old', 5)
    await untilProjected(house)
    await house.rebuild(raised)
    await calls('new', 5)
    await untilProjected(
      house,
      projectionNames.filter((name) => name !== 'ledger_lines'),
    )
    const { position } = await house.checkpointOf(ledgerLines)
    const { position: written } = (
      await house.pool.query<{ position: string }>(
        `select coalesce(max(g.last_position - (g.last_revision - least(l.revision + 1, g.last_revision))), 0) as position
           from ${liveTable(raised)('ledger_lines')} l
           join ${liveTable(raised)('statement_ledgers')} o using (ledger)
           join log_streams s on s.name = 'ledger-' || o.organization_id
           join log_segments g on g.stream_id = s.id and g.last_revision >= l.revision and g.last_revision - g.count < l.revision`,
      )
    ).rows[0] ?? { position: '0' }
    expect(position, 'the checkpoint is never ahead of the rows').toBeLessThanOrEqual(BigInt(written))
  })
})

/** An event log whose subscriptions deliver nothing while it is closed. */
const gatedLog = (eventLog: EventLog) => {
  let gate = Promise.withResolvers<void>()
  gate.resolve()
  let holding = false
  return {
    eventLog: {
      ...eventLog,
      async *subscribe(options: Parameters<EventLog['subscribe']>[0]) {
        for await (const item of eventLog.subscribe(options)) {
          holding = item.kind === 'events'
          if (holding) await gate.promise
          holding = false
          yield item
        }
      },
    } satisfies EventLog,
    close: () => {
      gate = Promise.withResolvers<void>()
    },
    open: () => gate.resolve(),
    holding: () => holding,
  }
}

describe('the lease', () => {
  test('only one of two projectors works; the other takes over when it stops', async () => {
    const one = house.start({ owner: 'one' })
    await until('one has started', () => one.messages.includes('projector: started'))
    const two = house.start({ owner: 'two' })
    for (let round = 0; round < 4; round++) {
      await calls(`round-${round}`, 10)
      await untilProjected(house)
    }
    expect(two.messages).toEqual([])
    await one.stop()
    await calls('after', 10)
    await untilProjected(house)
    expect(two.messages).toContain('projector: started')
    expect(await count(`ledger_lines where kind = 'call'`)).toBe(50)
    await expectSound()
  })

  test("a dead projector's lease is taken when it expires, not earlier", async () => {
    await house.pool.query(
      `insert into leases (name, owner, epoch, expires_at) values ('projector', 'dead', 41, now() + interval '1500 ms')`,
    )
    const { messages } = house.start({ owner: 'one' })
    await until('it has started', () => messages.includes('projector: started'))
    const { rows } = await house.pool.query(
      `select owner, epoch, expires_at > now() as holds, now() >= (select max(recorded_at) from log_segments) + interval '1400 ms' as late from leases`,
    )
    expect(rows).toMatchObject([{ owner: 'one', epoch: '42', holds: true }])
    await untilProjected(house)
    const epochs = await house.pool.query('select distinct lease_epoch from projection_checkpoints')
    expect(epochs.rows).toEqual([{ lease_epoch: '42' }])
  })

  test('can be free, held, renewed, expired or released', async () => {
    const name = 'tested'
    const acquire = (owner: string) => acquireLease(house.pool, { name, owner })
    expect(await acquire('a')).toBe(1n)
    expect(await acquire('b')).toBeNull()
    expect(await acquire('a')).toBe(1n)
    const { rows } = await house.pool.query<{ ms: number }>(
      `select extract(epoch from expires_at - now())::float8 * 1000 as ms from leases where name = $1`,
      [name],
    )
    expect(rows[0]?.ms).toBeGreaterThan(leaseTtlMs - 5_000)
    expect(rows[0]?.ms).toBeLessThanOrEqual(leaseTtlMs)
    await house.pool.query(`update leases set expires_at = now() - interval '1 ms' where name = $1`, [name])
    expect(await acquire('b')).toBe(2n)
    await releaseLease(house.pool, { name, owner: 'a' })
    expect(await acquire('a'), 'only the holder can release').toBeNull()
    await releaseLease(house.pool, { name, owner: 'b' })
    expect(await acquire('a')).toBe(3n)
  })

  test('only one of twenty concurrent requests gets it', async () => {
    const got = await Promise.all(
      Array.from({ length: 20 }, (_, i) => acquireLease(house.pool, { name: 'raced', owner: `o${i}` })),
    )
    expect(got.filter((epoch) => epoch !== null)).toEqual([1n])
  })
})

describe('events that cannot be folded', () => {
  const brokenCharge = { type: 'CreditCharged', data: '{"amount":"many","lines":[],"allocations":[]}' }
  const unknown = { type: 'SomethingOfTomorrow', data: '{"a":1}' }

  test("money: the ledger's rows stop before the event, and those of all other ledgers continue", async () => {
    await calls('before', 5)
    await appendTo(house.eventLog, ledgerStream(org), brokenCharge)
    const broken = await house.eventLog.head()
    await calls('after', 5, otherOrg)
    const { messages } = house.start()
    await untilProjected(house)
    expect(await stopped()).toEqual(
      ['accounts', 'ledger_index', 'ledger_lines'].map((projection) => ({
        projection,
        stream: ledgerStream(org),
        position: String(broken),
      })),
    )
    expect(await count(`ledger_lines where kind = 'call' and organization_id = '${org}'`)).toBe(5)
    expect(await count(`ledger_lines where kind = 'call' and organization_id = '${otherOrg}'`)).toBe(5)
    expect(
      await count(`accounts where organization_id = '${org}' and revision = 11 and charged_micro = 5000000`),
    ).toBe(1)
    expect(await count(`accounts where organization_id = '${otherOrg}' and charged_micro = 5000000`)).toBe(1)
    expect(await callsUsed()).toBe(10)
    expect(messages.some((message) => message.includes('a stream was halted at an event'))).toBe(true)
    expect(await parked()).toEqual([{ projection: 'usage_buckets', stream: ledgerStream(org) }])
    await calls('later', 3, otherOrg)
    await untilProjected(house)
    expect(await count(`accounts where organization_id = '${otherOrg}' and charged_micro = 8000000`)).toBe(1)
  })

  test('money: a rebuild and a restarted projector stop at the same place and nowhere else', async () => {
    await calls('before', 2)
    await appendTo(house.eventLog, ledgerStream(org), brokenCharge)
    await calls('after', 2, otherOrg)
    const first = house.start()
    await untilProjected(house)
    const before = await stopped()
    const rows = await allRows()
    for (const projection of [accounts, ledgerLines]) await house.rebuild(projection)
    expect(await stopped()).toEqual(before)
    expect(await allRows()).toEqual(rows)
    await expectSound()
    await first.stop()
    house.start({ owner: 'two' })
    await calls('later', 2, otherOrg)
    await untilProjected(house)
    expect(await stopped()).toEqual(before)
    expect(await count(`ledger_lines where kind = 'call' and organization_id = '${otherOrg}'`)).toBe(4)
  })

  test('an event of an unknown type stops the rows of money, and is parked in other projections', async () => {
    await calls('before', 2)
    await appendTo(house.eventLog, ledgerStream(org), unknown)
    await calls('after', 2, otherOrg)
    await appendTo(house.eventLog, keyStream('K9abcdefghijklmn'), unknown)
    await issueKey(house.eventLog, 'K9abcdefghijklmo')
    house.start()
    await untilProjected(house)
    expect(await stopped()).toMatchObject([
      { projection: 'accounts', stream: ledgerStream(org) },
      { projection: 'ledger_index', stream: ledgerStream(org) },
      { projection: 'ledger_lines', stream: ledgerStream(org) },
    ])
    expect(await parked()).toEqual([
      { projection: 'api_keys', stream: keyStream('K9abcdefghijklmn') },
      // Someone could have changed the event.
      { projection: 'audit', stream: ledgerStream(org) },
      { projection: 'audit', stream: keyStream('K9abcdefghijklmn') },
      { projection: 'key_usage', stream: ledgerStream(org) },
      { projection: 'pixel_days', stream: ledgerStream(org) },
      { projection: 'usage_buckets', stream: ledgerStream(org) },
    ])
    expect(await count('api_keys')).toBe(1)
    expect(await callsUsed()).toBe(4)
  })

  test('an unknown event in a stream that projections do not read stops none of them', async () => {
    await appendTo(house.eventLog, referenceStream(org, 'x'), unknown)
    await calls('after', 2)
    house.start()
    await untilProjected(house)
    expect(await parked()).toEqual([])
  })

  test('if a ledger breaks its own rules, or the database refuses rows, the earlier rows stay', async () => {
    house.start()
    await untilProjected(house)
    await calls('before', 3)
    await appendTo(house.eventLog, ledgerStream(org), {
      type: 'CreditExpired',
      data: { grant_id: eventIdOf(org, 'opening', 0), amount: '100000' },
    })
    const refused = await house.eventLog.head()
    await issueKey(house.eventLog, 'K9abcdefghijklmn')
    await appendTo(house.eventLog, keyStream('K9abcdefghijklmn'), {
      type: 'ApiKeyIssued',
      data: {
        key_id: 'K9abcdefghijklmn',
        organization_id: org,
        organization_name: 'again',
        name: 'again',
        secret_hmac: 'A'.repeat(43),
        last4: 'wxyz',
        permissions: [],
        limits: { requests_per_minute: 1, requests_per_day: 1, email_validations_per_second: 10 },
        allowed_cidrs: [],
        expires_at: null,
      },
    })
    await issueKey(house.eventLog, 'K9abcdefghijklmo')
    await untilProjected(house)
    expect(await stopped()).toEqual([
      { projection: 'accounts', stream: ledgerStream(org), position: String(refused) },
    ])
    expect(
      await count(
        `accounts where organization_id = '${org}' and charged_micro = 3000000 and expired_micro = 0`,
      ),
    ).toBe(1)
    expect(await parked()).toEqual([{ projection: 'api_keys', stream: keyStream('K9abcdefghijklmn') }])
    expect((await house.pool.query('select name from api_keys order by key_id')).rows).toEqual([
      { name: 'backend' },
      { name: 'backend' },
    ])
  })

  test('missing tables halt the projection, not an event; it continues by itself after a rebuild', async () => {
    house.start()
    await untilProjected(house)
    await house.pool.query(`drop table ${liveTable(accounts)('account_lots')} cascade`)
    await calls('spoilt', 3)
    await untilHalted(accounts)
    expect(await stopped()).toEqual([])
    await untilProjected(house, ['ledger_lines', 'api_keys', 'key_usage'])
    await house.rebuild(accounts)
    expect(await house.checkpointOf(accounts)).toMatchObject({ state: 'live', error: null })
    await calls('after', 3)
    await untilProjected(house)
    await expectSound()
  })
})

describe('rows of a read model that someone has changed', () => {
  const snapshot = () => snapshotFrom(house.pool, seal)
  const lots = (): Promise<unknown[]> =>
    house.pool
      .query(`select remaining_micro from account_lots where organization_id = '${org}' order by revision`)
      .then(({ rows }) => rows)

  const changes = [
    ['a lot', `update account_lots_v1 set remaining_micro = remaining_micro + 5000000`],
    ['the overdraft', `update accounts_v1 set overdraft_limit_micro = 5000000`],
    ['the digest', `update accounts_v1 set digest = 'x'`],
    ['the revision', `update accounts_v1 set revision = revision - 2`],
    [
      'an additional lot',
      `insert into account_lots_v1 select organization_id, gen_random_uuid(), 0, null, 1, 5000000, 5000000 from accounts_v1`,
    ],
    [
      'a price',
      `insert into account_price_overrides_v1 select organization_id, (random() * 1000000)::integer, 'ip_lookup', 0, now() from accounts_v1`,
    ],
    [
      'the seal of another row',
      `update accounts_v1 a set seal = b.seal from accounts_v1 b where a.seal <> b.seal`,
    ],
  ] as const

  test("are not a snapshot, and the projector's next write does not make them one", async () => {
    await calls('before', 5)
    let { stop } = house.start()
    await untilProjected(house)
    expect(await snapshot()(org)).toMatchObject({ revision: 11 })
    for (const [round, [what, change]] of changes.entries()) {
      const revision = 11 + 4 * round
      await house.pool.query(change)
      expect([what, await snapshot()(org)]).toEqual([what, 'not sealed'])
      await calls(`while ${what}`, 1)
      await untilProjected(house)
      const held = await snapshot()(org)
      // A row is valid once the projector has rewritten it. Until then it is not used as a snapshot.
      if (held !== 'not sealed') expect([what, held]).toMatchObject([what, { revision: revision + 2 }])
      await stop()
      await house.pool.query(change)
      stop = house.start({ owner: what }).stop
      await calls(`after ${what}`, 1)
      await untilProjected(house)
      expect([what, await snapshot()(org)]).toMatchObject([what, { revision: revision + 4, overdrawn: 0n }])
      expect([what, await lots()]).toEqual([what, [{ remaining_micro: `${993 - 2 * round}000000` }]])
      expect([what, await snapshot()(otherOrg)]).toEqual([what, 'not sealed'])
      await house.rebuild(accounts)
      expect([what, await snapshot()(otherOrg)]).toMatchObject([what, { revision: 1 }])
    }
    await expectSound()
  })
})

describe('an event log restored from an older copy', () => {
  let reopened: EventLog | undefined
  /** Calls continue with a newly opened log, because the previous one refuses to append to a log that is shorter than what it has read. */
  const restoreTo = async (position: bigint): Promise<void> => {
    await restorePostgresLog(house.url, position)
    reopened = openPostgresEventLog({ url: house.url, logger: pino({ level: 'silent' }) })
    ledger = ledgerOver(reopened)
  }
  afterEach(async () => {
    await reopened?.close()
    reopened = undefined
  })

  test.each([
    ['outgrown the rows', 30],
    ['shorter than the rows', 0],
  ] as const)(
    '%s: projectors fold nothing onto the existing rows until these are rebuilt',
    async (_, more) => {
      await calls('before', 5)
      const first = house.start()
      await untilProjected(house)
      await first.stop()
      const before = await allRows()
      await restoreTo((await house.eventLog.head()) - 6n)
      await calls('after', 1 + more)
      for (const owner of ['two', 'three']) {
        const { messages, stop } = house.start({ owner })
        await until(`${owner} reports it`, () => messages.some((message) => message.includes('restored')))
        await stop()
      }
      for (const projection of projections)
        expect(await house.checkpointOf(projection)).toMatchObject({
          state: 'halted',
          error: expect.stringContaining('restored from an older copy'),
        })
      expect(await allRows()).toEqual(before)
      await house.restart()
      for (const projection of projections) await house.rebuild(projection)
      house.start({ owner: 'four' })
      await calls('later', 3)
      await untilProjected(house)
      await expectSound()
    },
  )

  test('a release with a higher version does not replace the only rows that still have the lost data', async () => {
    await calls('before', 5)
    const first = house.start()
    await untilProjected(house)
    await first.stop()
    const before = await allRows()
    await restoreTo((await house.eventLog.head()) - 6n)
    const raised = projections.map((one) => ({ ...one, version: one.version + 1 }))
    const { messages } = house.start({ owner: 'two', only: raised })
    await until('it has decided', () => messages.some((message) => message.includes('new version')))
    expect(messages.filter((message) => message.includes('building a new version'))).toEqual([])
    expect(await allRows()).toEqual(before)
  })

  test('under a running projector: it halts, and folds no event from the new history', async () => {
    await calls('before', 5)
    const { messages } = house.start()
    await untilProjected(house)
    const before = await allRows()
    await restoreTo((await house.eventLog.head()) - 6n)
    await calls('after', 30)
    await until('it reports that', () => messages.some((message) => message.includes('restored')))
    expect(await allRows()).toEqual(before)
    await until('all are halted', async () =>
      (await readCheckpoints(house.pool)).every(({ state }) => state === 'halted'),
    )
  })

  test('each of several checkpoints at the same position is checked against its own event', async () => {
    await calls('before', 5)
    const first = house.start()
    await untilProjected(house)
    await first.stop()
    for (const { name } of projections) {
      await house.pool.query(
        `update projection_checkpoints set digest = case name when $1 then 'of the log before' else $2 end`,
        [
          name,
          placeOf((await house.eventLog.at(await house.eventLog.head())) ?? expect.unreachable()).digest,
        ],
      )
      const stray = await strayCheckpoints(house.eventLog, await readCheckpoints(house.pool))
      expect(stray.map((one) => one.name)).toEqual([name])
    }
  })

  test('a projector does not continue from a checkpoint that was moved by hand', async () => {
    await calls('before', 5)
    const first = house.start()
    await untilProjected(house)
    await first.stop()
    await house.pool.query(
      `update projection_checkpoints set position = position - 1 where name = 'accounts'`,
    )
    const before = await allRows()
    await calls('after', 5)
    const { messages } = house.start({ owner: 'two' })
    await until('it reports that', () => messages.some((message) => message.includes('restored')))
    await untilProjected(house, ['ledger_lines', 'api_keys', 'key_usage', 'profile_cache'])
    expect((await allRows()).accounts).toEqual(before.accounts)
    await house.rebuild(accounts)
    await untilProjected(house)
    await expectSound()
  })
})
