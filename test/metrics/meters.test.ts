import { Registry } from '@prometheus-io/client'
import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { createMeters } from '../../src/metrics/metrics.ts'
import { samples } from './samples.ts'

/** Metrics whose source does not answer. */

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
    collected: async (afterMs = 0) => {
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

test('current figures have the age 0', async () => {
  expect(await scene().collected()).toEqual([7, 1, 0])
})

test('a source that takes longer than a second gives its last known figures with their age; after that no one waits for it, and it is not asked again', async () => {
  const { answering, collected, asked } = scene()
  await collected()
  answering(() => new Promise(() => undefined))
  await vi.advanceTimersByTimeAsync(30_000)
  expect(await collected(1_000)).toEqual([7, 1, 31])
  expect(await collected()).toEqual([7, 1, 31])
  await vi.advanceTimersByTimeAsync(60_000)
  expect(await collected()).toEqual([7, 1, 91])
  expect(asked()).toBe(2)
})

test('an error counts like silence, and the next answer is current', async () => {
  const { answering, collected } = scene()
  await collected()
  await vi.advanceTimersByTimeAsync(10_000)
  answering(() => Promise.reject(new Error('away')))
  expect(await collected()).toEqual([7, 1, 10])
  answering(async () => [{ value: 8 }])
  expect(await collected()).toEqual([8, 1, 0])
})

test('figures that were never known, or not for five minutes, are left out', async () => {
  const { answering, collected } = scene()
  answering(() => Promise.reject(new Error('away')))
  expect(await collected()).toEqual([undefined, 1, 0])
  answering(async () => [{ value: 8 }])
  await collected()
  answering(() => Promise.reject(new Error('away')))
  await vi.advanceTimersByTimeAsync(301_000)
  expect((await collected()).slice(0, 2)).toEqual([undefined, 1])
})
