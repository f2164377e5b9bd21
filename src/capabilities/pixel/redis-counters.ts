import { once } from 'node:events'
import type { Redis } from 'ioredis'
import type { Logger } from 'pino'
import { z } from 'zod'
import { openRedis, reasonOf } from '../../concurrency/redis.ts'
import {
  answeredInTime,
  CountersUnavailable,
  type CounterWindow,
  type HitAsk,
  hitMemoryMs,
  type PixelCounters,
  verdictFor,
  waitingMax,
} from './counters.ts'
import { hitHash, readRules, writeRules } from './hit-memory.ts'
import { periodEndMs } from './period.ts'

/**
 * Counters in Redis, shared by every process that names the same one. Redis runs a script alone and whole, so a hit is
 * counted against all of its limits or none.
 *
 * What it counts lasts as long as Redis keeps it: a restart loses everything without an append-only file, up to the last
 * second with `appendfsync everysec`, and a failover loses what the replica had not heard. Memory it may evict from
 * (`maxmemory-policy` other than `noeviction`) loses counters silently. A lost counter lets a cap be used again; whoever
 * cannot have that keeps the counters in PostgreSQL.
 */

/** What a starting process gives Redis to be there. */
const startMaxMs = 1_000
/** Counters stay this long after their period, for processes whose clocks are behind. */
const afterPeriodMs = 2 * 86_400_000

/**
 * KEYS: the hit (or the empty string), then one counter per limit. ARGV: now, the hit's expiry, the memory in ms, the rules
 * as text, 1 when blocked; then number and life in ms of each limit. Answers [repeated, fires, rules, used…].
 */
const takeScript = `
if KEYS[1] ~= ARGV[6] then
  local known = redis.call('hmget', KEYS[1], 'expires', 'fires', 'rules', 'used')
  if known[1] and tonumber(known[1]) > tonumber(ARGV[1]) then
    return {1, tonumber(known[2]), known[3], known[4]}
  end
end
local used, fires = {}, 1 - tonumber(ARGV[5])
for i = 2, #KEYS do
  used[i - 1] = tonumber(redis.call('get', KEYS[i]) or '0')
  if used[i - 1] >= tonumber(ARGV[2 * i + 3]) then fires = 0 end
end
if fires == 1 then
  for i = 2, #KEYS do
    used[i - 1] = redis.call('incr', KEYS[i])
    if used[i - 1] == 1 then redis.call('pexpire', KEYS[i], ARGV[2 * i + 4]) end
  end
end
local counted = table.concat(used, ',')
if KEYS[1] ~= ARGV[6] then
  redis.call('hset', KEYS[1], 'expires', ARGV[2], 'fires', fires, 'rules', ARGV[4], 'used', counted)
  redis.call('pexpire', KEYS[1], ARGV[3])
end
return {0, fires, '', counted}
`

const takeAnswer = z.tuple([z.int(), z.int(), z.string(), z.string().regex(/^(\d+(,\d+)*)?$/)])

/** Resolves once Redis is there, or after a second without it: until it is, no limited pixel fires. */
export const openRedisCounters = async ({
  url,
  logger,
}: {
  url: string
  logger: Logger
}): Promise<PixelCounters> => {
  const redis = await openRedis({ url, name: 'enrichment-pixel-counters', script: takeScript })
  let waiting = 0
  let failing = false

  const noted = (reason: string | null): void => {
    if (reason === null && failing) logger.info('pixel counters: Redis answers again')
    if (reason !== null && !failing)
      logger.warn({ reason }, 'pixel counters: Redis does not answer, no limited pixel fires')
    failing = reason !== null
  }
  // Without a listener an error would end the process; who asks is told anyway.
  redis.on('error', (error: unknown) => noted(reasonOf(error)))

  const ask = async <Value>(command: () => Promise<Value>): Promise<Value> => {
    if (waiting >= waitingMax) throw new CountersUnavailable(`${waitingMax} pixel hits are waiting`)
    waiting++
    try {
      const answer = await answeredInTime('pixel counters', command())
      noted(null)
      return answer
    } catch (error) {
      noted(reasonOf(error))
      // Not the client's error itself: it carries the command, which may be the one with the password.
      throw error instanceof CountersUnavailable ? error : new CountersUnavailable(reasonOf(error))
    } finally {
      waiting--
    }
  }

  await once(redis, 'ready', { signal: AbortSignal.timeout(startMaxMs) }).catch(() => undefined)

  return {
    take: async (hit) => {
      const answer = await ask(() => evaluate(redis, hit))
      const [repeated, fires, rules, used] = takeAnswer.parse(answer)
      return verdictFor(hit, {
        rules: repeated === 1 ? readRules(rules) : hit.rules,
        fires: fires === 1,
        used: used === '' ? [] : used.split(',').map(Number),
      })
    },
    used: async (organizationId, windows) => {
      if (windows.length === 0) return []
      const keys = windows.map((window) => counterKey(organizationId, window))
      return (await ask(() => redis.mget(keys))).map(Number)
    },
    close: async () => redis.disconnect(),
  }
}

/** The braces keep an organization's keys together in a cluster. */
const counterKey = (organizationId: string, { domain, period, periodStart }: CounterWindow): string =>
  `enrichment:pixel:{${organizationId}}:${period}:${periodStart}:${domain}`

const evaluate = (redis: Redis, { organizationId, host, hitId, atMs, rules }: HitAsk): Promise<unknown> => {
  const noHit = `enrichment:pixel:{${organizationId}}:no-hit`
  const hit = hitId === null ? noHit : `enrichment:pixel:{${organizationId}}:hit:${hitHash(host, hitId)}`
  const { blockedBy, limits } = rules
  const args: (string | number)[] = [
    hit,
    ...limits.map((window) => counterKey(organizationId, window)),
    atMs,
    atMs + hitMemoryMs,
    hitMemoryMs,
    hitId === null ? '' : writeRules(rules),
    blockedBy === null ? 0 : 1,
    noHit,
  ]
  for (const { period, periodStart, number } of limits)
    args.push(number, periodEndMs(period, periodStart) - atMs + afterPeriodMs)
  return redis.runScript(limits.length + 1, ...args)
}
