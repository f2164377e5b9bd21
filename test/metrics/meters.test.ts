import { Registry } from '@prometheus-io/client'
import { expect, test } from 'vitest'
import { createMeters } from '../../src/metrics/metrics.ts'
import { samples } from './samples.ts'

test.each([
  ['a rejection', () => Promise.reject(new Error('away'))],
  [
    'an exception',
    () => {
      throw new Error('away')
    },
  ],
])('a figure that cannot be read because of %s is left out, and the others are reported', async (_, read) => {
  const registry = new Registry()
  const meters = createMeters(registry)
  let isAway = false
  meters.gauge({ name: 'asked', help: 'of the database' }, () => (isAway ? read() : [{ value: 7 }]))
  meters.gauge({ name: 'own', help: 'of this process' }, () => [{ value: 1 }])
  const text = await registry.metrics()
  expect([samples(text, 'asked')[''], samples(text, 'own')['']]).toEqual([7, 1])
  isAway = true
  const later = await registry.metrics()
  expect([samples(later, 'asked')[''], samples(later, 'own')['']]).toEqual([undefined, 1])
})
