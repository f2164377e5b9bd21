/** Pixel counters in a real Redis: the contract, and what becomes of hits when Redis is gone, slow or flushed. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { pino } from 'pino'
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import {
  answerMaxMs,
  CountersUnavailable,
  type PixelCounters,
} from '../../src/capabilities/pixel/counters.ts'
import { openRedisCounters } from '../../src/capabilities/pixel/redis-counters.ts'
import {
  ask,
  clientsOf,
  freshOrganization,
  limit,
  pixelCountersContract,
} from '../contract/pixel-counters.ts'
import { eventually } from '../support/service.ts'
import { type RedisServer, startRedisServer } from './redis-server.ts'

let redis: RedisServer
beforeAll(async () => {
  redis = await startRedisServer()
})
afterAll(() => redis?.close())

const opened: PixelCounters[] = []
const open = async (written: string[] = []): Promise<PixelCounters> => {
  const counters = await openRedisCounters({
    url: redis.url,
    logger: pino({ level: 'debug' }, { write: (line: string) => void written.push(line) }),
  })
  opened.push(counters)
  return counters
}
afterEach(async () => {
  await Promise.all(opened.splice(0).map((counters) => counters.close()))
})

const rules = { blockedBy: null, limits: [limit('example.com', 1_000)] }

describe('pixel counters in Redis', () => {
  pixelCountersContract(async () => ({
    open: () => openRedisCounters({ url: redis.url, logger: pino({ level: 'silent' }) }),
    close: async () => undefined,
  }))

  test('cost one command per hit, whatever it is counted against', async () => {
    const counters = await open()
    const organizationId = freshOrganization()
    const both = {
      blockedBy: null,
      limits: [limit('example.com', 9), limit('example.com', 9, { period: 'month' })],
    }
    await counters.take(ask(organizationId, both))
    await redis.client.config('RESETSTAT')
    for (let n = 0; n < 10; n++) await counters.take(ask(organizationId, both, { hitId: `h${n}` }))
    const info = await redis.client.info('commandstats')
    expect(info).toMatch(/^cmdstat_evalsha:calls=10,/m)
    expect(info).not.toMatch(/^cmdstat_eval:/m)
  })

  test('survive that somebody flushes the scripts: nothing is lost and nothing counted twice', async () => {
    const counters = await open()
    const organizationId = freshOrganization()
    await counters.take(ask(organizationId, rules))
    await redis.client.script('FLUSH')
    await clientsOf(10, 3, () => counters.take(ask(organizationId, rules)))
    expect(await counters.used(organizationId, rules.limits)).toEqual([31])
  })

  test('keep a counter two days beyond its period and a hit id one day, and then let go of them', async () => {
    const counters = await open()
    const organizationId = freshOrganization()
    const atMs = Date.UTC(2026, 8, 14, 12)
    await counters.take(ask(organizationId, rules, { hitId: 'h', atMs }))
    const [counter = '', hit = ''] = (
      await redis.client.keys(`enrichment:pixel:{${organizationId}}:*`)
    ).sort()
    const hours = async (key: string) => Math.round((await redis.client.pttl(key)) / 3_600_000)
    expect(counter).toContain(':day:2026-09-14:example.com')
    expect([await hours(counter), await hours(hit)]).toEqual([12 + 48, 24])
  })
})

describe('while Redis is gone', () => {
  test('hits are refused at once, and counted again when it is back; the log tells each once', async () => {
    const written: string[] = []
    const counters = await open(written)
    const organizationId = freshOrganization()
    await counters.take(ask(organizationId, rules))
    await redis.kill()
    for (let n = 0; n < 5; n++)
      await expect(counters.take(ask(organizationId, rules))).rejects.toThrow(CountersUnavailable)
    await expect(counters.used(organizationId, rules.limits)).rejects.toThrow(CountersUnavailable)
    await redis.start()
    await eventually(() =>
      counters.take(ask(organizationId, rules)).then(
        () => true as const,
        () => undefined,
      ),
    )
    expect(written.map((line) => JSON.parse(line).level)).toEqual([40, 30])
  })

  test('a process starts all the same', async () => {
    await redis.kill()
    const startedMs = performance.now()
    const counters = await open()
    expect(performance.now() - startedMs).toBeLessThan(2_000)
    await expect(counters.take(ask(freshOrganization(), rules))).rejects.toThrow(CountersUnavailable)
    await redis.start()
  })
})

test('a Redis that writes an append-only file keeps counters and hits when it is killed and started again', async () => {
  const directory = await mkdtemp(join(tmpdir(), 'pixel-redis-'))
  const port = 20_000 + (process.pid % 20_000)
  const start = async (): Promise<() => Promise<void>> => {
    const child = spawn(
      'redis-server',
      [
        '--port',
        `${port}`,
        '--dir',
        directory,
        '--appendonly',
        'yes',
        '--appendfsync',
        'always',
        '--save',
        '',
      ],
      { stdio: 'ignore' },
    )
    return async () => {
      const ended = once(child, 'exit')
      child.kill('SIGKILL')
      await ended
    }
  }
  const counters = await openRedisCounters({
    url: `redis://127.0.0.1:${port}`,
    logger: pino({ level: 'silent' }),
  })
  opened.push(counters)
  const organizationId = freshOrganization()
  const taken = () =>
    eventually(() => counters.take(ask(organizationId, rules, { hitId: 'h' })).catch(() => undefined))
  let kill = await start()
  try {
    expect(await taken()).toMatchObject({ used: [1] })
    await counters.take(ask(organizationId, rules))
    await kill()
    kill = await start()
    expect(await taken()).toMatchObject({ used: [1] })
    expect(await counters.used(organizationId, rules.limits)).toEqual([2])
  } finally {
    await kill()
    await rm(directory, { recursive: true, force: true })
  }
})

test('a Redis that says nothing is waited for a second', async () => {
  const counters = await open()
  const organizationId = freshOrganization()
  await counters.take(ask(organizationId, rules))
  redis.freeze()
  try {
    const startedMs = performance.now()
    const late = await Promise.allSettled(
      Array.from({ length: 20 }, () => counters.take(ask(organizationId, rules))),
    )
    expect(performance.now() - startedMs).toBeLessThan(answerMaxMs + 500)
    for (const one of late)
      expect(one).toMatchObject({ status: 'rejected', reason: expect.any(CountersUnavailable) })
  } finally {
    redis.thaw()
  }
})
