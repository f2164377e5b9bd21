import { Registry } from '@prometheus-io/client'
import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { createMeters } from '../../src/metrics/meters.ts'
import { samples } from './samples.ts'

/** Figures that have to be asked for, while what they are asked of does not answer. */

beforeEach(() => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] })
})
afterEach(() => {
  vi.useRealTimers()
})

const scene = () => {
  const registry = new Registry()
  const meters = createMeters(registry)
  let answer: () => Promise<readonly { value: number }[]> = async () => [{ value: 7 }]
  let asked = 0
  meters.gauge({ name: 'asked', help: 'of the database' }, () => {
    asked += 1
    return answer()
  })
  meters.gauge({ name: 'own', help: 'of this process' }, () => [{ value: 1 }])
  return {
    answering: (how: typeof answer) => {
      answer = how
    },
    asked: () => asked,
    told: async (afterMs = 0) => {
      const text = registry.metrics()
      await vi.advanceTimersByTimeAsync(afterMs)
      const values = samples(await text, 'asked')
      return [
        values[''],
        samples(await text, 'own')[''],
        Math.round(samples(await text, 'figures_age_seconds')[''] ?? Number.NaN),
      ]
    },
  }
}

test('figures of now have the age 0', async () => {
  expect(await scene().told()).toEqual([7, 1, 0])
})

test('what does not answer within a second is told as it was last known, with its age; then nobody waits for it, nor asks again', async () => {
  const { answering, told, asked } = scene()
  await told()
  answering(() => new Promise(() => undefined))
  await vi.advanceTimersByTimeAsync(30_000)
  expect(await told(1_000)).toEqual([7, 1, 31])
  expect(await told()).toEqual([7, 1, 31])
  await vi.advanceTimersByTimeAsync(60_000)
  expect(await told()).toEqual([7, 1, 91])
  expect(asked()).toBe(2)
})

test('an error is told as silence is, and the next answer as now', async () => {
  const { answering, told } = scene()
  await told()
  await vi.advanceTimersByTimeAsync(10_000)
  answering(() => Promise.reject(new Error('away')))
  expect(await told()).toEqual([7, 1, 10])
  answering(async () => [{ value: 8 }])
  expect(await told()).toEqual([8, 1, 0])
})

test('what was never known, or not for five minutes, is left out', async () => {
  const { answering, told } = scene()
  answering(() => Promise.reject(new Error('away')))
  expect(await told()).toEqual([undefined, 1, 0])
  answering(async () => [{ value: 8 }])
  await told()
  answering(() => Promise.reject(new Error('away')))
  await vi.advanceTimersByTimeAsync(301_000)
  expect((await told()).slice(0, 2)).toEqual([undefined, 1])
})
