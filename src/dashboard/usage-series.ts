import type { UsagePointRow } from './usage-queries.ts'

/** Sums by time and group as the columns of one table: every hour or day has a row, even without usage. Pure. */

type UsagePoint = {
  /** A day such as 2026-11-21, or the instant at which an hour begins. */
  readonly at: string
  /** In the order of the groups. */
  readonly calls: readonly bigint[]
  readonly chargedMicro: readonly bigint[]
}

export type UsageSeries = {
  /** Null: those beyond the first. */
  readonly groups: readonly (string | null)[]
  readonly points: readonly UsagePoint[]
}

const [dayMs, hourMs] = [86_400_000, 3_600_000]

/** Every day, or hour, from one day through another. */
export const timesOf = ({ from, to, unit }: { from: string; to: string; unit: 'day' | 'hour' }): string[] => {
  const times: string[] = []
  const untilMs = Date.parse(to) + dayMs
  for (let atMs = Date.parse(from); atMs < untilMs; atMs += unit === 'day' ? dayMs : hourMs) {
    const iso = new Date(atMs).toISOString()
    times.push(unit === 'day' ? iso.slice(0, 10) : `${iso.slice(0, 19)}Z`)
  }
  return times
}

export const seriesOf = (times: readonly string[], rows: readonly UsagePointRow[]): UsageSeries => {
  const named = new Set(rows.map(({ name }) => name))
  const rest = named.delete(null)
  const groups = [...[...named].sort((a, b) => ((a ?? '') < (b ?? '') ? -1 : 1)), ...(rest ? [null] : [])]
  const cells = new Map(rows.map((row) => [JSON.stringify([row.at, row.name]), row]))
  const points = times.map((at): UsagePoint => {
    const own = groups.map((name) => cells.get(JSON.stringify([at, name])))
    return {
      at,
      calls: own.map((row) => BigInt(row?.calls ?? 0)),
      chargedMicro: own.map((row) => BigInt(row?.charged_micro ?? 0)),
    }
  })
  return { groups, points }
}
