import type { Query } from '../../projections/projection.ts'
import { boundMs, bucketCount, percentileMs } from '../call/latency-buckets.ts'

/** How long an organization's calls took, as percentiles by time and capability. */

/** Of 35 days, a row for each hour and capability: more than there can be. */
const rowsMax = 10_000

type LatencyRow = { readonly hour: Date; readonly capability: string; readonly counts: number[] }

/** Days, both inclusive. */
export const latencyRows = (
  organizationId: string,
  { from, to }: { readonly from: string; readonly to: string },
): Query<LatencyRow> => ({
  text: `select hour, capability, counts from call_latency
          where organization_id = $1 and hour >= $2::date::timestamp at time zone 'utc'
            and hour < ($3::date + 1)::timestamp at time zone 'utc'
          order by hour, capability limit ${rowsMax}`,
  values: [organizationId, from, to],
})

const percentiles = [0.5, 0.95, 0.99] as const
export const percentileNames = ['p50', 'p95', 'p99'] as const

type LatencyPoint = {
  readonly at: string
  readonly calls: number
  /** In the order of their names, in milliseconds; null where there was no call. */
  readonly ms: readonly (number | null)[]
}

export type LatencySeries = {
  readonly capability: string
  readonly points: readonly LatencyPoint[]
  /** Of the whole time. */
  readonly whole: LatencyPoint
}

/** A series for each capability that was called, with a point for each of the times: of hours or, where they are days, of days. Pure. */
export const latencySeries = (times: readonly string[], rows: readonly LatencyRow[]): LatencySeries[] => {
  const byCapability = new Map<string, Map<string, number[]>>()
  for (const { hour, capability, counts } of rows) {
    const at =
      times[0]?.length === 10 ? hour.toISOString().slice(0, 10) : `${hour.toISOString().slice(0, 19)}Z`
    const own = byCapability.get(capability) ?? new Map<string, number[]>()
    byCapability.set(capability, own)
    own.set(at, sumOf(own.get(at) ?? [], counts))
  }
  return [...byCapability]
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([capability, own]) => ({
      capability,
      points: times.map((at) => pointOf(at, own.get(at) ?? [])),
      whole: pointOf('', [...own.values()].reduce(sumOf, [])),
    }))
}

const sumOf = (a: readonly number[], b: readonly number[]): number[] =>
  Array.from({ length: Math.max(a.length, b.length) }, (_, i) => (a[i] ?? 0) + (b[i] ?? 0))

const pointOf = (at: string, counts: readonly number[]): LatencyPoint => ({
  at,
  calls: counts.reduce((sum, count) => sum + count, 0),
  ms: percentiles.map((part) => percentileMs(counts, part)),
})

/** Three digits that matter; empty for none. */
export const msText = (ms: number | null): string => {
  if (ms === null) return ''
  return Number.isFinite(ms) ? String(Number(ms.toPrecision(3))) : String(beyondMs)
}

/** What took longer than every bound is shown as the last of them. */
export const beyondMs = boundMs(bucketCount - 2)
