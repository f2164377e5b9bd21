import { readFile } from 'node:fs/promises'
import { createServer, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { Pool } from 'undici'
import { issueKey } from '../../src/administration/keys/api-keys.ts'
import type { Foundation } from '../../src/foundation/foundation.ts'
import { type BenchOptions, figureRow, type Row, ratioRow } from './row.ts'
import { openAccount, startMeasured } from './service.ts'

/**
 * One organization requests ten times as many profiles as a source can answer, while a second requests few. Measures the effect
 * on the second organization, the answers to the first, the memory, and the time until calls are as fast as before.
 */

const sourceMs = 200
const sourceAtOnce = 8
const floodPerSecond = (10 * sourceAtOnce * 1_000) / sourceMs
const usualPerSecond = 5
const usualSeconds = 10
const callsAtOnceMax = 900
const slowdownMost = 5
const recoverySecondsMost = 2
const grownMbMost = 100
const grownAgainMbMost = 30
const megabyte = 2 ** 20

export const overload = async ({ seconds, long, begin, report }: BenchOptions): Promise<Row[]> => {
  const floodSeconds = long ? 30 : Math.max(5, seconds)
  const source = await openSource()
  const service = await startMeasured({
    roles: 'api,dashboard,projector,jobs',
    environment: {
      PROFILE_PROVIDER: 'http',
      PROFILE_HTTP_URL: `http://127.0.0.1:${source.port}/people?lid={lid}`,
      PROFILE_FETCHES_MAX: String(sourceAtOnce),
      EGRESS_ALLOW: '127.0.0.1/32',
    },
  })
  const pool = new Pool(`http://127.0.0.1:${service.port}`, { connections: callsAtOnceMax })
  try {
    const normal = await keyOf(service.foundation)
    const flooding = await keyOf(service.foundation)
    begin()
    const usual = await offered(pool, { apiKey: normal, perSecond: usualPerSecond, seconds: usualSeconds })
    report(`overload: alone ${summaryOf(usual)}`)
    const memory = watchMemory(service.pid)
    const [flood, other] = await Promise.all([
      offered(pool, { apiKey: flooding, perSecond: floodPerSecond, seconds: floodSeconds }),
      offered(pool, { apiKey: normal, perSecond: usualPerSecond, seconds: floodSeconds }),
    ])
    report(`overload: ${floodPerSecond}/s of one: ${summaryOf(flood)}; the other ${summaryOf(other)}`)
    const recoverySeconds = await recovery(pool, normal, 2 * p99(usual))
    const first = await memory.stop()
    report(`overload: memory grown by ${megabytes(first.every5s)} MB`)
    // A second overload distinguishes leaked memory, which adds up, from memory that is only freed late.
    const again = watchMemory(service.pid)
    await offered(pool, { apiKey: flooding, perSecond: floodPerSecond, seconds: floodSeconds })
    const second = await again.stop()
    report(`overload: and in a second flood by ${megabytes(second.every5s)} MB`)
    const others = [...flood, ...other].filter(({ status }) => ![200, 429, 503].includes(status))
    return [
      ratioRow(`a normal organization's p99 next to one that offers ${floodPerSecond} calls/s`, {
        ...{ measured: p99(other), against: p99(usual), unit: 'ms', bound: { most: slowdownMost } },
      }),
      figureRow(
        'its calls that were not answered',
        other.filter(({ status }) => status !== 200).length,
        'calls',
        {
          most: 0,
        },
      ),
      figureRow(
        'the other one: answered',
        flood.filter(({ status }) => status === 200).length / floodSeconds,
        'calls/s',
        null,
      ),
      figureRow('answers other than 200, 429, 503', others.length, 'calls', { most: 0 }),
      figureRow('memory of the service: grown by', first.most / megabyte, 'MB', { most: grownMbMost }),
      figureRow('and by a second flood', Math.max(0, second.highest - first.highest) / megabyte, 'MB', {
        most: grownAgainMbMost,
      }),
      figureRow('until all is as before', recoverySeconds, 's', { most: recoverySecondsMost }),
    ]
  } finally {
    await pool.destroy()
    await service.stop()
    await source.close()
  }
}

type Answered = { readonly status: number; readonly ms: number }

const p99 = (answers: readonly Answered[]): number => {
  const sorted = answers.map(({ ms }) => ms).sort((a, b) => a - b)
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * 0.99))] ?? Number.NaN
}

const summaryOf = (answers: readonly Answered[]): string => {
  const by = Map.groupBy(answers, ({ status }) => status)
  const counts = [...by].map(([status, some]) => `${some.length} x ${status}`).join(', ')
  return `${counts}, p99 ${Math.round(p99(answers))} ms`
}

let people = 0

/** The status is 0 if there is no answer. */
const ask = async (pool: Pool, apiKey: string): Promise<Answered> => {
  const startedMs = performance.now()
  try {
    const { statusCode, body } = await pool.request({
      method: 'POST',
      path: '/v1/profnet/profile',
      headers: { 'content-type': 'application/json', 'x-api-key': apiKey },
      body: JSON.stringify({ id: `person-${++people}` }),
      headersTimeout: 20_000,
    })
    await body.dump()
    return { status: statusCode, ms: performance.now() - startedMs }
  } catch {
    return { status: 0, ms: performance.now() - startedMs }
  }
}

/** Sends calls at even intervals, whether answers arrive or not. */
const offered = async (
  pool: Pool,
  { apiKey, perSecond, seconds }: { apiKey: string; perSecond: number; seconds: number },
): Promise<Answered[]> => {
  const asked: Promise<Answered>[] = []
  const startedMs = performance.now()
  for (let n = 0; n < perSecond * seconds; n++) {
    const waitMs = startedMs + (n * 1_000) / perSecond - performance.now()
    if (waitMs > 1) await sleep(waitMs)
    asked.push(ask(pool, apiKey))
  }
  return Promise.all(asked)
}

/** Seconds until three calls in a row are as fast as usual. */
const recovery = async (pool: Pool, apiKey: string, quickMs: number): Promise<number> => {
  const startedMs = performance.now()
  for (let quick = 0, firstMs = startedMs; performance.now() - startedMs < 60_000; ) {
    const askedMs = performance.now()
    const { status, ms } = await ask(pool, apiKey)
    if (quick === 0) firstMs = askedMs
    quick = status === 200 && ms <= quickMs ? quick + 1 : 0
    if (quick === 3) return (firstMs - startedMs) / 1_000
  }
  return Number.POSITIVE_INFINITY
}

const lookMs = 200

const megabytes = (grown: readonly number[]): string =>
  grown.map((bytes) => Math.round(bytes / megabyte)).join(', ')

type Memory = {
  /** The largest growth of the process's resident memory since the first measurement, in bytes. */
  readonly most: number
  /** The maximum in bytes. */
  readonly highest: number
  /** Growth in bytes, every five seconds. */
  readonly every5s: readonly number[]
}

const watchMemory = (pid: number): { stop(): Promise<Memory> } => {
  const residentBytes = async (): Promise<number> =>
    Number(/VmRSS:\s+(\d+)/.exec(await readFile(`/proc/${pid}/status`, 'utf8'))?.[1] ?? 0) * 1_024
  let most = 0
  let before = 0
  let ended = false
  const seen: number[] = []
  const watching = (async () => {
    before = await residentBytes()
    while (!ended) {
      const grown = (await residentBytes()) - before
      most = Math.max(most, grown)
      seen.push(grown)
      await sleep(lookMs)
    }
  })()
  return {
    stop: async () => {
      ended = true
      await watching
      return { most, highest: before + most, every5s: seen.filter((_, i) => i % (5_000 / lookMs) === 0) }
    },
  }
}

/** A source on loopback that answers each request after a delay, a limited number at a time. */
const openSource = async (): Promise<{ port: number; close(): Promise<void> }> => {
  const waiting: { lid: string; response: ServerResponse }[] = []
  let busy = 0
  const next = (): void => {
    if (busy >= sourceAtOnce) return
    const one = waiting.shift()
    if (one === undefined) return
    busy += 1
    setTimeout(() => {
      busy -= 1
      one.response
        .writeHead(200, { 'content-type': 'application/json' })
        .end(JSON.stringify({ lid: one.lid, firstname: 'Zorvina', lastname: 'Quell' }))
      next()
    }, sourceMs)
  }
  const server = createServer(({ url = '' }, response) => {
    waiting.push({ lid: new URL(url, 'http://source').searchParams.get('lid') ?? '', response })
    next()
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  return {
    port: (server.address() as AddressInfo).port,
    close: async () => {
      server.closeAllConnections()
      await new Promise((resolve) => server.close(resolve))
    },
  }
}

const keyOf = async (foundation: Foundation): Promise<string> => {
  const { organizationId } = await openAccount(foundation)
  const perMinute = 100_000_000
  const { apiKey } = await issueKey(foundation, {
    ...{ organizationId, name: 'profiles', permissions: ['profnet_scraping'] },
    limits: {
      requests_per_minute: perMinute,
      requests_per_day: perMinute * 10,
      email_validations_per_second: 10,
    },
    ...{ allowedCidrs: [], expiresAt: null, actor: 'system' },
  })
  return apiKey
}
