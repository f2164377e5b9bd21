import { type Step, timeOf } from './ranges.ts'
import type { UsagePointRow } from './usage-queries.ts'

/** Arranges sums by time and group in a table with a row for every step, even without usage. Pure. */

type UsagePoint = {
  /** A day such as 2026-11-21, or the instant at which a minute or an hour begins. */
  readonly at: string
  /** One value for each group, in the order of `groups`. */
  readonly calls: readonly bigint[]
  readonly chargedMicro: readonly bigint[]
}

export type UsageSeries = {
  /** Null means the sum of the remaining groups. */
  readonly groups: readonly (string | null)[]
  readonly points: readonly UsagePoint[]
}

/** `times` are all steps of the range, as returned by `timesOf`. */
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
