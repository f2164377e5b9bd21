import type { MicroCredits } from '../billing/money.ts'
import { createBookings, type Month, monthAfter } from '../billing/months.ts'
import { movementOf } from '../billing/statement.ts'
import { hasLines, type LedgerRecord } from '../billing/statement-line.ts'
import type { EventLog, RecordedEvent } from '../event-log/port.ts'
import { type MonthClosing, readLedger } from './pages.ts'
import { chargedBy, effectiveAtOf, recordOf } from './recorded-text.ts'

/** What each month of a ledger comes to, folded from its events: what a statement begins with, and what a closing asks. */

type MonthSum = {
  /** What the balance changed by. */
  net: MicroCredits
  /** Events that say something on a statement. */
  events: number
  /** The revision of the first of them. */
  readonly first: number
}

export type MonthSums = {
  readonly name: string
  /** The next revision to read. */
  readonly end: number
  /** Whether they hold the whole ledger, as it was. */
  readonly whole: boolean
  readonly closings: readonly MonthClosing[]
  readonly months: ReadonlyMap<Month, MonthSum>
  /** What set and withdrew prices of the organization's own. */
  readonly prices: readonly LedgerRecord[]
  /** Lots with an expiry that were not written off, with what is left in them or without: by id, until when. */
  readonly expiring: ReadonlyMap<string, string>
}

type Folding = {
  name: string
  end: number
  whole: boolean
  closings: readonly MonthClosing[]
  readonly months: Map<Month, MonthSum>
  readonly prices: LedgerRecord[]
  readonly expiring: Map<string, string>
}

/**
 * Folds a ledger from its first event. `before`: only until it is known what every month before this one comes to. Throws what
 * `read` throws.
 */
export const sumMonths = (
  eventLog: Pick<EventLog, 'read'>,
  organizationId: string,
  options: { before?: Month; onProgress?: ((events: number) => void) | undefined } = {},
): Promise<MonthSums> => foldMonths(eventLog, organizationId, { ...options, start: null })

/** The same, from where other sums end; null: from the first event. Whether closings that came since change those, the caller looks. */
export const foldMonths = async (
  eventLog: Pick<EventLog, 'read'>,
  organizationId: string,
  {
    start,
    before,
    onProgress,
  }: {
    start: MonthSums | null
    before?: Month
    onProgress?: ((events: number) => void) | undefined
  },
): Promise<MonthSums> => {
  const folding: Folding = start === null ? nothing() : draftOf(start)
  await foldOn(eventLog, organizationId, { folding, before, onProgress })
  return folding
}

const nothing = (): Folding => ({
  name: '',
  end: 0,
  whole: false,
  closings: [],
  months: new Map(),
  prices: [],
  expiring: new Map(),
})

const draftOf = (sums: MonthSums): Folding => ({
  ...sums,
  months: new Map([...sums.months].map(([month, sum]) => [month, { ...sum }])),
  prices: [...sums.prices],
  expiring: new Map(sums.expiring),
})

/**
 * Folds what came since. Null where a closing came that what was folded before did not know of: the ledger has to be folded
 * anew.
 */
export const sumOn = async (
  eventLog: Pick<EventLog, 'read'>,
  organizationId: string,
  sums: MonthSums,
): Promise<MonthSums | null> => {
  const folding = draftOf(sums)
  const known = sums.closings.length
  await foldOn(eventLog, organizationId, { folding, before: undefined, onProgress: undefined })
  return folding.closings.length === known ? folding : null
}

const foldOn = async (
  eventLog: Pick<EventLog, 'read'>,
  organizationId: string,
  {
    folding,
    before,
    onProgress,
  }: {
    folding: Folding
    before: Month | undefined
    onProgress: ((events: number) => void) | undefined
  },
): Promise<void> => {
  const { closings, pages } = readLedger(eventLog, organizationId, {
    from: folding.end,
    known: folding.closings,
  })
  folding.closings = closings
  const bookedIn = createBookings(closings)
  for await (const page of pages()) {
    for (const recorded of page) fold(folding, recorded, bookedIn)
    onProgress?.(folding.end)
    const isKnown = ({ month, through }: MonthClosing): boolean =>
      before !== undefined && monthAfter(month) >= before && through < folding.end
    if (closings.some(isKnown)) return
  }
  folding.whole = true
}

const fold = (
  folding: Folding,
  recorded: RecordedEvent,
  bookedIn: (effectiveAt: string, revision: number) => Month,
): void => {
  folding.end = recorded.revision + 1
  const { type } = recorded
  if (type === 'KeyUsed' || type === 'RateLimitExceeded' || type === 'CallsRefused') {
    add(folding, bookedIn(effectiveAtOf(recorded), recorded.revision), recorded.revision, 0n)
    return
  }
  if (type === 'CreditCharged') {
    add(
      folding,
      bookedIn(effectiveAtOf(recorded), recorded.revision),
      recorded.revision,
      -chargedBy(recorded),
    )
    return
  }
  const record = recordOf(recorded)
  if (record.type === 'OrganizationRegistered') folding.name = record.data.name
  if (record.type === 'PriceOverrideSet' || record.type === 'PriceOverrideWithdrawn')
    folding.prices.push(record)
  if (record.type === 'CreditGranted' && record.data.expires_at !== null)
    folding.expiring.set(record.data.grant_id, record.data.expires_at)
  // A refund may fill a lot again that was written off before the refund was written.
  if (record.type === 'CreditAdjusted')
    for (const { grant_id, expires_at } of record.data.fills)
      if (expires_at !== null) folding.expiring.set(grant_id, expires_at)
  if (record.type === 'CreditExpired') folding.expiring.delete(record.data.grant_id)
  if (!hasLines(record.type)) return
  add(folding, bookedIn(record.metadata.effective_at, record.revision), record.revision, movementOf(record))
}

const add = ({ months }: Folding, month: Month, revision: number, net: MicroCredits): void => {
  const sum = months.get(month)
  if (sum === undefined) months.set(month, { net, events: 1, first: revision })
  else {
    sum.net += net
    sum.events++
  }
}
