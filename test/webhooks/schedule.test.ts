import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { failingMsMax, nextAttemptMs, retryDelaysMs, verdictOf } from '../../src/webhooks/send.ts'

const hourMs = 3_600_000
const base = { attempts: 1, failingSinceMs: 0, nowMs: 0, chance: 0 }

describe('retries of a message', () => {
  test('there are eight attempts within about a day, and no pause is shorter than the previous one', () => {
    let nowMs = 0
    const pauses: number[] = []
    for (let attempts = 1; ; attempts++) {
      const next = nextAttemptMs(attempts, nowMs, 0)
      if (next === null) break
      pauses.push(next - nowMs)
      nowMs = next
    }
    expect(pauses).toEqual([...retryDelaysMs])
    expect(pauses).toHaveLength(7)
    expect(pauses).toEqual(pauses.toSorted((a, b) => a - b))
    expect(nowMs / hourMs).toBeGreaterThan(22)
    expect(nowMs / hourMs).toBeLessThan(24)
  })

  test('a random part makes a pause longer, by a tenth at most', () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: retryDelaysMs.length }),
        fc.double({ min: 0, max: 1, noNaN: true }),
        (attempts, chance) => {
          const delay = retryDelaysMs[attempts - 1] ?? 0
          const next = nextAttemptMs(attempts, 0, chance) ?? 0
          expect(next).toBeGreaterThanOrEqual(delay)
          expect(next).toBeLessThanOrEqual(delay * 1.1)
        },
      ),
    )
  })
})

describe('the meaning of an answer', () => {
  test.each([200, 201, 204, 299])('%d: delivered, no matter what happened before', (status) => {
    expect(verdictOf({ ...base, status, attempts: 8 })).toEqual({ kind: 'delivered' })
  })

  test.each([null, 100, 199, 300, 301, 307, 400, 404, 429, 500, 503])('%s: retried', (status) => {
    expect(verdictOf({ ...base, status })).toEqual({ kind: 'again', atMs: 60_000 })
  })

  test('410: nothing more is sent to this address', () => {
    expect(verdictOf({ ...base, status: 410 })).toMatchObject({ kind: 'disable' })
  })

  test('after the last attempt the message fails, and so does an address without any success for days', () => {
    const last = { ...base, status: 500, attempts: 8 }
    expect(verdictOf({ ...last, nowMs: failingMsMax - 1 })).toEqual({ kind: 'dead' })
    expect(verdictOf({ ...last, nowMs: failingMsMax })).toEqual({
      kind: 'disable',
      reason: 'every attempt failed since 1970-01-01T00:00:00.000Z',
    })
  })
})
