import type { PixelPeriod } from '../../events/pixel.ts'

/** Periods are calendar days and calendar months in UTC, not the last 24 hours or 30 days (decision 22). */

const dayMs = 86_400_000

/** Returns the first day of the period that contains an instant, as `YYYY-MM-DD`. */
export const periodStart = (period: PixelPeriod, atMs: number): string => {
  const day = new Date(atMs).toISOString().slice(0, 10)
  return period === 'day' ? day : `${day.slice(0, 8)}01`
}

/** Returns the time at which the period that begins on `start` ends and its counters restart. */
export const periodEndMs = (period: PixelPeriod, start: string): number => {
  const startMs = Date.parse(`${start}T00:00:00.000Z`)
  if (period === 'day') return startMs + dayMs
  const first = new Date(startMs)
  return Date.UTC(first.getUTCFullYear(), first.getUTCMonth() + 1, 1)
}
