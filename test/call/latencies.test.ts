/** How long calls took: counted in memory, added up in the database, and lost rather than waited for. */
import fc from 'fast-check'
import pg from 'pg'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { createLatencies, entriesMax, forgetLatencies, type Latencies } from '../../src/call/latencies.ts'
import { boundMs, bucketCount, bucketOf, percentileMs } from '../../src/call/latency-buckets.ts'
import { latencySeries } from '../../src/dashboard/latency.ts'
import { type TestDatabase, testDatabase } from '../support/postgres.ts'

describe('buckets', () => {
  test('take every length of time, each no longer than its bound and longer than the one before', () => {
    fc.assert(
      fc.property(fc.double({ min: 0, max: 1e9, noNaN: true }), (ms) => {
        const bucket = bucketOf(ms)
        expect(ms).toBeLessThanOrEqual(boundMs(bucket) * (1 + 1e-9))
        if (bucket > 0) expect(ms).toBeGreaterThan(boundMs(bucket - 1) * (1 - 1e-9))
      }),
    )
    const odd = [Number.NaN, -1, 0, 0.5, Number.POSITIVE_INFINITY, Number.MAX_VALUE]
    expect(odd.map(bucketOf)).toEqual([0, 0, 0, 0, bucketCount - 1, bucketCount - 1])
  })

  test('give a percentile within a factor of 1.42 of what the calls themselves say', () => {
    const calls = fc.array(fc.double({ min: 0.5, max: 60_000, noNaN: true }), {
      minLength: 1,
      maxLength: 200,
    })
    fc.assert(
      fc.property(calls, fc.constantFrom(0.5, 0.95, 0.99), (lengths, part) => {
        const counts = new Array<number>(bucketCount).fill(0)
        for (const ms of lengths) counts[bucketOf(ms)] = (counts[bucketOf(ms)] ?? 0) + 1
        const exact = lengths.sort((a, b) => a - b)[Math.ceil(lengths.length * part) - 1] ?? 0
        const ratio = (percentileMs(counts, part) ?? 0) / exact
        expect(ratio).toBeGreaterThan(1 / 1.4143)
        expect(ratio).toBeLessThan(1.4143)
      }),
    )
  })

  test('of no call say nothing, and of calls beyond the last bound that they are beyond it', () => {
    expect(percentileMs([], 0.5)).toBeNull()
    expect(percentileMs(new Array(bucketCount).fill(0), 0.99)).toBeNull()
    const slow = new Array<number>(bucketCount).fill(0)
    slow[bucketCount - 1] = 3
    expect(percentileMs(slow, 0.5)).toBe(Number.POSITIVE_INFINITY)
  })
})

let database: TestDatabase
let pool: pg.Pool
let open: Latencies[] = []
let warned: { calls: number; tooMany: number }[] = []

beforeAll(async () => {
  database = await testDatabase()
  pool = new pg.Pool({ connectionString: database.url, max: 8 })
})
afterAll(async () => {
  await pool?.end()
  await database?.drop()
})
beforeEach(async () => {
  await pool.query('truncate call_latency')
  warned = []
})
afterEach(async () => {
  await Promise.all(open.map((one) => one.close()))
  open = []
})

const begin = (on: Pick<pg.Pool, 'query'> = pool): Latencies => {
  const latencies = createLatencies({
    pool: on,
    logger: { warn: (about: { calls: number; tooMany: number }) => void warned.push(about) } as never,
  })
  open.push(latencies)
  return latencies
}

const rows = async () =>
  (
    await pool.query<{ organization_id: string; hour: Date; capability: string; counts: number[] }>(
      'select * from call_latency order by organization_id, hour, capability',
    )
  ).rows

const atMs = Date.parse('2026-12-31T23:59:59.999Z')
const sum = (counts: readonly number[]): number => counts.reduce((all, one) => all + one, 0)

describe('latencies', () => {
  test('are rows by organization, capability and hour of arrival, also at the end of a year', async () => {
    const latencies = begin()
    latencies.add('org_a', 'ip_lookup', { atMs, ms: 1 })
    latencies.add('org_a', 'ip_lookup', { atMs, ms: 100_000 })
    latencies.add('org_a', 'ip_lookup', { atMs: atMs + 1, ms: 3 })
    latencies.add('org_a', 'email_validation', { atMs, ms: 3 })
    latencies.add('org_b', 'ip_lookup', { atMs, ms: 3 })
    await latencies.close()
    expect(
      (await rows()).map(({ organization_id, hour, capability, counts }) => [
        ...[organization_id, hour.toISOString().slice(0, 13), capability],
        counts.flatMap((count, bucket) => (count === 0 ? [] : [[bucket, count]])),
      ]),
    ).toEqual([
      ['org_a', '2026-12-31T23', 'email_validation', [[bucketOf(3), 1]]],
      [
        'org_a',
        '2026-12-31T23',
        'ip_lookup',
        [
          [bucketOf(1), 1],
          [bucketCount - 1, 1],
        ],
      ],
      ['org_a', '2027-01-01T00', 'ip_lookup', [[bucketOf(3), 1]]],
      ['org_b', '2026-12-31T23', 'ip_lookup', [[bucketOf(3), 1]]],
    ])
  })

  test('of several processes add up, which write the same rows at the same time', async () => {
    const processes = Array.from({ length: 6 }, () => begin())
    for (let round = 0; round < 4; round++) {
      for (const [n, latencies] of processes.entries())
        for (let i = 0; i < 50; i++)
          latencies.add(`org_${(i * 7 + n) % 50}`, i % 2 === 0 ? 'ip_lookup' : 'whoami', { atMs, ms: i })
      await Promise.all(processes.map((latencies) => latencies.close()))
    }
    expect(sum((await rows()).flatMap(({ counts }) => counts))).toBe(6 * 4 * 50)
    expect(warned).toEqual([])
  })

  test('that are closed twice are written once', async () => {
    const latencies = begin()
    latencies.add('org_a', 'ip_lookup', { atMs, ms: 1 })
    await Promise.all([latencies.close(), latencies.close()])
    await latencies.close()
    expect(sum((await rows()).flatMap(({ counts }) => counts))).toBe(1)
  })

  test('that cannot be written are lost and said to be, and those that come later are not', async () => {
    let away = true
    const flaky = {
      query: (...asked: unknown[]) =>
        away ? Promise.reject(new Error('away')) : (pool.query as (...all: unknown[]) => unknown)(...asked),
    } as unknown as pg.Pool
    pool.query = pool.query.bind(pool)
    const latencies = begin(flaky)
    for (let i = 0; i < 3; i++) latencies.add('org_a', 'ip_lookup', { atMs, ms: 1 })
    await latencies.close()
    expect([latencies.lost(), warned]).toEqual([3, [expect.objectContaining({ calls: 3, tooMany: 0 })]])
    away = false
    latencies.add('org_a', 'ip_lookup', { atMs, ms: 1 })
    await latencies.close()
    expect([latencies.lost(), sum((await rows()).flatMap(({ counts }) => counts))]).toEqual([3, 1])
  })

  test('of more organizations than are counted at a time are counted as missing, and known ones go on', async () => {
    const latencies = begin()
    for (let i = 0; i < entriesMax + 10; i++) latencies.add(`org_${i}`, 'ip_lookup', { atMs, ms: 1 })
    latencies.add('org_0', 'ip_lookup', { atMs, ms: 1 })
    await latencies.close()
    expect([latencies.lost(), warned]).toEqual([10, [expect.objectContaining({ calls: 10, tooMany: 10 })]])
    expect(sum((await rows()).flatMap(({ counts }) => counts))).toBe(entriesMax + 1)
  })

  test('older than 35 days are forgotten, and no others', async () => {
    await pool.query(
      `insert into call_latency select 'org_a', date_trunc('hour', now()) - day * interval '1 day', 'whoami', '{1}'
         from generate_series(0, 60) as day`,
    )
    expect(await forgetLatencies(pool)).toBeGreaterThanOrEqual(25)
    expect([34, 35, 36]).toContain((await rows()).length)
    expect(await forgetLatencies(pool)).toBe(0)
  })
})

test('series have every time, add hours up to days, and rows of fewer buckets to rows of more', () => {
  const counts = (bucket: number, calls: number): number[] => [...new Array<number>(bucket).fill(0), calls]
  const row = (at: string, capability: string, own: number[]) => ({
    hour: new Date(at),
    capability,
    counts: own,
  })
  const all = [
    row('2026-12-31T22:00:00Z', 'whoami', counts(4, 1)),
    row('2026-12-31T23:00:00Z', 'whoami', counts(2, 99)),
    row('2027-01-01T00:00:00Z', 'ip_lookup', counts(0, 5)),
  ]
  const days = latencySeries(['2026-12-31', '2027-01-01'], all)
  expect(days.map(({ capability, points }) => [capability, points.map(({ calls }) => calls)])).toEqual([
    ['ip_lookup', [0, 5]],
    ['whoami', [100, 0]],
  ])
  expect(days[1]?.points[1]?.ms).toEqual([null, null, null])
  const [p50 = 0, , p99 = 0] = days[1]?.whole.ms ?? []
  expect([Number(p50) <= 1, Number(p99) <= 1]).toEqual([true, true])
  const hours = latencySeries(['2026-12-31T22:00:00Z', '2026-12-31T23:00:00Z'], all.slice(0, 2))
  expect(hours.map(({ points }) => points.map(({ calls }) => calls))).toEqual([[1, 99]])
})
