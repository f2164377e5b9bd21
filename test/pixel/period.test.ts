/** UTC calendar days and months, at their boundaries (decision 22). */
import { describe, expect, test } from 'vitest'
import { periodEndMs, periodStart } from '../../src/capabilities/pixel/period.ts'
import type { PixelPeriod } from '../../src/events/pixel.ts'

const seams: readonly [PixelPeriod, string, string, string][] = [
  ['day', '2026-09-14T23:59:59.999Z', '2026-09-14', '2026-09-15T00:00:00.000Z'],
  ['day', '2026-09-15T00:00:00.000Z', '2026-09-15', '2026-09-16T00:00:00.000Z'],
  ['day', '2028-02-28T23:59:59.999Z', '2028-02-28', '2028-02-29T00:00:00.000Z'],
  ['day', '2027-02-28T23:59:59.999Z', '2027-02-28', '2027-03-01T00:00:00.000Z'],
  ['day', '2026-12-31T23:59:59.999Z', '2026-12-31', '2027-01-01T00:00:00.000Z'],
  // On this day clocks in Berlin change, but UTC does not.
  ['day', '2026-03-29T23:30:00.000Z', '2026-03-29', '2026-03-30T00:00:00.000Z'],
  ['month', '2026-09-30T23:59:59.999Z', '2026-09-01', '2026-10-01T00:00:00.000Z'],
  ['month', '2026-10-01T00:00:00.000Z', '2026-10-01', '2026-11-01T00:00:00.000Z'],
  ['month', '2028-02-29T23:59:59.999Z', '2028-02-01', '2028-03-01T00:00:00.000Z'],
  ['month', '2027-02-28T23:59:59.999Z', '2027-02-01', '2027-03-01T00:00:00.000Z'],
  ['month', '2100-02-28T23:59:59.999Z', '2100-02-01', '2100-03-01T00:00:00.000Z'],
  ['month', '2026-12-31T23:59:59.999Z', '2026-12-01', '2027-01-01T00:00:00.000Z'],
]

describe('an instant is in one period', () => {
  test.each(seams)('the %s of %s began on %s and ends at %s', (period, at, start, end) => {
    expect(periodStart(period, Date.parse(at))).toBe(start)
    expect(new Date(periodEndMs(period, start)).toISOString()).toBe(end)
  })

  test.each(['day', 'month'] as const)('and the next %s begins when it ends', (period) => {
    let start = periodStart(period, Date.UTC(2023, 11, 31))
    for (let n = 0; n < 1_000; n++) {
      const endMs = periodEndMs(period, start)
      expect(periodStart(period, endMs - 1)).toBe(start)
      const next = periodStart(period, endMs)
      expect(Date.parse(next)).toBe(endMs)
      start = next
    }
  })
})
