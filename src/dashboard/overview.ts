import type pg from 'pg'
import { rowsOf } from '../concurrency/query.ts'
import { type LowBalanceRow, lowBalances, type UnpaidRow, unpaidCalls } from './overview-queries.ts'
import { type Range, stepMs, timesOf } from './ranges.ts'
import {
  type CodeRow,
  callsByCode,
  type HourRow,
  type OrganizationUseRow,
  type UsageDimension,
  usageBySteps,
  usagePoints,
  useOfAll,
} from './usage-queries.ts'
import { seriesOf, type UsageSeries } from './usage-series.ts'

/** Usage figures for the overviews of all organizations and of one organization. */

const topMax = 10
const codesMax = 10
const lowMax = 50

/** Sums for today until now, or for yesterday until the same time of day. */
type Today = {
  readonly calls: bigint
  readonly errors: bigint
  readonly chargedMicro: bigint
}
export type TodayFigures = {
  readonly today: Today
  readonly yesterday: Today
  /** By hour, from midnight to now. */
  readonly hours: readonly Today[]
}

const { hour: hourMs, day: dayMs, minute: minuteMs } = stepMs
const none: Today = { calls: 0n, errors: 0n, chargedMicro: 0n }

const summed = (rows: readonly HourRow[]): Today =>
  rows.reduce(
    (sum, { calls, errors, charged_micro }) => ({
      calls: sum.calls + BigInt(calls),
      errors: sum.errors + BigInt(errors),
      chargedMicro: sum.chargedMicro + BigInt(charged_micro),
    }),
    none,
  )

/** Reads sums by hour. Yesterday's last hour is read by minute, because only a part of it counts. */
export const todayFigures = async (
  pool: pg.Pool,
  organizationId: string | null,
  nowMs: number,
): Promise<TodayFigures> => {
  const midnight = Math.floor(nowMs / dayMs) * dayMs
  const sameTime = Math.floor(nowMs / minuteMs) * minuteMs + minuteMs - dayMs
  const sameHour = Math.floor((nowMs - dayMs) / hourMs) * hourMs
  const all = { organizationId, keyId: null }
  const [hours, minutes] = await Promise.all([
    rowsOf(pool, usageBySteps({ ...all, step: 'hour', fromMs: midnight - dayMs, untilMs: midnight + dayMs })),
    rowsOf(pool, usageBySteps({ ...all, step: 'minute', fromMs: sameHour, untilMs: sameTime })),
  ])
  const ofToday = hours.filter(({ at }) => at.getTime() >= midnight)
  const before = hours.filter(({ at }) => at.getTime() < sameHour)
  const count = Math.floor((nowMs - midnight) / hourMs) + 1
  return {
    today: summed(ofToday),
    yesterday: summed([...before, ...minutes]),
    hours: Array.from({ length: count }, (_, i) =>
      summed(ofToday.filter(({ at }) => at.getTime() === midnight + i * hourMs)),
    ),
  }
}

export type RangeFigures = {
  readonly series: UsageSeries
  readonly codes: readonly CodeRow[]
}

export const rangeFigures = async (
  pool: pg.Pool,
  range: Range,
  { organizationId, by }: { readonly organizationId: string; readonly by: UsageDimension },
): Promise<RangeFigures> => {
  const ask = { ...range, organizationId, keyId: null }
  const [points, codes] = await Promise.all([
    rowsOf(pool, usagePoints(ask, by)),
    rowsOf(pool, callsByCode(ask, codesMax)),
  ])
  return { series: seriesOf(timesOf(range), points, range.step), codes }
}

export type Leaders = {
  readonly byCredits: readonly OrganizationUseRow[]
  readonly byErrors: readonly OrganizationUseRow[]
}

/** The figures of all organizations in a range, by outcome, and the organizations with the most credits and errors. */
export const figuresOfAll = async (
  pool: pg.Pool,
  range: Range,
): Promise<RangeFigures & { readonly leaders: Leaders }> => {
  const ask = { ...range, organizationId: null, keyId: null }
  const [rows, codes] = await Promise.all([
    rowsOf(pool, useOfAll(ask, topMax)),
    rowsOf(pool, callsByCode(ask, codesMax)),
  ])
  const points = rows.flatMap((row) => (row.at === null ? [] : { ...row, at: row.at, name: row.outcome }))
  const leading = (
    place: 'by_charged' | 'by_errors',
    sum: 'charged_micro' | 'errors',
  ): OrganizationUseRow[] =>
    rows
      .filter((row) => row[place] > 0 && row[place] <= topMax && row[sum] !== '0')
      .sort((one, other) => one[place] - other[place])
      .flatMap((row) =>
        row.organization_id === null ? [] : { ...row, organization_id: row.organization_id },
      )
  return {
    series: seriesOf(timesOf(range), points, range.step),
    codes,
    leaders: {
      byCredits: leading('by_charged', 'charged_micro'),
      byErrors: leading('by_errors', 'errors'),
    },
  }
}

export const lowOrganizations = (pool: pg.Pool, nowMs: number): Promise<LowBalanceRow[]> =>
  rowsOf(pool, lowBalances(nowMs, lowMax))

export type Unpaid = { readonly from: Date; readonly organizations: readonly UnpaidRow[] }

/** Organizations whose credits did not pay for calls in this hour or the hour before. */
export const unpaidOrganizations = async (pool: pg.Pool, nowMs: number): Promise<Unpaid> => {
  const fromMs = Math.floor(nowMs / hourMs) * hourMs - hourMs
  return { from: new Date(fromMs), organizations: await rowsOf(pool, unpaidCalls({ fromMs, nowMs }, lowMax)) }
}
