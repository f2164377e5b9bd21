import { describe, expect, test } from 'vitest'
import { createCircuitBreaker } from '../../src/concurrency/circuit-breaker.ts'

describe('a circuit breaker', () => {
  test('one trial passes at a time; a trial that never ends is replaced by another', () => {
    const breaker = createCircuitBreaker<string>({
      failuresMax: 2,
      openMs: 100,
      openMsMax: 300,
      trialMs: 50,
    })
    breaker.fail('a', 0)
    expect(breaker.refuses(0)).toBeNull()
    breaker.fail('b', 0)
    expect(breaker.refuses(99)).toEqual({ cause: 'b', forMs: 1 })
    expect(breaker.refuses(100)).toBeNull()
    expect(breaker.refuses(101)).toEqual({ cause: 'b', forMs: 49 })
    expect(breaker.refuses(150)).toBeNull()
    breaker.fail('c', 151)
    expect(breaker.refuses(151)).toEqual({ cause: 'c', forMs: 200 })
    breaker.fail('late', 160)
    expect(breaker.refuses(351)).toBeNull()
    breaker.fail('d', 352)
    expect(breaker.refuses(352)).toEqual({ cause: 'd', forMs: 300 })
    breaker.succeed()
    expect(breaker.refuses(353)).toBeNull()
  })

  test('several failures with one cause count as one until the next success; a failed trial always counts', () => {
    const breaker = createCircuitBreaker<string>({
      failuresMax: 2,
      openMs: 100,
      openMsMax: 300,
      trialMs: 50,
    })
    breaker.fail('a', 0, { about: 'one' })
    breaker.fail('b', 0, { about: 'one' })
    expect(breaker.refuses(0)).toBeNull()
    breaker.succeed()
    breaker.fail('c', 0, { about: 'one' })
    breaker.fail('d', 0, { about: 'two' })
    expect(breaker.refuses(0)).toEqual({ cause: 'd', forMs: 100 })
    expect(breaker.refuses(100)).toBeNull()
    breaker.fail('e', 100, { about: 'one' })
    expect(breaker.refuses(100)).toEqual({ cause: 'e', forMs: 200 })
  })

  test('a trial without a waiting caller does not extend the pause', () => {
    const breaker = createCircuitBreaker<string>({
      failuresMax: 1,
      openMs: 100,
      openMsMax: 300,
      trialMs: 50,
    })
    breaker.fail('a', 0)
    for (const nowMs of [100, 200, 300]) {
      expect(breaker.refuses(nowMs)).toBeNull()
      breaker.fail('b', nowMs, { background: true })
      expect(breaker.refuses(nowMs)).toEqual({ cause: 'b', forMs: 100 })
    }
    expect(breaker.refuses(400)).toBeNull()
    breaker.fail('c', 400)
    expect(breaker.refuses(400)).toEqual({ cause: 'c', forMs: 200 })
  })

  test('a trial without a result is replaced by another', () => {
    const breaker = createCircuitBreaker<string>({
      failuresMax: 1,
      openMs: 100,
      openMsMax: 100,
      trialMs: Number.POSITIVE_INFINITY,
    })
    breaker.fail('a', 0)
    expect([breaker.refuses(100), breaker.refuses(100)?.cause]).toEqual([null, 'a'])
    breaker.abandon()
    expect(breaker.refuses(100)).toBeNull()
    expect(breaker.state(100)).toBe('half_open')
    breaker.succeed()
    expect(breaker.state(100)).toBe('closed')
  })
})
