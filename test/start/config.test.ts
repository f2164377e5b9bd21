import { availableParallelism } from 'node:os'
import { describe, expect, test } from 'vitest'
import { ConfigError, parseConfig } from '../../src/config.ts'

describe('API_PROCESSES', () => {
  test.each([
    [undefined, 1],
    ['', 1],
    ['1', 1],
    ['64', 64],
    ['auto', Math.max(1, availableParallelism() - 1)],
  ])('%s is %s', (text, count) => {
    expect(parseConfig({ API_PROCESSES: text }).API_PROCESSES).toBe(count)
  })

  test.each(['0', '65', '-1', '1.5', 'all', ' 2', '0x2', 'AUTO', '100'])('"%s" stops the start', (text) => {
    expect(() => parseConfig({ API_PROCESSES: text })).toThrow(ConfigError)
    expect(() => parseConfig({ API_PROCESSES: text })).toThrow(
      `API_PROCESSES: a number from 1 to 64, or auto: one for each core but one (it is "${text}")`,
    )
  })
})
