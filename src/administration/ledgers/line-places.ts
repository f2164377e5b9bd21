import type pg from 'pg'
import { lastLineOf } from '../../../projections/statement-lines.ts'
import { closableAfterMs } from '../../billing/months.ts'
import { rowsOf } from '../../concurrency/query.ts'

/**
 * Finds the lines of a time range in a statement by binary search. Lines are stored in the order of their times, except for late lines, whose
 * maximum delay is known.
 */

/** 2 to this power exceeds the number of events in any ledger. */
const halvingsMax = 64

/** The first line at or above a revision. Expiries are skipped, because they take effect long before they are written. */
const lineFrom = async (pool: pg.Pool, organizationId: string, revision: string) => {
  const { rows } = await pool.query<{ revision: string; effective_at: Date }>(
    `select l.revision::text, l.effective_at from ledger_lines l
      where l.ledger = ledger_key($1) and l.revision >= $2::bigint and l.kind <> 'expiry' order by l.revision limit 1`,
    [organizationId, revision],
  )
  return rows[0]
}

/** An inclusive range of revisions that contains all lines of some days, and possibly others. */
type LinePlaces = { readonly first: string; readonly last: string }

/** A range of revisions that contains all lines in the time range; null if the ledger has no lines. */
export const linePlaces = async (
  pool: pg.Pool,
  organizationId: string,
  { fromMs, untilMs }: { readonly fromMs: number; readonly untilMs: number },
): Promise<LinePlaces | null> => {
  const end = await lastLine(pool, organizationId)
  if (end === null) return null
  const first = await firstAt(pool, organizationId, { end, atMs: fromMs - closableAfterMs })
  const beyond = await firstAt(pool, organizationId, { end, atMs: untilMs + closableAfterMs })
  return { first: String(first), last: String(beyond) }
}

/** The last revision that has a line; null if the ledger has no lines. */
export const lastLine = async (pool: pg.Pool, organizationId: string): Promise<bigint | null> => {
  const rows = await rowsOf(pool, lastLineOf(organizationId))
  return rows[0]?.revision == null ? null : BigInt(rows[0].revision)
}

/** The lowest revision whose line is at or after an instant, if no line is late; `end` if there is none. */
const firstAt = async (
  pool: pg.Pool,
  organizationId: string,
  { end, atMs }: { readonly end: bigint; readonly atMs: number },
): Promise<bigint> => {
  let low = 0n
  let high = end
  for (let halvings = 0; low < high && halvings < halvingsMax; halvings++) {
    const middle = (low + high) / 2n
    const line = await lineFrom(pool, organizationId, String(middle))
    if (line === undefined || line.effective_at.getTime() >= atMs) high = middle
    else low = BigInt(line.revision) + 1n
  }
  return low < end ? low : end
}
