import { expect, test } from 'vitest'
import { remembered } from '../../src/concurrency/remembered.ts'

test('an answer is shared while it is being computed and while it is kept; a failure is not kept', async () => {
  let [asked, now] = [0, 0]
  const look = remembered(
    async () => {
      asked++
      if (asked === 2) throw new Error('away')
      return asked
    },
    { keptMs: 10, nowMs: () => now },
  )
  expect(await Promise.all([look(), look()])).toEqual([1, 1])
  now = 9
  expect(await look()).toBe(1)
  now = 10
  await expect(Promise.all([look(), look()])).rejects.toThrow('away')
  expect(asked).toBe(2)
  expect(await look()).toBe(3)
})
