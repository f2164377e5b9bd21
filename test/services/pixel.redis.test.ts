/** Decision 22 and 23 across processes: caps hold exactly, counted in a real Redis. */
import { afterAll, describe } from 'vitest'
import { pixelProcesses } from '../pixel/processes.ts'
import { type RedisServer, startRedisServer } from './redis-server.ts'

let redis: RedisServer
afterAll(() => redis?.close())

describe('the pixel controls of two processes with one Redis', () => {
  pixelProcesses({
    cap: 5_000,
    variables: async () => {
      redis = await startRedisServer()
      return { REDIS_URL: redis.url }
    },
  })
})
