import { type Month, monthAfter, monthStart } from '../billing/months.ts'
import { closedTotals } from '../billing/statement.ts'
import type { MonthClosed } from '../events/credits.ts'
import type { Foundation } from '../foundation/foundation.ts'
import { movedOn } from '../ledger/command.ts'
import { CommandRefused } from '../ledger/commit.ts'
import { type MonthSums, sumOn } from '../ledger/month-sums.ts'
import { uniqueCommandKey } from './credits.ts'
import { closableAt, type Reading, sumsOf, writeStatement } from './statements.ts'

/** How often a ledger that moves on is read again before it is given up. */
const attemptsMax = 10

export type ClosedMonth = {
  readonly organizationId: string
  readonly closed: MonthClosed
  /** It was closed before, and nothing was written. */
  readonly already: boolean
  /** Lots that were written off. */
  readonly expired: number
}

type CloseRequest = {
  readonly organizationId: string
  readonly month: Month
  readonly actor: string
  readonly nowMs: number
  readonly onProgress?: ((events: number) => void) | undefined
}

/**
 * Closes a month: writes off what expired in it, and records what its statement comes to. Null where the organization had
 * nothing yet in that month. Throws `CommandRefused` before the month can be closed, and while an earlier one is open.
 */
export const closeMonth = async (
  foundation: Pick<Foundation, 'ledger'> & Reading,
  request: CloseRequest,
): Promise<ClosedMonth | null> => {
  const { organizationId, month, nowMs, onProgress } = request
  if (nowMs < closableAt(month))
    throw new CommandRefused(
      `${month} can be closed from ${new Date(closableAt(month)).toISOString()} on: until then calls of it may still be written`,
    )
  let expired = 0
  for (let attempt = 0; attempt < attemptsMax; attempt++) {
    const sums = await sumsOf(foundation, organizationId, { onProgress })
    const closing = sums.closings.find((one) => one.month >= month)
    if (closing !== undefined) return { ...closedBefore(request, closing), expired }
    if (!mayClose(sums, request)) return null
    expired += await writeOff(foundation, request, sums)
    const closed = await closeOnce(foundation, request, sums)
    if (closed !== null) return { ...closed, expired }
  }
  throw new CommandRefused(
    `the ledger of ${organizationId} moved on too fast to close ${month}; try again when fewer calls are made`,
  )
}

const closedBefore = (
  { organizationId, month }: CloseRequest,
  closing: MonthSums['closings'][number],
): Omit<ClosedMonth, 'expired'> => {
  if (closing.month !== month)
    throw new CommandRefused(`${month} was closed with ${closing.month}: nothing counted in it`)
  return { organizationId, closed: closing.closed, already: true }
}

/** Whether there is something to close. Throws while an earlier month is open. */
const mayClose = ({ months, closings }: MonthSums, { organizationId, month }: CloseRequest): boolean => {
  const closedUpTo = closings.reduce((last, closing) => (closing.month > last ? closing.month : last), '')
  const counted = [...months.keys()].sort()
  const open = counted.find((one) => one > closedUpTo)
  if (open !== undefined && open < month)
    throw new CommandRefused(
      `${open} of ${organizationId} is open: close it first, by "ledger close ${organizationId} ${open}"`,
    )
  const [first] = counted
  return first !== undefined && first <= month
}

/** Writes off what is left of lots that expired before the month was over. The ledger knows what is left, and may find nothing. */
const writeOff = async (
  { ledger }: Pick<Foundation, 'ledger'>,
  { organizationId, month }: CloseRequest,
  { expiring }: MonthSums,
): Promise<number> => {
  const over = monthStart(monthAfter(month))
  let written = 0
  for (const [grantId, expiresAt] of expiring) {
    if (expiresAt >= over) continue
    const { events, repeated } = await ledger.submit(organizationId, {
      key: uniqueCommandKey(`expire/${grantId}`),
      // It is effective when the lot expired.
      atMs: Date.parse(expiresAt),
      actor: 'system',
      kind: 'expire',
      grantId,
    })
    if (events.length > 0 && !repeated) written++
  }
  return written
}

/** Null where another closing came meanwhile: everything has to be read anew. */
const closeOnce = async (
  foundation: Pick<Foundation, 'eventLog' | 'ledger'>,
  request: CloseRequest,
  before: MonthSums,
): Promise<Omit<ClosedMonth, 'expired'> | null> => {
  const { organizationId, month, onProgress } = request
  let sums = await sumOn(foundation.eventLog, organizationId, before)
  let statement: Awaited<ReturnType<typeof writeStatement>> | null = null
  for (let attempt = 0; attempt < attemptsMax && sums !== null; attempt++) {
    mayClose(sums, request)
    statement ??= await writeStatement(foundation, {
      organizationId,
      month,
      sums,
      mayBeClosed: true,
      file: null,
      onProgress,
    })
    // Long statements take their time, and calls go on: what came since is looked at, and hardly ever counts in this month.
    const later: MonthSums | null = await sumOn(foundation.eventLog, organizationId, sums)
    if (later === null) return null
    if (later.months.get(month)?.events !== sums.months.get(month)?.events) statement = null
    sums = later
    if (statement === null) continue
    mayClose(sums, request)
    const closed: MonthClosed = {
      month,
      through_revision: sums.end - 1,
      totals: closedTotals(statement.summary),
      digest: statement.digest,
    }
    const written = await append(foundation, request, closed)
    if (written !== null) return { organizationId, ...written }
  }
  return null
}

/** Null where more came meanwhile than may lie between the last counted event and the closing. */
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
    // Of two who close a month at a time, one does.
    const written = event?.type === 'MonthClosed' ? event.data : closed
    return { closed: written, already: written.through_revision !== closed.through_revision }
  } catch (error) {
    if (error instanceof CommandRefused && error.message.startsWith(movedOn)) return null
    throw error
  }
}
