import { setFlagsFromString } from 'node:v8'
import { expect, test } from 'vitest'
import { openRedis } from '../../src/concurrency/redis.ts'

test('loading the Redis client does not slow down the methods of strings', async () => {
  setFlagsFromString('--allow-natives-syntax')
  const isFast = new Function('return %HasFastProperties(String.prototype)')
  // No server listens there, because the test only needs to load the package.
  const redis = await openRedis({ url: 'redis://127.0.0.1:1', name: 'none', script: '' })
  redis.on('error', () => undefined)
  redis.disconnect()
  expect(isFast()).toBe(true)
})
