import { type MicroCredits, parseCredits } from '../../billing/money.ts'
import { createBookings, type Month, monthBefore } from '../../billing/months.ts'
import {
  createStatement,
  movementOf,
  type StatementLine,
  type StatementSummary,
} from '../../billing/statement.ts'
import { createOwnPrices, hasLines, type LedgerRecord } from '../../billing/statement-line.ts'
import { decodeLedgerEvent, withEvent } from '../../event-log/ledger-event.ts'
import type { EventLog, RecordedEvent } from '../../event-log/port.ts'
import type { MonthClosed } from '../../events/credits.ts'
import type { EventMetadata } from '../../events/envelope.ts'
import { ledgerStream } from '../../events/streams.ts'
import { type MonthClosing, readLedger } from './pages.ts'

/**
 * Reads a ledger by months. A closing records where the next month begins, so a month can be read without the events before it.
 */

type Log = Pick<EventLog, 'read'>

/**
 * The place where reading begins. `opening` is the balance at the end of the month `after`. If `after` is '', reading begins before the
 * first month.
 */
type Start = {
  readonly after: Month
  readonly opening: MicroCredits
  readonly revision: number
  /** The revisions of earlier events that changed the organization's own prices. */
  readonly prices: readonly number[]
}

/** Returns the place where reading continues after a closing. If `closing` is null, this is the beginning of the ledger. */
export const startAfter = (closing: MonthClosing | null): Start =>
  closing === null
    ? { after: '', opening: 0n, revision: 0, prices: [] }
    : {
        after: closing.month,
        opening: parseCredits(closing.closed.totals.closing),
        revision: closing.closed.next.revision,
        prices: closing.closed.next.prices,
      }

type MonthSum = {
  net: MicroCredits
  /** The number of events with a line on the statement. */
  events: number
  /** The revision of the first event on the month's statement. */
  readonly first: number
}

/** The part of a ledger that has been read. `readOn` continues it. */
export type Months = {
  readonly start: Start
  /** The next revision to read. */
  end: number
  closings: readonly MonthClosing[]
  /** The sums of the months after `start.after`. */
  readonly sums: Map<Month, MonthSum>
  /** The revisions of all events that changed the organization's own prices. */
  readonly prices: number[]
}

export const monthsFrom = (start: Start): Months => ({
  start,
  end: start.revision,
  closings: [],
  sums: new Map(),
  prices: [...start.prices],
})

type Booked = { readonly record: LedgerRecord; readonly month: Month }

type Reading = {
  readonly to?: number | undefined
  /** Reading stops when this month is closed and no later event can count in it. */
  readonly through?: Month
  /** Events that count in this month or in later months are ignored. */
  readonly before?: Month
  readonly onPage?: (page: readonly Booked[]) => Promise<void>
  readonly onProgress?: ((events: number) => void) | undefined
}

/** Continues to read where `months` ends. Resolves with true if the end of the ledger was reached. */
export const readOn = async (
  eventLog: Log,
  organizationId: string,
  months: Months,
  { to, through, before, onPage, onProgress }: Reading,
): Promise<boolean> => {
  const { closings, pages } = readLedger(eventLog, organizationId, {
    from: months.end,
    known: months.closings,
    ...(to === undefined ? {} : { to }),
  })
  months.closings = closings
  const bookedIn = createBookings(closings)
  for await (const page of pages()) {
    const booked: Booked[] = []
    for (const recorded of page) {
      const { revision } = recorded
      months.end = revision + 1
      if (before !== undefined && bookedIn(effectiveAtOf(recorded), revision) >= before) continue
      const record = recordOf(recorded)
      const month = bookedIn(record.metadata.effective_at, revision)
      count(months, { record, month })
      booked.push({ record, month })
    }
    await onPage?.(booked)
    onProgress?.(months.end)
    if (through !== undefined && closings.some((one) => one.month >= through && one.through < months.end))
      return false
  }
  return true
}

const effectiveAtOf = (recorded: RecordedEvent): string =>
  withEvent(recorded, () => (JSON.parse(recorded.metadata) as Partial<EventMetadata>).effective_at ?? '')

const recordOf = (recorded: RecordedEvent): LedgerRecord => {
  const { type, data, metadata } = decodeLedgerEvent(recorded)
  return { type, data, metadata, revision: recorded.revision, eventId: recorded.id } as LedgerRecord
}

const count = (months: Months, { record, month }: Booked): void => {
  const { revision, type } = record
  if (type === 'PriceOverrideSet' || type === 'PriceOverrideWithdrawn') months.prices.push(revision)
  if (!hasLines(type) || month <= months.start.after) return
  const sum = months.sums.get(month)
  const net = movementOf(record)
  if (sum === undefined) months.sums.set(month, { net, events: 1, first: revision })
  else {
    sum.net += net
    sum.events++
  }
}

/** The start of the month after `month`, for the closing of `month`. */
export const nextOf = ({ sums, end, prices }: Months, month: Month): MonthClosed['next'] => {
  const later = [...sums].filter(([one]) => one > month).map(([, { first }]) => first)
  const revision = Math.min(end, ...later)
  return { revision, prices: prices.filter((one) => one < revision) }
}

/**
 * The balance at the beginning of a month. If the previous month is not closed, its events are read. In that case, `to` is the last
 * revision that was read, provided that the end of the ledger was reached.
 */
export const openingOf = async (
  eventLog: Log,
  organizationId: string,
  {
    start,
    month,
    onProgress,
  }: { start: Start; month: Month; onProgress?: ((events: number) => void) | undefined },
): Promise<{ opening: MicroCredits; to: number | undefined }> => {
  const previous = monthBefore(month)
  if (start.after === previous) return { opening: start.opening, to: undefined }
  const months = monthsFrom(start)
  const whole = await readOn(eventLog, organizationId, months, {
    through: previous,
    before: month,
    onProgress,
  })
  let { opening } = start
  for (const { net } of months.sums.values()) opening += net
  return { opening, to: whole ? months.end - 1 : undefined }
}

/**
 * Reads a month's lines. `months` must be at its start. `onLines` receives a few lines at a time and is awaited, so that only these
 * lines are in memory.
 */
export const readStatement = async (
  eventLog: Log,
  organizationId: string,
  {
    month,
    months,
    opening,
    to,
    onLines,
    onProgress,
  }: {
    month: Month
    months: Months
    opening: MicroCredits
    to: number | undefined
    onLines: (lines: readonly StatementLine[]) => Promise<void>
    onProgress?: ((events: number) => void) | undefined
  },
): Promise<StatementSummary> => {
  const ownPrices = createOwnPrices()
  for (const revision of months.start.prices)
    for (const event of await eventLog.read(ledgerStream(organizationId), { from: revision, max: 1 }))
      ownPrices.tell(recordOf(event))
  const statement = createStatement(month, opening, ownPrices)
  const onPage = async (page: readonly Booked[]): Promise<void> => {
    const lines: StatementLine[] = []
    for (const { record, month: booked } of page) {
      ownPrices.tell(record)
      if (booked === month && hasLines(record.type)) statement.add(record, lines)
    }
    if (lines.length > 0) await onLines(lines)
  }
  await readOn(eventLog, organizationId, months, { to, through: month, onPage, onProgress })
  const last: StatementLine[] = []
  statement.end(last)
  if (last.length > 0) await onLines(last)
  return statement.summary()
}
