/** Matched rules and counters determine the answer. The tests compare whole answers. */
import { describe, expect, test } from 'vitest'
import { decideHit, decideLimitSet } from '../../src/capabilities/pixel/decide.ts'
import type { LimitWindow } from '../../src/capabilities/pixel/rules-state.ts'
import type { PixelPeriod } from '../../src/events/pixel.ts'

const limit = (domain: string, period: PixelPeriod, number: number): LimitWindow => ({
  domain,
  period,
  number,
  periodStart: period === 'day' ? '2026-09-14' : '2026-09-01',
})
const tomorrow = '2026-09-15T00:00:00.000Z'
const nextMonth = '2026-10-01T00:00:00.000Z'
const judged = (fires: boolean, ...counted: [LimitWindow, number][]) => ({
  rules: { blockedBy: null, limits: counted.map(([one]) => one) },
  fires,
  used: counted.map(([, used]) => used),
})

describe('a decision', () => {
  test.each([
    [
      'without a rule fires',
      judged(true),
      { fire: true, reason: 'no_rule', domain: null, remaining: null, resets_at: null },
    ],
    [
      'under a block does not fire, and names the block',
      { rules: { blockedBy: 'example.com', limits: [] }, fires: false, used: [] },
      { fire: false, reason: 'blocked', domain: 'example.com', remaining: null, resets_at: null },
    ],
    [
      'within a limit fires, and returns the rest',
      judged(true, [limit('example.com', 'day', 5), 2]),
      { fire: true, reason: 'allowed', domain: 'example.com', remaining: 3, resets_at: tomorrow },
    ],
    [
      'within several limits returns the smallest rest',
      judged(true, [limit('a.example.com', 'day', 9), 2], [limit('example.com', 'month', 9), 6]),
      { fire: true, reason: 'allowed', domain: 'example.com', remaining: 3, resets_at: nextMonth },
    ],
    [
      'with the last remaining hit fires',
      judged(true, [limit('example.com', 'day', 5), 5]),
      { fire: true, reason: 'allowed', domain: 'example.com', remaining: 0, resets_at: tomorrow },
    ],
    [
      'beyond a limit does not fire',
      judged(false, [limit('example.com', 'day', 5), 5]),
      { fire: false, reason: 'limit', domain: 'example.com', remaining: 0, resets_at: tomorrow },
    ],
    [
      'beyond a limit that was lowered below its use has nothing left, not less than nothing',
      judged(false, [limit('example.com', 'day', 5), 8]),
      { fire: false, reason: 'limit', domain: 'example.com', remaining: 0, resets_at: tomorrow },
    ],
    [
      'beyond two limits names the one that lasts longer',
      judged(false, [limit('a.example.com', 'day', 5), 7], [limit('example.com', 'month', 9), 9]),
      { fire: false, reason: 'limit', domain: 'example.com', remaining: 0, resets_at: nextMonth },
    ],
    [
      'beyond two limits that last equally long names the nearer one',
      judged(false, [limit('a.example.com', 'day', 5), 5], [limit('example.com', 'day', 9), 9]),
      { fire: false, reason: 'limit', domain: 'a.example.com', remaining: 0, resets_at: tomorrow },
    ],
    [
      'that could not be made does not fire, and gives the reason',
      'unavailable' as const,
      { fire: false, reason: 'unavailable', domain: null, remaining: null, resets_at: null },
    ],
  ])('%s', (_, findings, result) => {
    expect(decideHit(findings)).toEqual({
      result,
      facts: { kind: 'pixel', action: 'decided', domain: result.domain, fire: result.fire },
    })
  })
})

describe('a limit', () => {
  test.each([
    [0, 5],
    [5, 0],
    [9, 0],
    [null, null],
  ])('of 5 with %s used has %s left', (used, remaining) => {
    expect(decideLimitSet({ limit: limit('example.com', 'month', 5), used })).toEqual({
      result: { domain: 'example.com', period: 'month', number: 5, used, remaining, resets_at: nextMonth },
      facts: { kind: 'pixel', action: 'limit_set', domain: 'example.com', fire: null },
    })
  })

  test('above the maximum number of rules of an organization is refused', () => {
    expect(decideLimitSet('too_many')).toMatchObject({
      refusal: { code: 'REQ_003', details: { parameter: 'domain' } },
    })
  })
})
