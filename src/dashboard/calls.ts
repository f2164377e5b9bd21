import type pg from 'pg'
import { linePlaces } from '../administration/ledgers/line-places.ts'
import {
  type CallFilters,
  type CallPlace,
  type CallRow,
  callsThatMatch,
  lookedThrough,
} from './calls-queries.ts'
import { rowsOf } from './queries.ts'

/** Reads pages of calls. Each page searches a limited number of lines, including lines that do not match. */

const lookedMax = 8_000

export type CallsPage = {
  readonly calls: readonly CallRow[]
  /** The position below which the next page begins; null if no older call matches. */
  readonly older: CallPlace | null
}

export const callsPage = async (
  pool: pg.Pool,
  filters: CallFilters,
  { before, max }: { readonly before: CallPlace | null; readonly max: number },
): Promise<CallsPage> => {
  const start = before ?? (await lastPlace(pool, filters))
  const [end] = await rowsOf(pool, lookedThrough(filters, start, lookedMax))
  const downTo = end === undefined ? null : { ...end, atMs: end.at.getTime() }
  const found = await rowsOf(pool, callsThatMatch(filters, { before: start, downTo, max: max + 1 }))
  const calls = found.slice(0, max)
  const last = calls.at(-1)
  if (found.length > max && last !== undefined)
    return { calls, older: { ...last, atMs: last.effective_at.getTime() } }
  return { calls, older: downTo }
}

/** The revision at which a range ends. Lines of one organization are searched by revision, not by time. */
const lastPlace = async (
  pool: pg.Pool,
  { organizationId, fromMs, untilMs }: CallFilters,
): Promise<CallPlace | null> => {
  if (organizationId === null) return null
  const places = await linePlaces(pool, organizationId, { fromMs, untilMs })
  return places === null ? null : { atMs: untilMs, ledger: '0', revision: String(BigInt(places.last) + 1n) }
}

const placePattern = /^(\d{1,15})_(-?\d{1,19})_(\d{1,15})$/

export const placeText = ({ atMs, ledger, revision }: CallPlace): string => `${atMs}_${ledger}_${revision}`

/** The position in the URL of a page; null if the text is not a position. */
export const placeIn = (text: string): CallPlace | null => {
  const [, at, ledger, revision] = placePattern.exec(text) ?? []
  if (at === undefined || ledger === undefined || revision === undefined) return null
  // PostgreSQL refuses a number that is larger than a bigint.
  return BigInt.asIntN(64, BigInt(ledger)) === BigInt(ledger) ? { atMs: Number(at), ledger, revision } : null
}
