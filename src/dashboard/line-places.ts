import type pg from 'pg'
import { lastLineOf } from '../../projections/statement-lines.ts'
import { closableAfterMs } from '../billing/months.ts'
import { rowsOf } from './queries.ts'
import { type LinePlaces, lineFrom } from './usage-queries.ts'

/**
 * Where in a statement the lines of a time are. They are in the order in which they were written, which is that of their times
 * but for what was late; how late a call may be is known. So they are found by halving, and not by reading all of them.
 */

/** 2 to this power is more than any ledger has events. */
const halvingsMax = 64

/** Lines whose times are in the range are within these revisions; null where there is no line. */
export const linePlaces = async (
  pool: pg.Pool,
  organizationId: string,
  { fromMs, untilMs }: { readonly fromMs: number; readonly untilMs: number },
): Promise<LinePlaces | null> => {
  const [last] = await rowsOf(pool, lastLineOf(organizationId))
  if (last?.revision == null) return null
  const end = BigInt(last.revision)
  const first = await firstAt(pool, organizationId, { end, atMs: fromMs - closableAfterMs })
  const beyond = await firstAt(pool, organizationId, { end, atMs: untilMs + closableAfterMs })
  return { first: String(first), last: String(beyond) }
}

/** The least revision from which on lines are of an instant or later, as far as lines are in order; `end` where none is. */
const firstAt = async (
  pool: pg.Pool,
  organizationId: string,
  { end, atMs }: { readonly end: bigint; readonly atMs: number },
): Promise<bigint> => {
  let low = 0n
  let high = end
  for (let halvings = 0; low < high && halvings < halvingsMax; halvings++) {
    const middle = (low + high) / 2n
    const [line] = await rowsOf(pool, lineFrom(organizationId, String(middle)))
    if (line === undefined || line.effective_at.getTime() >= atMs) high = middle
    else low = BigInt(line.revision) + 1n
  }
  return low < end ? low : end
}
