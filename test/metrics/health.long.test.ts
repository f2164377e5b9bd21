/** When a process is ready, and how it answers if a dependency is unreachable or hangs. */
import fastify from 'fastify'
import pg from 'pg'
import { afterAll, afterEach, beforeEach, describe, expect, test } from 'vitest'
import { projections } from '../../projections/index.ts'
import { lagSecondsMax } from '../../src/administration/checks/event-log.ts'
import { parseConfig } from '../../src/config.ts'
import { type EventLog, placeOf } from '../../src/event-log/port.ts'
import { openPostgresEventLog } from '../../src/event-log/postgres/index.ts'
import { eventIdOf } from '../../src/event-log/stored-event.ts'
import type { LedgerFailure } from '../../src/ledger/write/ledger.ts'
import { createHealth, type Health, type HealthOptions } from '../../src/metrics/health.ts'
import { operations } from '../../src/metrics/routes.ts'
import { logger } from '../support/logger.ts'
import { preparedDatabase } from '../support/postgres.ts'
import { eventually } from '../support/service.ts'
import { takesAtMost } from '../support/takes-at-most.ts'
import { startTcpProxy, type TcpProxy } from '../support/tcp-proxy.ts'

let proxy: TcpProxy
let url = ''
let pool: pg.Pool
let eventLog: EventLog
const database = await preparedDatabase()
const owner = new pg.Client({ connectionString: database.url })
await owner.connect()
await owner.query('create table checkpoints_at_first as table projection_checkpoints')
afterAll(async () => {
  await owner?.end()
  await database.drop()
})
beforeEach(async () => {
  const { hostname, port } = new URL(database.url)
  proxy = await startTcpProxy({ host: hostname, port: Number(port) })
  const through = new URL(database.url)
  through.port = String(proxy.port)
  url = through.href
  pool = new pg.Pool({ connectionString: url, connectionTimeoutMillis: 5_000 })
  pool.on('error', () => undefined)
  eventLog = openPostgresEventLog({ url, logger })
})
afterEach(async () => {
  proxy.thaw()
  await eventLog.close()
  await pool.end()
  await proxy.close()
  await owner.query(`
    truncate log_segments, log_stream_marks, projection_checkpoints, halted_streams, parked_events, processes, leases;
    update log_mark set position = 0;
    insert into projection_checkpoints table checkpoints_at_first`)
})

const healthOf = (options: Partial<HealthOptions> = {}): Health =>
  createHealth({
    config: parseConfig({}),
    eventLog,
    pool,
    ledger: { failure: () => null },
    diskSpace: { seen: () => null },
    ...options,
  })

const append = async (n: number): Promise<void> => {
  const stream = `test-${n}`
  await eventLog.append(stream, 'none', [
    { id: eventIdOf(stream, 'health', 0), type: 'Tested', data: '{}', metadata: '{}' },
  ])
}

/** The answer on the metrics port or, if `isPrivate` is false, the public answer. */
const answerOf = async (
  health: Health,
  showsRows: boolean,
  isPrivate = true,
): Promise<{ status: number; body: unknown }> => {
  const host = fastify()
  await host.register(operations({ health, showsRows, isPrivate }))
  const { statusCode, body } = await host.inject('/readyz')
  await host.close()
  return { status: statusCode, body: JSON.parse(body) }
}

test('everyone gets the names of checks and whether they pass, and nothing else', async () => {
  await pool.query(`update projection_checkpoints set state = 'halted', error = 'x' where name = 'accounts'`)
  const health = healthOf({
    diskSpace: {
      seen: () => ({ state: 'full', space: { freeBytes: 5e6, totalBytes: 1e9, freeRatio: 0.005 } }),
    },
  })
  await pool.query(
    `insert into processes (process_id, roles, counters, host, pid, clock_ahead_ms) 
     values ('01ARZ3NDEKTSV4RRFFQ69G5FAV', '{api}', 'a', 'api-1.internal', 1, 0), ('01ARZ3NDEKTSV4RRFFQ69G5FAW', '{api}', 'b', 'api-2.internal', 2, 0)`,
  )
  expect(await answerOf(health, true, false)).toEqual({
    status: 503,
    body: {
      status: 'not_ready',
      checks: {
        event_log: { status: 'ok' },
        database: { status: 'ok' },
        projections: { status: 'failed' },
        disk_space: { status: 'failed' },
        rate_limiter: { status: 'degraded' },
        ledger: { status: 'ok' },
      },
    },
  })
  const { body } = await answerOf(health, true)
  expect(body).toMatchObject({
    checks: {
      projections: { found: [expect.stringContaining('projection rebuild')] },
      disk_space: { found: [expect.stringMatching(/\. .*\.$/)] },
    },
  })
})

test('a process that ends is not ready', async () => {
  const host = fastify()
  await host.register(
    operations({
      health: healthOf(),
      showsRows: false,
      unready: { asked: () => true },
    }),
  )
  const { statusCode, body } = await host.inject('/readyz')
  expect([statusCode, JSON.parse(body)]).toEqual([
    503,
    { status: 'not_ready', checks: { process: { status: 'ending' } } },
  ])
  await host.close()
})

test('a process whose log and database answer and whose rows are current is ready', async () => {
  expect(await answerOf(healthOf(), true)).toEqual({
    status: 200,
    body: {
      status: 'ready',
      checks: {
        event_log: { status: 'ok' },
        database: { status: 'ok' },
        projections: { status: 'ok', lag_seconds: 0 },
        ledger: { status: 'ok' },
      },
    },
  })
})

describe('rows that are late', () => {
  /** Makes all events up to a position look as if they had been recorded long before the newest event. */
  const aged = (position: number) =>
    pool.query(
      `update log_segments set recorded_at = recorded_at - $2 * interval '1 s' where last_position <= $1`,
      [position, lagSecondsMax + 10],
    )

  test('make a host unready that shows them, but not one that answers calls', async () => {
    await append(1)
    await append(2)
    expect(await answerOf(healthOf(), true)).toMatchObject({ status: 200 })
    await aged(1)
    const late = healthOf()
    expect(await answerOf(late, true)).toMatchObject({
      status: 503,
      body: {
        status: 'not_ready',
        checks: { projections: { status: 'failed' }, database: { status: 'ok' } },
      },
    })
    expect(await answerOf(late, false)).toMatchObject({
      status: 200,
      body: { status: 'ready', checks: { projections: { status: 'degraded' } } },
    })
    const lags = await late.projectionLags()
    expect(lags?.map(({ name }) => name).sort()).toEqual(projections.map(({ name }) => name).sort())
    for (const { behind, seconds } of lags ?? []) {
      expect(behind).toBe(2n)
      expect(seconds).toBeGreaterThan(lagSecondsMax)
    }
  })

  test('are measured by the checkpoint of each projection', async () => {
    for (const n of [1, 2, 3]) await append(n)
    await aged(2)
    for (const [position, names] of [
      [2n, ['accounts']],
      [3n, projections.map(({ name }) => name).filter((name) => name !== 'accounts')],
    ] as const) {
      const event = await eventLog.at(position)
      if (event === null) throw new Error('the log ends early')
      const { eventId, digest } = placeOf(event)
      await pool.query(
        'update projection_checkpoints set position = $1, event_id = $2, digest = $3 where name = any ($4)',
        [position.toString(), eventId, digest, names],
      )
    }
    // A projection from another version of the service never advances, and does not count.
    await pool.query(
      `insert into projection_checkpoints (name, version, position) select 'forgotten', version, 0 from projection_checkpoints limit 1`,
    )
    const lags = (await healthOf().projectionLags()) ?? []
    expect(lags.filter(({ behind }) => behind > 0n).map(({ name, behind }) => [name, behind])).toEqual([
      ['accounts', 1n],
    ])
    expect(lags.filter(({ seconds }) => seconds > 0).map(({ name }) => name)).toEqual(['accounts'])
  })
})

describe('the rows of a stream that stopped', () => {
  test('are named on hosts that show rows, and counted on others; the process stays ready', async () => {
    await pool.query(
      `insert into halted_streams (projection, stream, position, error)
       values ('accounts', 'ledger-one', 1, 'x'), ('ledger_lines', 'ledger-one', 1, 'x')`,
    )
    expect(await answerOf(healthOf(), true)).toMatchObject({
      status: 200,
      body: { checks: { projections: { status: 'degraded', halted_streams: ['ledger-one'] } } },
    })
    expect(await answerOf(healthOf(), false)).toMatchObject({
      status: 200,
      body: { checks: { projections: { status: 'degraded', halted_streams: 1 } } },
    })
    const lags = (await healthOf().projectionLags()) ?? []
    expect(lags.filter(({ haltedStreams }) => haltedStreams.length > 0).map(({ name }) => name)).toEqual([
      'accounts',
      'ledger_lines',
    ])
  })
})

test('rows of a log that was restored from an older copy are late, no matter what the numbers say', async () => {
  await append(1)
  await append(2)
  await pool.query(
    `update projection_checkpoints set position = 1, event_id = gen_random_uuid(), digest = 'another' where name = 'accounts'`,
  )
  expect(await answerOf(healthOf(), true)).toMatchObject({
    status: 503,
    body: { checks: { projections: { status: 'failed', halted: ['accounts'] } } },
  })
})

test.each(['appends_fail', 'rewritten'] as const)(
  'a ledger that cannot write (%s) makes the process unready',
  async (kind) => {
    let failure: LedgerFailure | null = null
    const health = healthOf({ ledger: { failure: () => failure } })
    expect(await answerOf(health, false)).toMatchObject({
      status: 200,
      body: { checks: { ledger: { status: 'ok' } } },
    })
    failure = { kind, error: new Error('no space left') }
    expect(await answerOf(health, false)).toMatchObject({
      status: 503,
      body: { status: 'not_ready', checks: { ledger: { status: 'failed' } } },
    })
  },
)

describe('a database that', () => {
  test('is unreachable makes the process unready', async () => {
    const away = new pg.Pool({ connectionString: url.replace(/:\d+\//, ':1/') })
    expect(await answerOf(healthOf({ pool: away }), true)).toMatchObject({
      status: 503,
      body: { status: 'not_ready', checks: { event_log: { status: 'ok' }, database: { status: 'failed' } } },
    })
    await away.end()
  })

  test('hangs is not waited for longer than the deadline, nor asked twice; then the process is ready again', async () => {
    const health = healthOf()
    proxy.freeze()
    const asked = [answerOf(health, true), answerOf(health, false), health.projectionLags()] as const
    const answers = await takesAtMost(3_000, Promise.all(asked))
    const body = { checks: { event_log: { status: 'timed_out' }, database: { status: 'timed_out' } } }
    expect(answers).toMatchObject([{ status: 503, body }, { status: 503, body }, {}])
    expect(answers[2]).toBeNull()
    const open = pool.totalCount
    await eventually(async () => ((await answerOf(health, true)).status === 503 ? true : undefined))
    expect(pool.totalCount).toBe(open)
    proxy.thaw()
    await eventually(async () => ((await answerOf(health, true)).status === 200 ? true : undefined))
  })
})

test('an unreachable event log makes the process unready; the state of its rows is then unknown', async () => {
  const health = healthOf({
    eventLog: { ...eventLog, head: () => Promise.reject(new Error('away')) },
  })
  expect(await answerOf(health, false)).toMatchObject({
    status: 503,
    body: { checks: { event_log: { status: 'failed' }, database: { status: 'ok' } } },
  })
  expect(await health.projectionLags()).toBeNull()
})

describe.each([
  { how: 'fails', at: () => Promise.reject(new Error('2 UNKNOWN')), status: 'failed' },
  { how: 'hangs', at: () => new Promise<never>(() => undefined), status: 'timed_out' },
])('an event log that $how when asked for the last events of the rows', ({ at, status }) => {
  test('is reported as the fault, and not the database', async () => {
    await append(1)
    await pool.query(
      `update projection_checkpoints set position = 1, event_id = gen_random_uuid(), digest = 'any'`,
    )
    expect(await answerOf(healthOf({ eventLog: { ...eventLog, at } }), true)).toMatchObject({
      status: 503,
      body: {
        checks: { event_log: { status }, database: { status: 'ok' }, projections: { status } },
      },
    })
  })
})

test('unavailable shared rate limits do not make it unready', async () => {
  let shared = true
  const health = healthOf({ rateLimitsShared: () => shared })
  expect(await answerOf(health, true)).toMatchObject({ body: { checks: { rate_limiter: { status: 'ok' } } } })
  shared = false
  expect(await answerOf(healthOf({ rateLimitsShared: () => shared }), true)).toMatchObject({
    status: 200,
    body: { status: 'ready', checks: { rate_limiter: { status: 'degraded' } } },
  })
})

test('for any number of requests within a second, each check runs once', async () => {
  let asked = 0
  const health = healthOf({
    eventLog: {
      ...eventLog,
      head: () => {
        asked++
        return eventLog.head()
      },
    },
  })
  await Promise.all(Array.from({ length: 50 }, () => answerOf(health, true)))
  await health.projectionLags()
  // One query is for the event log, and one for the projections.
  expect(asked).toBe(2)
  await eventually(async () => {
    await health.readiness({ showsRows: true })
    return asked === 4 ? true : undefined
  })
})

test('a live process reports that while everything it needs is unreachable', async () => {
  const host = fastify()
  const never = () => Promise.reject(new Error('livez asked something'))
  await host.register(
    operations({
      health: { readiness: never, projectionLags: never, findings: never, meter: () => undefined },
      showsRows: true,
    }),
  )
  const { statusCode, body } = await host.inject('/livez')
  expect([statusCode, JSON.parse(body)]).toEqual([200, { status: 'live' }])
  await host.close()
})
