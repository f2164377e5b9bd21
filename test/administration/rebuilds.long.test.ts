/** Operators handle rebuilds and events set aside. The event log records the actor and the reason. */
import pg from 'pg'
import pino from 'pino'
import { ulid } from 'ulid'
import { expect, test } from 'vitest'
import { accounts } from '../../projections/accounts.ts'
import { apiKeys } from '../../projections/api-keys.ts'
import { keyUsage } from '../../projections/key-usage.ts'
import { ledgerLines } from '../../projections/ledger-lines.ts'
import type { Projection } from '../../projections/projection.ts'
import { parkedEvents, releaseParked, stillUnreadable } from '../../src/administration/projections/parked.ts'
import { cancelRebuilds, rebuild, rebuilds } from '../../src/administration/projections/rebuilds.ts'
import type { EventLog } from '../../src/event-log/port.ts'
import { decodeEvent } from '../../src/event-log/stored-event.ts'
import { operatorStream } from '../../src/events/streams.ts'
import type { Foundation } from '../../src/foundation/foundation.ts'
import { Cancelled } from '../../src/projector/second-set.ts'
import { liveTable, rebuildLock } from '../../src/projector/tables.ts'
import { houseForFile } from '../support/house.ts'
import { pricedCall } from '../support/memory-process.ts'

const house = await houseForFile({ environment: { ROLES: 'api,dashboard,projector' } })
const limits = { requests_per_minute: 1_000_000, requests_per_day: 1_000_000 }
const partner = await house.partner({ credits: '100', limits })
for (let call = 0; call < 5; call++) await house.lookup(partner, { ip: '81.2.69.142' })
await house.projected()

/** The newest events in the operator stream, the newest first. */
const recorded = async (max: number) =>
  (await house.foundation.eventLog.read(operatorStream, { max, direction: 'backwards' })).map((event) => {
    const { type, data, metadata } = decodeEvent(event)
    return { type, data, actor: metadata.actor, id: event.id }
  })

const asked = (projections: readonly Projection[], foundation: Foundation = house.foundation) =>
  rebuild(foundation, {
    projections,
    reason: 'a rule changed',
    actor: 'user:ann',
    logger: pino({ level: 'silent' }),
    mayForget: async () => false,
    onProgress: () => undefined,
  })

test('a rebuild records its actor, reason and result; the differences are in its event, its row and its answer', async () => {
  const { organizationId } = partner
  await house.query(
    `update ${liveTable(ledgerLines)('ledger_lines')} set amount_micro = amount_micro - 1 where kind = 'grant'`,
  )
  const { rebuildId, differences, switched } = await asked([ledgerLines])
  expect(switched).toBe(true)
  expect(differences).toMatchObject([{ organization_id: organizationId, figure: 'balance' }])
  const [ended, request] = await recorded(2)
  expect(request).toMatchObject({
    type: 'RebuildRequested',
    id: rebuildId,
    actor: 'user:ann',
    data: { reason: 'a rule changed' },
  })
  expect(ended).toMatchObject({
    type: 'RebuildEnded',
    actor: 'user:ann',
    data: { rebuild_id: rebuildId, result: 'switched', differences: 1, named: differences },
  })
  expect((await rebuilds(house.foundation))[0]).toMatchObject({
    rebuild_id: rebuildId,
    state: 'switched',
    differences,
  })
})

test('a cancelled rebuild ends in the process where it runs, and does not change the live rows', async () => {
  const started = Promise.withResolvers<void>()
  const { eventLog } = house.foundation
  const slow: EventLog = {
    ...eventLog,
    async *subscribe(options) {
      started.resolve()
      // Delivers nothing until the subscription ends.
      await new Promise<void>((resolve) =>
        options.signal?.addEventListener('abort', () => resolve(), { once: true }),
      )
      yield* []
    },
  }
  // Makes more calls than the switch folds in its transaction.
  const { ledger } = house.foundation
  await Promise.all(
    Array.from({ length: 1_100 }, () =>
      ledger.submit(
        partner.organizationId,
        pricedCall({ requestId: ulid(), price: '0.01', keyId: partner.keyId }),
      ),
    ),
  )
  await house.projected()
  const running = asked([keyUsage], { ...house.foundation, eventLog: slow })
  running.catch(() => undefined)
  await started.promise
  const told = await cancelRebuilds(house.foundation, { projections: [keyUsage], actor: 'user:bob' })
  expect(told).toHaveLength(1)
  await expect(running).rejects.toThrow(Cancelled)
  await expect(running).rejects.toThrow('by user:bob')
  expect((await recorded(1))[0]).toMatchObject({
    type: 'RebuildEnded',
    data: { rebuild_id: told[0], result: 'cancelled' },
  })
  expect((await rebuilds(house.foundation))[0]).toMatchObject({ state: 'cancelled', rebuild_id: told[0] })
  expect(await house.query(`select tablename from pg_tables where tablename like '%\\_next'`)).toEqual([])
  expect(await cancelRebuilds(house.foundation, { projections: [keyUsage], actor: 'user:bob' })).toEqual([])
})

test('a rebuild whose process was frozen loses its lock when it is cancelled, so that the next rebuild can start', async () => {
  const frozen = new pg.Client({ connectionString: house.foundation.url })
  frozen.on('error', () => undefined)
  await frozen.connect()
  await frozen.query('select pg_advisory_lock(hashtext($1))', [rebuildLock(accounts)])
  await house.query(
    `insert into projection_rebuilds (rebuild_id, projections, actor, reason, updated_at) values ('frozen', '{accounts}', 'cli', 'x', now() - interval '1 h')`,
  )
  await expect(asked([accounts])).rejects.toThrow('accounts is being rebuilt by another process')
  expect(await cancelRebuilds(house.foundation, { projections: [accounts], actor: 'cli' })).toEqual([
    'frozen',
  ])
  expect((await asked([accounts])).switched).toBe(true)
  await expect(frozen.query('select 1')).rejects.toThrow()
})

test('a rebuild whose process died is shown as interrupted, and its tables are dropped when it is cancelled', async () => {
  await house.query(
    `insert into projection_rebuilds (rebuild_id, projections, actor, reason, updated_at) values ('gone', '{accounts}', 'cli', 'x', now() - interval '1 h')`,
  )
  await house.query(`insert into projection_builds (name, version, fold) values ('accounts', $1, 'x')`, [
    accounts.version,
  ])
  await house.foundation.pool.query(`create table accounts_v${accounts.version}_next (a integer)`)
  expect((await rebuilds(house.foundation)).find((one) => one.rebuild_id === 'gone')).toMatchObject({
    state: 'interrupted',
  })
  expect(await cancelRebuilds(house.foundation, { projections: [accounts], actor: 'cli' })).toEqual(['gone'])
  expect(await house.query(`select tablename from pg_tables where tablename like '%\\_next'`)).toEqual([])
})

test('events set aside are listed with their details; those about money or keys cannot be released, others can, by name', async () => {
  const [event] = await house.query(`select last_position from log_segments order by 1 limit 1`)
  const position = String(event?.last_position)
  for (const name of ['key_usage', 'api_keys'])
    await house.query(
      `insert into parked_events (projection, position, stream, error) values ($1, $2, 'some-stream', 'cannot be read')`,
      [name, position],
    )
  const listed = await parkedEvents(house.foundation, 'key_usage')
  expect(listed).toMatchObject([
    { projection: 'key_usage', position, type: expect.any(String), state: 'parked', error: 'cannot be read' },
  ])
  expect(await stillUnreadable(house.foundation, { position })).toBeNull()
  expect(await stillUnreadable(house.foundation, { position: String(10n ** 12n) })).toContain(
    'no longer contains it',
  )
  const release = (projection: Projection) =>
    releaseParked(house.foundation, {
      projection,
      position: BigInt(position),
      reason: 'of a release that was taken back',
      actor: 'user:ann',
    })
  await expect(release(ledgerLines)).rejects.toThrow('is about money')
  await expect(release(apiKeys)).rejects.toThrow('decides which calls are allowed')
  await release(keyUsage)
  expect(await parkedEvents(house.foundation, 'key_usage')).toMatchObject([
    { state: 'released', released_by: 'user:ann' },
  ])
  expect((await recorded(1))[0]).toMatchObject({
    type: 'ParkedEventReleased',
    data: { stream: 'some-stream', projection: 'key_usage' },
  })
  await expect(release(keyUsage)).rejects.toThrow('has no event set aside')
  // A key with an event that was set aside stays in doubt until the event is folded.
  await house.query(`delete from parked_events where projection = 'api_keys'`)
})
