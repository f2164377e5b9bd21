import type { MicroCredits } from '../billing/money.ts'
import { createBookings, type Month } from '../billing/months.ts'
import { createStatement, type StatementLine, type StatementSummary } from '../billing/statement.ts'
import { createOwnPrices, hasLines } from '../billing/statement-line.ts'
import type { EventLog } from '../event-log/port.ts'
import type { MonthSums } from './month-sums.ts'
import { type MonthClosing, readLedger } from './pages.ts'
import { effectiveAtOf, recordOf } from './recorded-text.ts'

/** The statement of a month, read from the ledger line by line: it may have millions of them. */

/** What the balance was when a month began. */
export const openingOf = ({ months }: Pick<MonthSums, 'months'>, month: Month): MicroCredits => {
  let opening = 0n
  for (const [one, { net }] of months) if (one < month) opening += net
  return opening
}

type ReadStatement = {
  readonly summary: StatementSummary
  /** What closed the month, itself or with a later one; null: it is open. */
  readonly closing: MonthClosing | null
  /** The ledger's last revision that was looked at. */
  readonly through: number
}

/**
 * Reads a month's lines. `sums` have to be known up to the month. `to`: as if the ledger ended there. Memory does not grow with
 * the month: `onLines` is given some at a time and waited for.
 */
export const readStatement = async (
  eventLog: Pick<EventLog, 'read'>,
  organizationId: string,
  {
    month,
    sums,
    to,
    onLines,
    onProgress,
  }: {
    month: Month
    sums: MonthSums
    to?: number | undefined
    onLines: (lines: readonly StatementLine[]) => Promise<void>
    onProgress?: ((events: number) => void) | undefined
  },
): Promise<ReadStatement> => {
  const from = sums.months.get(month)?.first ?? sums.end
  const known = sums.closings.filter(({ revision }) => revision < from)
  const { closings, pages } = readLedger(eventLog, organizationId, {
    from,
    known,
    ...(to === undefined ? {} : { to }),
  })
  const ownPrices = createOwnPrices()
  for (const record of sums.prices) if (record.revision < from) ownPrices.tell(record)
  const statement = createStatement(month, openingOf(sums, month), ownPrices)
  const bookedIn = createBookings(closings)
  let through = from - 1
  const closing = (): MonthClosing | null => closings.find((one) => one.month >= month) ?? null
  for await (const page of pages()) {
    const lines: StatementLine[] = []
    for (const recorded of page) {
      through = recorded.revision
      if (recorded.type.startsWith('PriceOverride')) ownPrices.tell(recordOf(recorded))
      else if (bookedIn(effectiveAtOf(recorded), through) === month) {
        const record = recordOf(recorded)
        if (hasLines(record.type)) statement.add(record, lines)
      }
    }
    if (lines.length > 0) await onLines(lines)
    onProgress?.(through)
    if ((closing()?.through ?? Number.POSITIVE_INFINITY) <= through) break
  }
  const last: StatementLine[] = []
  statement.end(last)
  if (last.length > 0) await onLines(last)
  return { summary: statement.summary(), closing: closing(), through }
}
