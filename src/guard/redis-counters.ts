import { openRedis, reasonOf } from '../concurrency/redis.ts'
import { askRedis, probeRedis, takeScript } from './redis-script.ts'
import type { CounterStore } from './shared-rate-limiter.ts'

/** Counters that every process of an installation shares, in Redis. `url` holds a password: never logged. */
export const openRedisCounters = async (url: string): Promise<CounterStore> => {
  const redis = await openRedis({ url, name: 'enrichment-rate-limits', script: takeScript })
  return {
    name: 'Redis',
    isConnected: () => redis.status === 'ready',
    ask: (key, windows) => askRedis(redis, key, windows),
    probe: () => probeRedis(redis),
    watch: ({ lost, fault }) => {
      redis.on('error', (error: unknown) => fault(reasonOf(error)))
      redis.on('close', lost)
    },
    disconnect: () => redis.disconnect(),
  }
}
