import type pg from 'pg'
import { decodeTime } from 'ulid'
import {
  lastPlace,
  linesAfter,
  linesBefore,
  linesOfRequest,
  placeFrom,
  rowsOf,
  type StatementRow,
} from './queries.ts'

/** The statement's pages, and the search for one call in it. */

export const pageLines = 100

/** Where a page of the statement begins: below or above a revision; null: with the newest line. */
export type StatementPlace = { readonly before: string } | { readonly after: string } | null

export type StatementPage = {
  /** Newest first. */
  readonly lines: readonly StatementRow[]
  /** The revision to page on from; null: there is nothing further that way. */
  readonly older: string | null
  readonly newer: string | null
}

/** Above every revision: a bigint's largest value. */
const beyond = '9223372036854775807'

export const statementPage = async (
  pool: pg.Pool,
  organizationId: string,
  place: StatementPlace,
): Promise<StatementPage> => {
  const max = pageLines + 1
  if (place !== null && 'after' in place) {
    const found = await rowsOf(pool, linesAfter(organizationId, { revision: place.after, max }))
    const lines = found.slice(0, pageLines).reverse()
    const newer = found.length > pageLines ? (lines.at(0)?.revision ?? null) : null
    return { lines, older: lines.at(-1)?.revision ?? null, newer }
  }
  const found = await rowsOf(pool, linesBefore(organizationId, { revision: place?.before ?? beyond, max }))
  const lines = found.slice(0, pageLines)
  return {
    lines,
    older: found.length > pageLines ? (lines.at(-1)?.revision ?? null) : null,
    newer: place === null ? null : (lines.at(0)?.revision ?? null),
  }
}

/**
 * How far a line can stand from where its time would put it. Lines stand in the order in which calls ended and carry
 * the time at which they began, so neighbours disagree by a call's duration and by the clocks of two processes: seconds.
 */
const outOfOrderMs = 5 * 60_000
const requestLinesMax = 10
/** Twice the bits of a bigint: never reached, and an end if the rows change underfoot. */
const probesMax = 128

/**
 * The lines of one request, found without an index on request ids and without reading the ledger: a request id is a
 * ULID and tells its time, lines are in the order of time within a few minutes, so a binary search over the revisions
 * (one primary-key look-up a step) finds the stretch that can hold it, and only that is read. Exact as long as no line
 * is out of order by more than `outOfOrderMs`.
 */
export const linesOfCall = async (
  pool: pg.Pool,
  organizationId: string,
  requestId: string,
): Promise<StatementRow[]> => {
  const [last] = await rowsOf(pool, lastPlace(organizationId))
  if (last === undefined) return []
  const end = Number(last.revision) + 1
  const atMs = decodeTime(requestId)
  const from = await firstRevisionSince(pool, organizationId, { atMs: atMs - outOfOrderMs, from: 0, end })
  const to = await firstRevisionSince(pool, organizationId, { atMs: atMs + outOfOrderMs + 1, from, end })
  return rowsOf(pool, linesOfRequest(organizationId, { requestId, from, to, max: requestLinesMax }))
}

/** The revision in `[from, end]` where, as far as lines are in order, those of `atMs` and later begin. */
const firstRevisionSince = async (
  pool: pg.Pool,
  organizationId: string,
  { atMs, from, end }: { atMs: number; from: number; end: number },
): Promise<number> => {
  let low = from
  let high = end
  for (let probe = 0; low < high && probe < probesMax; probe++) {
    const middle = low + Math.floor((high - low) / 2)
    const [line] = await rowsOf(pool, placeFrom(organizationId, middle))
    if (line === undefined || line.effective_at.getTime() >= atMs) high = middle
    else low = Number(line.revision) + 1
  }
  return low
}
