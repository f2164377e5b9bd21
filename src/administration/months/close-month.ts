import { type Month, monthAfter, monthStart } from '../../billing/months.ts'
import { closedTotals } from '../../billing/statement.ts'
import type { MonthClosed } from '../../events/credits.ts'
import type { Foundation } from '../../foundation/foundation.ts'
import { CommandRefused, LedgerChanged } from '../../ledger/command.ts'
import { type Months, nextOf, readOn } from '../../ledger/months/months.ts'
import type { MonthClosing } from '../../ledger/months/pages.ts'
import { uniqueCommandKey } from '../credits/credits.ts'
import {
  closableAt,
  closingUpTo,
  type MonthStatement,
  type Reading,
  statementFromLog,
  storeStatement,
} from './statements.ts'

/** The maximum number of times that a ledger is read again because it has changed. After that, the closing fails. */
const attemptsMax = 10

export type ClosedMonth = {
  readonly organizationId: string
  readonly closed: MonthClosed
  /** True if the month was already closed, so nothing was written. */
  readonly already: boolean
  /** Number of lots that were written off. */
  readonly expired: number
}

type CloseRequest = {
  readonly organizationId: string
  readonly month: Month
  readonly actor: string
  readonly nowMs: number
  readonly onProgress?: ((events: number) => void) | undefined
}

/** Throws `CommandRefused` if the month cannot be closed yet. */
export const requireClosable = (month: Month, nowMs: number): void => {
  if (nowMs < closableAt(month))
    throw new CommandRefused(
      `${month} can be closed from ${new Date(closableAt(month)).toISOString()} on: until then its calls can still be written`,
    )
}

/**
 * Closes a month: writes off lots that expired in it, and records the totals of its statement. Returns null if the organization had
 * no movements up to the end of the month. Throws `CommandRefused` if the month cannot be closed yet, or an earlier month is open.
 */
export const closeMonth = async (
  foundation: Pick<Foundation, 'ledger'> & Reading,
  request: CloseRequest,
): Promise<ClosedMonth | null> => {
  const { organizationId, month, nowMs, onProgress } = request
  requireClosable(month, nowMs)
  const closing = await closingUpTo(foundation, organizationId, month)
  if (closing?.month === month) return { organizationId, closed: closing.closed, already: true, expired: 0 }
  let expired = 0
  for (let attempt = 0; attempt < attemptsMax; attempt++) {
    const statement = await statementFromLog(foundation, {
      organizationId,
      month,
      nowMs,
      file: null,
      onProgress,
    })
    if (statement.closing !== null) return { ...closedBefore(request, statement.closing), expired }
    requireEarlierClosed(statement.months, request)
    if (!statement.begun) return null
    expired += await writeOff(foundation, request)
    const closed = await closeOnce(foundation, request, statement)
    if (closed === null) continue
    const { pool } = foundation
    if (pool !== undefined) await storeStatement({ ...foundation, pool }, request)
    return { ...closed, expired }
  }
  throw new CommandRefused(
    `the ledger of ${organizationId} changed too fast to close ${month}; try again when fewer calls are made`,
  )
}

const closedBefore = (
  { organizationId, month }: CloseRequest,
  closing: MonthClosing,
): Omit<ClosedMonth, 'expired'> => {
  if (closing.month !== month)
    throw new CommandRefused(`${month} was closed with ${closing.month}, because nothing was recorded for it`)
  return { organizationId, closed: closing.closed, already: true }
}

/** Throws `CommandRefused` while an earlier month is open. */
const requireEarlierClosed = (
  { start, sums, closings }: Months,
  { organizationId, month }: CloseRequest,
): void => {
  const closedUpTo = closings.reduce(
    (last, closing) => (closing.month > last ? closing.month : last),
    start.after,
  )
  const open = [...sums.keys()].sort().find((one) => one > closedUpTo)
  if (open !== undefined && open < month)
    throw new CommandRefused(
      `${open} of ${organizationId} is open: close it first, with "ledger close ${organizationId} ${open}"`,
    )
}

/** Writes off the rest of lots that expired before the end of the month. Returns the number of these lots. */
const writeOff = async (
  { ledger }: Pick<Foundation, 'ledger'>,
  { organizationId, month }: CloseRequest,
): Promise<number> => {
  const overMs = Date.parse(monthStart(monthAfter(month)))
  let written = 0
  for (const { grantId, expiresAtMs } of (await ledger.account(organizationId)).lots) {
    if (expiresAtMs >= overMs) continue
    const { events, repeated } = await ledger.submit(organizationId, {
      key: uniqueCommandKey(`expire/${grantId}`),
      // The write-off is effective when the lot expires.
      atMs: expiresAtMs,
      actor: 'system',
      kind: 'expire',
      grantId,
    })
    if (events.length > 0 && !repeated) written++
  }
  return written
}

/**
 * Tries to close the month once. Returns null if the statement must be read again: a lot was written off, the month was closed, or
 * the month has more events.
 */
const closeOnce = async (
  foundation: Pick<Foundation, 'eventLog' | 'ledger'>,
  request: CloseRequest,
  { summary, digest, months }: Pick<MonthStatement, 'summary'> & { digest: string; months: Months },
): Promise<Omit<ClosedMonth, 'expired'> | null> => {
  const { organizationId, month, onProgress } = request
  const known = months.closings.length
  const counted = months.sums.get(month)?.events
  for (let attempt = 0; attempt < attemptsMax; attempt++) {
    // Reads the events that were recorded while the statement was read. Almost none of these events belong to this month.
    await readOn(foundation.eventLog, organizationId, months, { onProgress })
    if (months.closings.length > known || months.sums.get(month)?.events !== counted) return null
    requireEarlierClosed(months, request)
    const written = await append(foundation, request, {
      month,
      through_revision: months.end - 1,
      totals: closedTotals(summary),
      digest,
      next: nextOf(months, month),
    })
    if (written !== null) return { organizationId, ...written }
  }
  return null
}

/** Appends the closing. Returns null if too many events have been recorded since the last event that was counted. */
const append = async (
  { ledger }: Pick<Foundation, 'ledger'>,
  { organizationId, month, actor, nowMs }: CloseRequest,
  closed: MonthClosed,
): Promise<Pick<ClosedMonth, 'closed' | 'already'> | null> => {
  try {
    const { events } = await ledger.submit(organizationId, {
      key: `close/${month}`,
      atMs: nowMs,
      actor,
      kind: 'close_month',
      closed,
      absentUpTo: closed.through_revision,
    })
    const [event] = events
    // If another process closed the month at the same time, its event is returned.
    const written = event?.type === 'MonthClosed' ? event.data : closed
    return { closed: written, already: written.through_revision !== closed.through_revision }
  } catch (error) {
    if (error instanceof LedgerChanged) return null
    throw error
  }
}
