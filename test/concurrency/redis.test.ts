import { setFlagsFromString } from 'node:v8'
import { expect, test } from 'vitest'
import { openRedis } from '../../src/concurrency/redis.ts'

test('the client of Redis leaves the methods of strings as fast as they were', async () => {
  setFlagsFromString('--allow-natives-syntax')
  const isFast = new Function('return %HasFastProperties(String.prototype)')
  // No one listens there: the package is loaded, and that is all.
  const redis = await openRedis({ url: 'redis://127.0.0.1:1', name: 'none', script: '' })
  redis.on('error', () => undefined)
  redis.disconnect()
  expect(isFast()).toBe(true)
})
