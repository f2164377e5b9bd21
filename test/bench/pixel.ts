import { setTimeout as sleep } from 'node:timers/promises'
import pg from 'pg'
import { type HitAsk, openPixelCounters, type PixelCounters } from '../../src/capabilities/pixel/counters.ts'
import { type BenchOptions, figureRow, median, type Row, ratioRow } from './row.ts'
import { keepBusy, withFoundation } from './store.ts'

/**
 * Pixel hits decided and counted, on one busy domain and on ten thousand: how many a second with 256 in progress,
 * against one conditional upsert per hit, which is the usual way; and the time of each at 2,000 a second. One
 * PostgreSQL, fsync on, in turns.
 */

const width = 256
const domains = 10_000
const perSecond = 2_000
/** The size of a service's pool on such a machine; larger ones were slower here. */
const poolMax = 16
const organizationId = 'org_00000000000000000000000000'
const number = 1_000_000_000

type Spread = { readonly title: string; readonly domain: () => string }
const spreads: readonly Spread[] = [
  { title: 'one domain', domain: () => 'example.com' },
  { title: '10k domains', domain: () => `d${Math.floor(Math.random() * domains)}.example.com` },
]

const hitOn = (domain: string, hitId: string | null = null): HitAsk => ({
  organizationId,
  host: domain,
  hitId,
  atMs: Date.now(),
  rules: { blockedBy: null, limits: [{ domain, period: 'day', number, periodStart: '2026-09-14' }] },
})

export const pixel = (options: BenchOptions): Promise<Row[]> =>
  withFoundation(async ({ foundation: { url, migrationUrl }, logger }) => {
    // The naive counters are a separate table, which only the owner may create.
    const pool = new pg.Pool({ connectionString: migrationUrl, max: poolMax })
    const counters = openPixelCounters({ url, logger })
    try {
      await naiveSchema(pool)
      options.begin()
      const rows: Row[] = []
      for (const spread of spreads) rows.push(...(await throughput(options, spread, { pool, counters })))
      for (const spread of spreads) rows.push(await latency(options, spread, counters))
      return rows
    } finally {
      await counters.close()
      await pool.end()
    }
  })

const throughput = async (
  { rounds, seconds, report }: BenchOptions,
  { title, domain }: Spread,
  { pool, counters }: { pool: pg.Pool; counters: PixelCounters },
): Promise<Row[]> => {
  let late = 0
  const take = (named: boolean) => async (lane: number) => {
    const hit = hitOn(domain(), named ? `${lane}/${Math.random()}` : null)
    const fires = await counters.take(hit).then(
      (verdict) => verdict.fires,
      () => null,
    )
    if (fires === null) late++
    return fires === true ? 1 : 0
  }
  const contenders: Record<string, (lane: number) => Promise<number>> = {
    naive: () => naiveHit(pool, domain()),
    postgres: take(false),
    'postgres, hit ids': take(true),
  }
  const figures: Record<string, number[]> = {}
  for (let round = 0; round < rounds; round++)
    for (const [name, work] of Object.entries(contenders)) {
      const own = figures[name] ?? []
      figures[name] = own
      own.push(await keepBusy({ width, seconds }, work))
    }
  report(
    `${title}: ${JSON.stringify(figures, (_, value) => (typeof value === 'number' ? Math.round(value) : value))}`,
  )
  if (late > 0) report(`${title}: ${late} hits were not answered in time`)
  const naive = figures.naive ?? []
  return Object.entries(figures)
    .filter(([name]) => name !== 'naive')
    .map(([name, own]) =>
      ratioRow(`pixel hits, ${title}, ${name}`, {
        measured: median(own),
        against: median(naive),
        ratio: median(own.map((one, i) => one / (naive[i] ?? Number.NaN))),
        unit: '/s',
        // The usual way does not remember hits; remembering them is additional work on our side.
        bound: { least: name.includes('hit ids') ? 1 : 2 },
      }),
    )
}

/** Sends at fixed instants, no matter how long answers take, and measures from those instants. */
const latency = async (
  { seconds, report }: BenchOptions,
  { title, domain }: Spread,
  counters: PixelCounters,
): Promise<Row> => {
  const tookMs: number[] = []
  let refused = 0
  const hit = async (dueMs: number): Promise<void> => {
    try {
      await counters.take(hitOn(domain()))
      tookMs.push(performance.now() - dueMs)
    } catch {
      refused++
    }
  }
  const asked: Promise<void>[] = []
  const startedMs = performance.now()
  const total = perSecond * seconds
  while (asked.length < total) {
    for (let due = asked.length; due < total; due++) {
      const dueMs = startedMs + (due * 1_000) / perSecond
      if (dueMs > performance.now()) break
      asked.push(hit(dueMs))
    }
    await sleep(1)
  }
  await Promise.all(asked)
  tookMs.sort((a, b) => a - b)
  const at = (share: number): number => tookMs[Math.floor(tookMs.length * share)] ?? Number.NaN
  report(
    `${title}, ${perSecond}/s: p50 ${at(0.5)}, p99 ${at(0.99)}, max ${at(1 - 1e-9)} ms, refused ${refused}`,
  )
  return figureRow(`pixel hit, ${title}, p99 at ${perSecond}/s`, at(0.99), 'ms', { most: 10 })
}

const naiveSchema = (pool: pg.Pool): Promise<unknown> =>
  pool.query(`create table naive_counters (
    organization_id text, domain text, period text, period_start date, used integer not null,
    primary key (organization_id, domain, period, period_start))`)

const naiveHit = async (pool: pg.Pool, domain: string): Promise<number> => {
  const { rowCount } = await pool.query({
    name: 'naive-hit',
    text: `insert into naive_counters as c values ($1, $2, 'day', '2026-09-14', 1)
           on conflict (organization_id, domain, period, period_start) do update set used = c.used + 1 where c.used < $3`,
    values: [organizationId, domain, number],
  })
  return rowCount ?? 0
}
