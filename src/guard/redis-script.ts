import type { Redis } from 'ioredis'
import type { DirectoryKey } from './key-directory.ts'
import type { Counted, Window } from './rate-limit.ts'

/**
 * One script takes all windows of a call in one round trip. `rate-limiter-flexible` knows one window at a time and gives
 * back what it took for a denied call: four commands where this is one, with moments between them in which another
 * process sees points that will be given back.
 */

/**
 * Takes one from every window, or from none when one of them is full; a window opens with the first call it takes.
 * KEYS: the windows. ARGV: limit and length in milliseconds of each. Answers whether the call is denied, then of each
 * window what is used and how long it lasts. Redis runs scripts one at a time, so no other call comes between.
 */
export const takeScript = `
local denied, used, left = 0, {}, {}
for i, key in ipairs(KEYS) do
  left[i] = redis.call('pttl', key)
  used[i] = left[i] < 0 and 0 or tonumber(redis.call('get', key))
  if used[i] >= tonumber(ARGV[2 * i - 1]) then denied = 1 end
end
local answer = {denied}
for i, key in ipairs(KEYS) do
  if denied == 0 then
    used[i] = used[i] + 1
    if left[i] < 0 then redis.call('set', key, 1, 'px', ARGV[2 * i]) else redis.call('incr', key) end
  end
  answer[2 * i] = used[i]
  answer[2 * i + 1] = left[i] < 0 and tonumber(ARGV[2 * i]) or left[i]
end
return answer
`

/** Runs the script for a call's windows. */
export const askRedis = (redis: Redis, key: DirectoryKey, windows: readonly Window[]): Promise<Counted> => {
  const args: (string | number)[] = []
  // The braces keep a key's windows together in a cluster.
  for (const { policy } of windows) args.push(`enrichment:rate:{${key.keyId}}:${policy}`)
  for (const { limit, windowSeconds } of windows) args.push(limit, windowSeconds * 1_000)
  return redis.runScript(windows.length, ...args).then((answer) => answer as Counted)
}

/** Tries the script itself: a Redis that can be reached but not written to does not serve. */
export const probeRedis = async (redis: Redis): Promise<void> => {
  await redis.runScript(1, 'enrichment:rate:probe', Number.MAX_SAFE_INTEGER, 1_000)
}
