import { fileURLToPath } from 'node:url'
import { Pool } from 'undici'
import { issueKey } from '../../src/administration/keys/api-keys.ts'
import { seedProfiles } from '../../src/capabilities/profile/dataset/installed.ts'
import { inventedPeople } from '../../src/capabilities/profile/dataset/invented-people.ts'
import { parseConfig } from '../../src/config.ts'
import { eventually, startChild } from '../support/service.ts'
import { randomOf } from './random.ts'
import { type BenchOptions, figureRow, median, type Row } from './row.ts'
import { type MeasuredService, startMeasured } from './service.ts'

/**
 * Retrieval of cached people, through the whole service over HTTP, with everything in one process: the time of a
 * call with 64 always in progress, and at half the rate that the service then reaches.
 */

const connections = 64
const warmUpSeconds = 3
const perMinute = 100_000_000
const spareMs = 30_000
/** The targets of the cached path. */
const p50MsMost = 10
const p99MsMost = 50

type Load = {
  readonly port: number
  readonly apiKey: string
  readonly seconds: number
  /** Calls per second, scheduled evenly; null for as many as are answered. */
  readonly rate: number | null
  readonly seed: number
}

type LoadResult = {
  readonly perSecond: number
  /** From the scheduled instant of a fixed rate. */
  readonly p50Ms: number
  readonly p99Ms: number
  /** Answers that did not come from the cache. */
  readonly others: number
}

export const cachedProfiles = async ({ rounds, seconds, begin, report }: BenchOptions): Promise<Row[]> => {
  const service = await startMeasured({ roles: 'api,dashboard,projector,jobs' })
  const generator = openGenerator()
  try {
    const apiKey = await keyOf(service)
    // Like the embedded default with an empty data set.
    await seedProfiles(service.foundation, parseConfig(service.store.environment))
    await fillCache(service, apiKey)
    const at = { port: service.port, apiKey }
    await generator.run({ ...at, seconds: warmUpSeconds, rate: null, seed: 1 })
    begin()
    const all: LoadResult[] = []
    for (let round = 0; round < rounds; round++) {
      all.push(await generator.run({ ...at, seconds, rate: null, seed: 100 + round }))
      report(`profile-call: round ${round + 1}: ${summary(all.at(-1))}`)
    }
    const rate = median(all.map(({ perSecond }) => perSecond)) / 2
    const half: LoadResult[] = []
    for (let round = 0; round < rounds; round++) {
      half.push(await generator.run({ ...at, seconds, rate, seed: 200 + round }))
      report(`profile-call: ${Math.round(rate)}/s: ${summary(half.at(-1))}`)
    }
    return [
      figureRow(
        `cached profiles, ${connections} connections`,
        median(all.map(({ perSecond }) => perSecond)),
        'calls/s',
        null,
      ),
      ...latencyRows(`cached profiles, ${connections} connections`, all),
      ...latencyRows(`cached profiles, ${Math.round(rate)} calls/s`, half),
      figureRow(
        'of these not answered from the cache',
        [...all, ...half].reduce((sum, { others }) => sum + others, 0),
        'calls',
        { most: 0 },
      ),
    ]
  } finally {
    await generator.stop()
    await service.stop()
  }
}

const latencyRows = (title: string, results: readonly LoadResult[]): Row[] => [
  figureRow(`${title}: p50`, median(results.map(({ p50Ms }) => p50Ms)), 'ms', { most: p50MsMost }),
  figureRow(`${title}: p99`, median(results.map(({ p99Ms }) => p99Ms)), 'ms', { most: p99MsMost }),
]

const summary = (one: LoadResult | undefined): string =>
  one === undefined
    ? ''
    : `${Math.round(one.perSecond)}/s p50 ${one.p50Ms.toFixed(2)} p99 ${one.p99Ms.toFixed(2)} ms, ${one.others} others`

const keyOf = async ({ foundation, organizationId }: MeasuredService): Promise<string> => {
  const { apiKey } = await issueKey(foundation, {
    organizationId,
    name: 'profiles',
    permissions: ['profnet_scraping'],
    limits: {
      requests_per_minute: perMinute,
      requests_per_day: perMinute * 10,
      email_validations_per_second: 10,
    },
    allowedCidrs: [],
    expiresAt: null,
    actor: 'system',
  })
  return apiKey
}

/** The people of the data set that the embedded default starts with, except deleted ones. */
const lids = [...inventedPeople()].flatMap(({ lid, ...person }) => ('deleted' in person ? [] : [lid]))

const retrieve = async (pool: Pool, apiKey: string, lid: string | undefined): Promise<boolean> => {
  const { statusCode, body } = await pool.request({
    method: 'POST',
    path: '/v1/profnet/profile',
    headers: { 'content-type': 'application/json', 'x-api-key': apiKey },
    body: JSON.stringify({ id: lid }),
  })
  const text = await body.text()
  return statusCode === 200 && text.includes('"cached":true')
}

const fillCache = async ({ port }: MeasuredService, apiKey: string): Promise<void> => {
  const pool = new Pool(`http://127.0.0.1:${port}`, { connections: 4 })
  try {
    for (const lid of lids) await eventually(async () => (await retrieve(pool, apiKey, lid)) || undefined)
  } finally {
    await pool.close()
  }
}

/** Sends requests from a separate process, so that it neither waits for nor delays the measured service. */
const openGenerator = (): { run(load: Load): Promise<LoadResult>; stop(): Promise<void> } => {
  const { child, end } = startChild([process.execPath, fileURLToPath(import.meta.url)], {
    stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
    env: { PATH: process.env.PATH },
  })
  return {
    run: (load) =>
      new Promise((resolve, reject) => {
        const timer = setTimeout(
          () => reject(new Error('the load generator does not answer')),
          load.seconds * 1_000 + spareMs,
        )
        child.once('message', (message: { result?: LoadResult; error?: string }) => {
          clearTimeout(timer)
          if (message.result === undefined) reject(new Error(`load generator: ${message.error}`))
          else resolve(message.result)
        })
        child.send(load)
      }),
    stop: async () => void (await end('SIGTERM')),
  }
}

const generate = async ({ port, apiKey, seconds, rate, seed }: Load): Promise<LoadResult> => {
  const pool = new Pool(`http://127.0.0.1:${port}`, { connections, pipelining: 1 })
  const random = randomOf(seed)
  const latenciesMs: number[] = []
  let others = 0
  const one = async (scheduledAt: number): Promise<void> => {
    const cached = await retrieve(pool, apiKey, lids[Math.floor(random() * lids.length)])
    latenciesMs.push(performance.now() - scheduledAt)
    if (!cached) others++
  }
  const startedAt = performance.now()
  const endsAt = startedAt + seconds * 1_000
  try {
    if (rate === null) {
      const lane = async (): Promise<void> => {
        while (performance.now() < endsAt) await one(performance.now())
      }
      await Promise.all(Array.from({ length: connections }, lane))
    } else await evenly(rate, { startedAt, endsAt, one })
    const tookMs = performance.now() - startedAt
    latenciesMs.sort((a, b) => a - b)
    const percentile = (share: number): number =>
      latenciesMs[Math.ceil(latenciesMs.length * share) - 1] ?? Number.NaN
    return {
      perSecond: (latenciesMs.length * 1_000) / tookMs,
      p50Ms: percentile(0.5),
      p99Ms: percentile(0.99),
      others,
    }
  } finally {
    await pool.close()
  }
}

/** Sends on schedule, whether or not earlier calls were answered; the number of connections is not limited. */
const evenly = (
  rate: number,
  {
    startedAt,
    endsAt,
    one,
  }: { startedAt: number; endsAt: number; one: (scheduledAt: number) => Promise<void> },
): Promise<void> =>
  new Promise((resolve, reject) => {
    const asked: Promise<void>[] = []
    let next = startedAt
    const ticking = setInterval(() => {
      const now = performance.now()
      for (; next <= now && next < endsAt; next += 1_000 / rate) asked.push(one(next))
      if (next < endsAt) return
      clearInterval(ticking)
      Promise.all(asked).then(() => resolve(), reject)
    }, 1)
  })

if (import.meta.main)
  process.on('message', (load: Load) => {
    void generate(load).then(
      (result) => process.send?.({ result }),
      (error: unknown) => process.send?.({ error: String(error) }),
    )
  })
