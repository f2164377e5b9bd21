import { type Step, timeOf } from './ranges.ts'
import type { UsagePointRow } from './usage-queries.ts'

/** Sums by time and group as the columns of one table: every minute, hour or day has a row, even without usage. Pure. */

type UsagePoint = {
  /** A day such as 2026-11-21, or the instant at which a minute or an hour begins. */
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

/** `times`: every step of the range, as `timesOf` gives them. */
export const seriesOf = (
  times: readonly string[],
  rows: readonly UsagePointRow[],
  step: Step,
): UsageSeries => {
  const named = new Set(rows.map(({ name }) => name))
  const rest = named.delete(null)
  const groups = [...[...named].sort((a, b) => ((a ?? '') < (b ?? '') ? -1 : 1)), ...(rest ? [null] : [])]
  const cells = new Map(rows.map((row) => [JSON.stringify([timeOf(row.at.getTime(), step), row.name]), row]))
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
