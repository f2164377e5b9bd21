import type { PixelPeriod } from '../../events/pixel.ts'

/** Periods are calendar days and calendar months in UTC (decision 22): never "the last 24 hours", never 30 days. */

const dayMs = 86_400_000

/** The first day of the period an instant lies in, as `YYYY-MM-DD`. */
export const periodStart = (period: PixelPeriod, atMs: number): string => {
  const day = new Date(atMs).toISOString().slice(0, 10)
  return period === 'day' ? day : `${day.slice(0, 8)}01`
}

/** When the period that begins on this day ends and its counters restart: the first instant after it. */
export const periodEndMs = (period: PixelPeriod, start: string): number => {
  const startMs = Date.parse(`${start}T00:00:00.000Z`)
  if (period === 'day') return startMs + dayMs
  const first = new Date(startMs)
  return Date.UTC(first.getUTCFullYear(), first.getUTCMonth() + 1, 1)
}
