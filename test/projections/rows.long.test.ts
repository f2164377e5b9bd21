/** The rows of each projection for a history. They are the same for any division into batches. */
import { randomUUID } from 'node:crypto'
import type pg from 'pg'
import { afterAll, describe, expect, test } from 'vitest'
import { accounts } from '../../projections/accounts.ts'
import { apiKeys, keysAfter } from '../../projections/api-keys.ts'
import { audit } from '../../projections/audit.ts'
import { projections } from '../../projections/index.ts'
import { keyUsage, lastUsedOf } from '../../projections/key-usage.ts'
import {
  correctionsAfter,
  ledgerIndex,
  movedBefore,
  movementOf,
  placesOfRequest,
  replaysOf,
} from '../../projections/ledger-index.ts'
import {
  type IdempotentCallRow,
  idempotentCalls,
  ledgerLines,
  unbalancedAccounts,
} from '../../projections/ledger-lines.ts'
import { pixelDays } from '../../projections/pixel-days.ts'
import { profileCache } from '../../projections/profile-cache.ts'
import type { ProjectedEvent, TableName } from '../../projections/projection.ts'
import { keepNewest, statementOf } from '../../projections/rows.ts'
import { callOfEvent, callsOfRequest, lastLineOf, neighbourCall } from '../../projections/statement-lines.ts'
import { usageBuckets } from '../../projections/usage-buckets.ts'
import { parseCredits } from '../../src/billing/money.ts'
import type { RecordedEvent } from '../../src/event-log/port.ts'
import { type DecodedEvent, decodeEvent } from '../../src/event-log/stored-event.ts'
import type { LedgerEvent } from '../../src/events/catalogue.ts'
import { keyStream, ledgerStream } from '../../src/events/streams.ts'
import { evolveKey, isKeyEvent, type KeyState } from '../../src/keys/key-state.ts'
import { type Account, balanceOf, evolve, newAccount } from '../../src/ledger/account.ts'
import { verifyLedger } from '../../src/ledger/check/verify.ts'
import { snapshotFrom } from '../../src/ledger/write/snapshot.ts'
import { decodeBatch } from '../../src/projector/batch.ts'
import { createFolder, type Folder } from '../../src/projector/fold.ts'
import {
  createIndexes,
  createTables,
  createViews,
  dropTables,
  liveTable,
  writeChanges,
} from '../../src/projector/tables.ts'
import { seededRandom } from '../ip-lookup/seeded-random.ts'
import { testDatabase } from '../support/postgres.ts'
import { openHouse, organizationIds, rowsOf, seal, wholeLog, writeHistory } from './history.ts'

/** The rows of the whole history, folded in one batch. */

const cutTable: TableName = (name) => `${name}_cut`

/** Folds the history in batches that end at the given indexes. */
const foldCut = async (ends: readonly number[]): Promise<Record<string, string[]>> => {
  const rows: Record<string, string[]> = {}
  for (const projection of projections) {
    await createTables(client, projection, cutTable)
    await createIndexes(client, projection, cutTable)
    let from = 0
    const folder = createFolder(projection, { table: cutTable, eventLog: house.eventLog, seal })
    for (const end of [...ends, recorded.length]) {
      await foldInto(folder, recorded.slice(from, end))
      from = end
    }
    Object.assign(rows, await rowsOf(client, projection, cutTable))
  }
  return rows
}

type Plan = {
  readonly 'Actual Rows': number
  readonly 'Actual Loops': number
  readonly 'Rows Removed by Filter'?: number
  readonly Plans?: readonly Plan[]
}

/** The number of rows that all steps of a query read or passed on. */
const rowsRead = (plan: Plan): number =>
  (plan['Actual Rows'] + (plan['Rows Removed by Filter'] ?? 0)) * plan['Actual Loops'] +
  (plan.Plans ?? []).reduce((sum, below) => sum + rowsRead(below), 0)

const foldInto = async (folder: Folder, events: readonly RecordedEvent[]): Promise<void> => {
  const decoded = decodeBatch(events)
  await folder.prepare(client, decoded)
  const { changes, poison } = folder.fold(decoded)
  expect(poison).toEqual([])
  await writeChanges(client, changes, folder.table)
}

/** Calls `see` with every event, in order, and the account after that event. */
const eachLedgerEvent = (
  organizationId: string,
  see: (event: DecodedEvent, account: Account) => void,
): Account => {
  const account = newAccount(organizationId)
  for (const event of history) {
    if (event.recorded.stream !== ledgerStream(organizationId)) continue
    evolve(account, { type: event.type, data: event.data } as LedgerEvent, event.recorded.revision)
    account.digest = event.metadata.digest ?? ''
    see(event, account)
  }
  return account
}

// This test creates the tables itself.
const house = await openHouse(testDatabase)
await writeHistory(house.eventLog, { seed: 7, steps: 90 })
const recorded: RecordedEvent[] = await wholeLog(house.eventLog)
const history: DecodedEvent[] = recorded.map(decodeEvent)
const client = await house.pool.connect()
for (const projection of projections) {
  await createTables(client, projection, liveTable(projection))
  await createIndexes(client, projection, liveTable(projection))
  await createViews(client, projection)
  await foldInto(
    createFolder(projection, { table: liveTable(projection), eventLog: house.eventLog, seal }),
    recorded,
  )
}
const whole: Record<string, string[]> = {}
for (const projection of projections)
  Object.assign(whole, await rowsOf(client, projection, liveTable(projection)))

afterAll(async () => {
  client.release()
  await house.close()
})

test('the history is valid and covers many cases', async () => {
  for (const organizationId of organizationIds)
    expect((await verifyLedger(house.eventLog, organizationId)).fault).toBeNull()
  expect(recorded.length).toBeGreaterThan(500)
  const counts = Map.groupBy(history, ({ type }) => type)
  for (const type of [
    'CreditGranted',
    'CreditExpired',
    'PriceOverrideSet',
    'KeyUsed',
    'RateLimitExceeded',
    'CallsRefused',
    'CreditCharged',
    'CreditAdjusted',
  ] as const)
    expect(counts.get(type)?.length ?? 0, type).toBeGreaterThanOrEqual(3)
  const overdrawn = organizationIds.filter((organizationId) => {
    let went = false
    eachLedgerEvent(organizationId, (_, { overdrawn }) => {
      went ||= overdrawn > 0n
    })
    return went
  })
  expect(overdrawn.length).toBeGreaterThan(0)
  const codes = history.flatMap((event) => (event.type === 'KeyUsed' ? [event.data.code] : []))
  expect(codes).toContain('CREDIT_001')
})

describe('batches', () => {
  test('the rows are the same for a cut at every boundary, even between a call and its charge', async () => {
    expect(
      await foldCut(
        recorded
          .keys()
          .toArray()
          .map((i) => i + 1),
      ),
    ).toEqual(whole)
  })

  test('the rows are the same for cuts at random boundaries', async () => {
    const random = seededRandom(11)
    for (let round = 0; round < 5; round++) {
      const cuts = Array.from({ length: 1 + random.integer(30) }, () => random.integer(recorded.length)).sort(
        (a, b) => a - b,
      )
      expect(await foldCut(cuts), `cut at ${cuts.join(', ')}`).toEqual(whole)
    }
  })

  test('a fold does not change its input, and returns the same changes again', () => {
    const decoded = decodeBatch(recorded)
    const before = structuredClone(decoded.events)
    for (const projection of projections) {
      const folder = createFolder(projection, { table: cutTable, eventLog: house.eventLog, seal })
      const { undo, ...once } = folder.fold(decoded)
      undo()
      expect(folder.fold(decoded)).toMatchObject(once)
    }
    expect(decoded.events).toEqual(before)
  })
})

/** The account without the fields that rows do not store: when the last event was recorded, and whether it was a correction. */
const asInRows = (account: Account): Account => ({
  ...account,
  recordedAtMs: 0,
  adjustedRevision: account.revision,
  reratedRevision: account.revision,
})

describe('accounts', () => {
  test('a snapshot equals the fold of the stream at any position of the projection', async () => {
    expect(await snapshotFrom(house.pool, seal)('org_01K9NNNNNNNNNNNNNNNNNNNNNN')).toBeNull()
    const aside = await house.pool.connect()
    try {
      await aside.query('begin')
      for (const { name } of accounts.tables) await aside.query(`truncate ${liveTable(accounts)(name)}`)
      const snapshot = snapshotFrom(aside as unknown as pg.Pool, seal)
      const folded = new Map(
        organizationIds.map((organizationId) => [ledgerStream(organizationId), newAccount(organizationId)]),
      )
      const folder = createFolder(accounts, {
        table: liveTable(accounts),
        eventLog: house.eventLog,
        seal,
      })
      for (const [i, event] of recorded.entries()) {
        const { changes } = folder.fold(decodeBatch([event]))
        await writeChanges(aside, changes, folder.table)
        const account = folded.get(event.stream)
        const decoded = history[i]
        if (account === undefined || decoded === undefined) continue
        evolve(account, { type: decoded.type, data: decoded.data } as LedgerEvent, event.revision)
        account.digest = decoded.metadata.digest ?? ''
        expect(await snapshot(account.organizationId), `after ${event.type} ${event.position}`).toEqual(
          asInRows(account),
        )
      }
    } finally {
      await aside.query('rollback')
      aside.release()
    }
  })

  test('granted, charged, expired and adjusted are the sums of their events, and add up to the balance', async () => {
    for (const organizationId of organizationIds) {
      const sums = { granted: 0n, charged: 0n, expired: 0n, adjusted: 0n }
      const account = eachLedgerEvent(organizationId, ({ type, data }) => {
        if (type === 'CreditGranted') sums.granted += parseCredits(data.amount)
        if (type === 'CreditCharged') sums.charged += parseCredits(data.amount)
        if (type === 'CreditExpired') sums.expired += parseCredits(data.amount)
        if (type === 'CreditAdjusted') sums.adjusted += parseCredits(data.amount)
      })
      const { rows } = await house.pool.query<Record<string, string>>(
        `select granted_micro::text as granted, charged_micro::text as charged, expired_micro::text as expired,
                adjusted_micro::text as adjusted,
                ((select sum(remaining_micro) from account_lots l where l.organization_id = a.organization_id)
                 - overdrawn_micro)::text as balance
           from accounts a where organization_id = $1`,
        [organizationId],
      )
      const total = sums.granted - sums.charged - sums.expired + sums.adjusted
      expect(rows).toEqual([
        {
          granted: String(sums.granted),
          charged: String(sums.charged),
          expired: String(sums.expired),
          adjusted: String(sums.adjusted),
          balance: String(total),
        },
      ])
      expect(balanceOf(account, Number.NEGATIVE_INFINITY)).toBe(total)
    }
  })
})

describe('ledger_lines', () => {
  type Line = { revision: string; kind: string; amount_micro: string; [column: string]: unknown }

  const linesOf = async (organizationId: string): Promise<Line[]> =>
    (
      await house.pool.query<Line>(
        'select * from ledger_lines where organization_id = $1 order by revision',
        [organizationId],
      )
    ).rows

  test('one line for each call with its cost, one for each movement, and none for other events', async () => {
    for (const organizationId of organizationIds) {
      const expected = new Map<number, Record<string, unknown>>()
      eachLedgerEvent(organizationId, ({ type, data, recorded: { id, revision }, metadata }) => {
        const line = {
          revision: String(revision),
          event_id: id as string | null,
          request_id: metadata.request_id ?? null,
          effective_at: new Date(metadata.effective_at),
        }
        const micro = (amount: string) => parseCredits(amount).toString()
        if (type === 'KeyUsed')
          expected.set(revision, {
            ...line,
            // The event id of any other call derives from its request id.
            event_id: data.idempotent === true || line.request_id === null ? id : null,
            kind: 'call',
            key_id: data.key_id,
            capability: data.capability,
            outcome: data.outcome,
            code: data.code ?? null,
            calls: '1',
            amount_micro: '0',
            rule: data.free_by?.rule ?? null,
            rule_version: data.free_by?.rule_version ?? null,
            charge_id: null,
            lines: null,
            idempotent: data.idempotent === true,
          })
        if (type === 'CreditCharged')
          expected.set(revision - 1, {
            ...expected.get(revision - 1),
            amount_micro: `-${micro(data.amount)}`,
            rule: data.rule,
            rule_version: data.rule_version,
            price_book_version: data.price_book_version,
            charge_id: expected.get(revision - 1)?.idempotent === true ? data.charge_id : null,
            lines: data.lines.length > 1 ? data.lines : null,
          })
        if (type === 'CreditGranted')
          expected.set(revision, {
            ...line,
            kind: 'grant',
            calls: null,
            amount_micro: micro(data.amount),
            charge_id: null,
            grant_id: data.grant_id,
          })
        if (type === 'CreditExpired')
          expected.set(revision, {
            ...line,
            kind: 'expiry',
            calls: null,
            amount_micro: `-${micro(data.amount)}`,
            charge_id: null,
            grant_id: data.grant_id,
          })
        if (type === 'CreditAdjusted')
          expected.set(revision, {
            ...line,
            kind: 'adjustment',
            amount_micro: micro(data.amount),
            calls: null,
            charge_id: null,
            grant_id: null,
            adjusts: data.adjusts,
          })
        if (type === 'RateLimitExceeded')
          expected.set(revision, {
            ...line,
            kind: 'rate_limited',
            key_id: data.key_id,
            outcome: 'refused',
            calls: String(data.count),
            code: 'RATE_001',
            amount_micro: '0',
          })
        if (type === 'CallsRefused')
          expected.set(revision, {
            ...line,
            kind: 'refused',
            key_id: data.key_id,
            outcome: data.outcome,
            calls: String(data.counts.reduce((sum, { count }) => sum + count, 0)),
            code: data.code,
            amount_micro: '0',
            rule: 'refusal',
            rule_version: 1,
          })
      })
      const lines = await linesOf(organizationId)
      expect(lines).toMatchObject([...expected.values()])
      expect(lines).toHaveLength(expected.size)
    }
  })

  test("the movements add up to the account's balance, and a changed line is detected", async () => {
    const { rows } = await house.pool.query<{ organization_id: string; micro: string }>(
      'select organization_id, sum(amount_micro)::text as micro from ledger_lines group by 1 order by 1',
    )
    expect(rows).toEqual(
      organizationIds.map((organizationId) => {
        const account = eachLedgerEvent(organizationId, () => undefined)
        return {
          organization_id: organizationId,
          micro: String(balanceOf(account, Number.NEGATIVE_INFINITY)),
        }
      }),
    )
    const { text, values } = unbalancedAccounts()
    expect((await house.pool.query(text, [...values])).rows).toEqual([])
    const [organizationId] = organizationIds
    await client.query('begin')
    await client.query(
      `update ${liveTable(ledgerLines)('ledger_lines')} set amount_micro = amount_micro + 1
        where ledger = ledger_key($1) and revision = 1`,
      [organizationId],
    )
    expect((await client.query(text, [...values])).rows).toMatchObject([{ organization_id: organizationId }])
    await client.query('rollback')
  })

  test('an idempotent call is found by its event id, and only in its own ledger; other calls are not found', async () => {
    const used = history.filter(({ type }) => type === 'KeyUsed')
    let found = 0
    for (const {
      data,
      recorded: { stream, id, revision },
    } of used.slice(0, 80)) {
      const own = stream.slice('ledger-'.length)
      const look = async (organizationId: string) => {
        const { text, values } = idempotentCalls([{ organizationId, eventId: id }])
        const { rows } = await house.pool.query<IdempotentCallRow>(text, [...values])
        return rows.flatMap(({ revision }) => (revision === null ? [] : [Number(revision)]))
      }
      const idempotent = 'idempotent' in data
      found += Number(idempotent)
      expect(await look(own)).toEqual(idempotent ? [revision] : [])
      expect(await look(organizationIds.find((one) => one !== own) ?? '')).toEqual([])
      const { text, values } = callOfEvent(id)
      const { rows } = await house.pool.query(text, [...values])
      expect(rows).toMatchObject(idempotent ? [{ organization_id: own, revision: String(revision) }] : [])
    }
    expect(found).toBeGreaterThan(5)
  })

  test('queries for calls and pages in a long ledger read a few of its lines, not all', async () => {
    const [organizationId = ''] = organizationIds
    const lines = liveTable(ledgerLines)('ledger_lines')
    await client.query('begin')
    try {
      await client.query(
        `insert into ${lines} (ledger, revision, amount_micro, effective_at, idempotent, kind, request_id)
         select ledger_key($1), 1000000 + n, 0, now(), false, 'call', 'request-' || n from generate_series(1, 100000) n`,
        [organizationId],
      )
      // These statistics are from before the first call with an Idempotency-Key.
      await client.query(`delete from ${lines} where idempotent`)
      await client.query(`analyze ${lines}`)
      await client.query(
        `insert into ${lines} (ledger, revision, amount_micro, effective_at, idempotent, kind, request_id, event_id)
         select ledger_key($1), 2000000 + n, 0, now(), true, 'call', 'keyed-' || n, gen_random_uuid() from generate_series(1, 3000) n`,
        [organizationId],
      )
      const asked = {
        'where the calls of a key are': idempotentCalls(
          organizationIds.map((id) => ({
            organizationId: id,
            eventId: randomUUID(),
          })),
        ),
        'the last line': lastLineOf(organizationId),
        'where the calls of a request are': placesOfRequest(organizationId, {
          requestId: 'request-7',
          max: 16,
        }),
        'the calls of a request': callsOfRequest('request-7', organizationId),
        'the calls of a request, of any organization': callsOfRequest('request-7', null),
        'the call of an event': callOfEvent(randomUUID()),
        ...Object.fromEntries(
          (['before', 'after'] as const).map((side) => [
            `the call ${side} one`,
            neighbourCall(organizationId, { revision: 1_010_000, requestId: 'request-10000', side }),
          ]),
        ),
      }
      for (const [name, { text, values }] of Object.entries(asked)) {
        const explain = `explain (analyze, format json) ${text}`
        const { rows } = await client.query<{ 'QUERY PLAN': [{ Plan: Plan }] }>(explain, [...values])
        const plan = rows[0]?.['QUERY PLAN'][0].Plan
        expect.soft(plan && rowsRead(plan), name).toBeLessThan(100)
      }
    } finally {
      await client.query('rollback')
    }
  })
})

describe('api_keys', () => {
  test('every key equals the fold of its stream', async () => {
    const { text, values } = keysAfter(null, { after: null, max: 100 })
    const { rows } = await house.pool.query<Record<string, unknown> & { key_id: string }>(text, [...values])
    expect(rows).toHaveLength(6)
    for (const row of rows) {
      let state: KeyState | undefined
      for (const event of history)
        if (event.recorded.stream === keyStream(row.key_id) && isKeyEvent(event))
          state = evolveKey(state, event, event.metadata.effective_at)
      const at = (instant: string | null | undefined) =>
        instant === null || instant === undefined ? null : new Date(instant)
      expect(row).toMatchObject({
        organization_id: state?.organizationId,
        organization_name: state?.organizationName,
        name: state?.name,
        secret_hmac: state?.secretHmac,
        last4: state?.last4,
        permissions: state?.permissions,
        limits: state?.limits,
        allowed_cidrs: state?.allowedCidrs,
        created_at: at(state?.createdAt),
        expires_at: at(state?.expiresAt),
        successor_id: state?.successorId,
        grace_until: at(state?.graceUntil),
        revoked_at: at(state?.revokedAt),
      })
    }
    expect(rows.filter((row) => row.revoked_at !== null)).toHaveLength(2)
    expect(rows.filter((row) => row.successor_id !== null)).toHaveLength(1)
  })

  test('only the keys of one organization are listed', async () => {
    for (const organizationId of organizationIds) {
      const { text, values } = keysAfter(organizationId, { after: null, max: 100 })
      const { rows } = await house.pool.query<{ key_id: string }>(text, [...values])
      const issued = history.flatMap((event) =>
        event.type === 'ApiKeyIssued' && event.data.organization_id === organizationId
          ? [event.data.key_id]
          : [],
      )
      expect(rows.map(({ key_id }) => key_id)).toEqual(issued.sort())
    }
  })
})

describe('key_usage', () => {
  test('calls are counted by key, UTC day, capability and outcome, and so are refusals by rate limits', async () => {
    const expected: Record<string, number> = {}
    const add = (cell: string, count: number) => {
      expected[cell] = (expected[cell] ?? 0) + count
    }
    for (const { type, data, metadata } of history) {
      if (type === 'KeyUsed')
        add(`${data.key_id} ${metadata.effective_at.slice(0, 10)} ${data.capability} ${data.outcome}`, 1)
      if (type === 'RateLimitExceeded')
        add(`${data.key_id} ${data.window.slice(0, 10)} any rate_limited`, data.count)
      if (type === 'CallsRefused')
        for (const { capability, count } of data.counts)
          add(`${data.key_id} ${data.window.slice(0, 10)} ${capability} refused`, count)
    }
    const { rows } = await house.pool.query<{ cell: string; calls: string }>(
      `select concat_ws(' ', key_id, day::text, capability, outcome) as cell, calls from key_usage`,
    )
    expect(Object.fromEntries(rows.map(({ cell, calls }) => [cell, Number(calls)]))).toEqual(expected)
    expect(new Set(Object.keys(expected).map((cell) => cell.split(' ')[1])).size).toBeGreaterThan(2)
  })

  test('a key was last used by its latest call, even if calls are recorded in another order', async () => {
    const latest = new Map<string, string>()
    for (const { type, data, metadata } of history)
      if (type === 'KeyUsed' && metadata.effective_at > (latest.get(data.key_id) ?? ''))
        latest.set(data.key_id, metadata.effective_at)
    expect(latest.size).toBe(6)
    for (const [keyId, at] of latest) {
      const { text, values } = lastUsedOf(keyId)
      expect((await house.pool.query(text, [...values])).rows).toEqual([{ last_used_at: new Date(at) }])
    }
    expect((await house.pool.query(lastUsedOf('nobody').text, ['nobody'])).rows).toEqual([])
  })
})

describe('ledger_index', () => {
  const ask = async <Row extends pg.QueryResultRow>({
    text,
    values,
  }: {
    text: string
    values: readonly unknown[]
  }) => (await house.pool.query<Row>(text, [...values])).rows

  test('the totals of a ledger before a line equal the sums of its earlier events', async () => {
    for (const organizationId of organizationIds) {
      let moved = 0n
      for (const { type, data, recorded } of history) {
        if (recorded.stream !== ledgerStream(organizationId)) continue
        const event = { type, data } as LedgerEvent
        if (type !== 'CreditCharged') {
          const [row] = await ask<{ amount_micro: string }>(movedBefore(organizationId, recorded.revision))
          expect(BigInt(row?.amount_micro ?? 0)).toBe(moved)
        }
        moved += movementOf(event)
      }
      expect(moved).toBe(
        balanceOf(
          eachLedgerEvent(organizationId, () => undefined),
          0,
        ),
      )
    }
  })

  test('usage equals the calls in the ledgers', async () => {
    const expected = { calls: 0, charged: 0n }
    for (const { type, data } of history) {
      if (type === 'KeyUsed') expected.calls++
      if (type === 'CreditCharged') expected.charged += parseCredits(data.amount)
      if (type === 'RateLimitExceeded') expected.calls += data.count
      if (type === 'CallsRefused') for (const { count } of data.counts) expected.calls += count
    }
    const [row] = await ask<{ calls: string; charged: string }>({
      text: 'select sum(calls)::text as calls, sum(charged_micro)::text as charged from usage_days',
      values: [],
    })
    expect(row).toEqual({ calls: String(expected.calls), charged: String(expected.charged) })
  })

  test('calls, corrections and replays are at the indexed place', async () => {
    for (const { type, data, metadata, recorded } of history) {
      const organizationId = recorded.stream.slice('ledger-'.length)
      if (type === 'KeyUsed' && metadata.request_id !== undefined) {
        const asked = { requestId: metadata.request_id, max: 10 }
        const found = await ask<{ revision: string }>(placesOfRequest(organizationId, asked))
        expect(found.map(({ revision }) => Number(revision))).toContain(recorded.revision)
      }
      if (type === 'CreditAdjusted' && data.adjusts !== null) {
        const asked = { revision: 0, chargeId: data.adjusts, max: 10 }
        const found = await ask<{ revision: string }>(correctionsAfter(organizationId, asked))
        expect(found.map(({ revision }) => Number(revision))).toContain(recorded.revision)
      }
    }
    expect(await ask(replaysOf(organizationIds[0] ?? '', { repeats: 'none', max: 1 }))).toEqual([])
  })
})

describe('usage_buckets', () => {
  const sums = `count(*)::integer as buckets, sum(calls)::text as calls, sum(charged_micro)::text as charged`

  test('the hours of a day add up to the usage of that day', async () => {
    const { rows: hours } = await house.pool.query(
      `select organization_id, (at at time zone 'utc')::date::text as day, key_id, capability, outcome,
              sum(calls)::text as calls, sum(charged_micro)::text as charged
         from usage_hours group by 1, 2, 3, 4, 5 order by 1, 2, 3, 4, 5`,
    )
    const { rows: days } = await house.pool.query(
      `select organization_id, day::text, key_id, capability, outcome,
              sum(calls)::text as calls, sum(charged_micro)::text as charged
         from usage_days group by 1, 2, 3, 4, 5 order by 1, 2, 3, 4, 5`,
    )
    expect(hours.length).toBeGreaterThan(20)
    expect(hours).toEqual(days)
  })

  test('the minutes of an hour add up to its usage', async () => {
    const of = (table: string) =>
      house.pool.query(
        `select date_trunc('hour', at) as hour, organization_id, code, sum(calls)::text as calls,
                sum(charged_micro)::text as charged
           from ${table} where at >= (select date_trunc('hour', min(at)) + interval '1 h' from usage_minutes)
          group by 1, 2, 3 order by 1, 2, 3`,
      )
    const { rows } = await of('usage_minutes')
    expect(rows.length).toBeGreaterThan(20)
    expect(rows).toEqual((await of('usage_hours')).rows)
  })

  test('a call that arrives after its minute was removed is only in its hour, for any batches', async () => {
    const call = (at: string): ProjectedEvent => ({
      id: '',
      position: 1n,
      stream: ledgerStream('org_late'),
      revision: 1,
      recordedAtMs: 0,
      metadata: {
        schema_version: 1,
        actor: 'key:K9abcdefghijklma',
        effective_at: at,
        recorded_at: at,
        digest: 'D'.repeat(43),
      },
      type: 'KeyUsed',
      data: {
        key_id: 'K9abcdefghijklma',
        capability: 'ip_lookup',
        outcome: 'refused',
        code: 'REQ_001',
        facts: { kind: 'refusal', code: 'REQ_001' },
      },
    })
    const events = ['05T12:00', '05T12:01', '03T12:00', '03T12:01', '05T12:01', '01T00:00', '05T12:01'].map(
      (at) => call(`2026-04-${at}:30.000Z`),
    )
    const table: TableName = (name) => `${name}_late`
    for (const size of [1, 2, 3, events.length]) {
      await createTables(client, usageBuckets, table)
      for (let from = 0; from < events.length; from += size)
        await writeChanges(client, usageBuckets.fold(events.slice(from, from + size)), table)
      const of = async (name: string) =>
        (await client.query(`select ${sums}, min(at) as first from ${table(name)}`)).rows
      expect(await of('usage_minutes')).toEqual([
        { buckets: 3, calls: '5', charged: '0', first: new Date('2026-04-03T12:01:00Z') },
      ])
      expect(await of('usage_hours')).toEqual([
        { buckets: 3, calls: '7', charged: '0', first: new Date('2026-04-01T00:00:00Z') },
      ])
    }
    await dropTables(client, usageBuckets, table)
  })

  test('the planner expects the removal of old buckets to find few rows, so it never reads the whole table', async () => {
    const table: TableName = (name) => `${name}_many`
    await createTables(client, usageBuckets, table)
    await client.query(
      `insert into usage_minutes_many
       select timestamptz '2026-04-01Z' + n * interval '1 minute', 'org', 'key', 'ip_lookup', 'answered', '', 1, 0
         from generate_series(1, 10000) n`,
    )
    await client.query('analyze usage_minutes_many')
    for (const minutes of usageBuckets.tables.filter(({ name }) => name === 'usage_minutes')) {
      const { text } = statementOf(keepNewest(minutes, 'at', '2 days'), table(minutes.name))
      const { rows } = await client.query(`explain (format json) ${text}`)
      const found: readonly Record<string, unknown>[] = rows[0]['QUERY PLAN'][0].Plan.Plans
      const scan = found.find((plan) => plan['Parent Relationship'] === 'Outer')
      expect(scan?.['Plan Rows']).toBeLessThan(100)
    }
    await dropTables(client, usageBuckets, table)
  })
})

test('every projection has a test, here or in its own file', () => {
  expect(projections).toEqual([
    accounts,
    ledgerLines,
    ledgerIndex,
    usageBuckets,
    apiKeys,
    keyUsage,
    profileCache,
    pixelDays,
    audit,
  ])
})
