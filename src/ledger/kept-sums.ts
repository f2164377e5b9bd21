import type pg from 'pg'
import type { RowSeal } from '../../projections/projection.ts'
import type { Month } from '../billing/months.ts'
import type { LedgerRecord } from '../billing/statement-line.ts'
import { type EventLog, placeOf, StreamMissing } from '../event-log/port.ts'
import { ledgerStream } from '../events/streams.ts'
import { foldMonths, type MonthSums } from './month-sums.ts'
import type { MonthClosing } from './pages.ts'

/**
 * What the months of a ledger come to, kept where a statement ended, so that the next statement reads what came since and not the
 * whole ledger. It affects cost, never meaning: a row that does not carry the seal of this installation, or whose last event is not
 * the ledger's own, is no start, and the ledger is folded from its first event.
 */

type Kept = {
  readonly pool: Pick<pg.Pool, 'query'>
  /** A keyed hash. */
  readonly seal: RowSeal
  /** A row is written where the ledger went on by so many. Default: what is read no sooner than written. */
  readonly worthKeepingEvents?: number
}

const worthKeepingEventsUsual = 5_000
/** Whoever folds otherwise than the rows were folded raises it. */
const version = 2

type SumsRow = {
  readonly revision: string
  readonly digest: string
  readonly sums: string
  readonly seal: string
}

/** As `sumMonths` gives them. Throws what `read` throws. */
export const sumMonthsOnward = async (
  { eventLog, ...kept }: Kept & { readonly eventLog: Pick<EventLog, 'read'> },
  organizationId: string,
  options: { before?: Month; onProgress?: ((events: number) => void) | undefined },
): Promise<MonthSums> => {
  const start = await startOf(eventLog, kept, organizationId)
  const onward = start === null ? null : await foldMonths(eventLog, organizationId, { ...options, start })
  const sums =
    onward !== null && start !== null && isAsCounted(start, onward)
      ? onward
      : await foldMonths(eventLog, organizationId, { ...options, start: null })
  const { worthKeepingEvents = worthKeepingEventsUsual } = kept
  if (sums.end - (start?.end ?? 0) >= worthKeepingEvents || (start !== null && sums !== onward))
    await keep(eventLog, kept, { organizationId, sums })
  return sums
}

/** A closing that came since may move events that were counted before it into a later month. */
const isAsCounted = (start: MonthSums, { closings }: MonthSums): boolean =>
  closings.slice(start.closings.length).every(({ through }) => through >= start.end - 1)

const sealedText = (organizationId: string, { revision, digest, sums }: Omit<SumsRow, 'seal'>): string =>
  `month sums ${version}\n${organizationId}\n${revision}\n${digest}\n${sums}`

const startOf = async (
  eventLog: Pick<EventLog, 'read'>,
  { pool, seal }: Kept,
  organizationId: string,
): Promise<MonthSums | null> => {
  const { rows } = await pool.query<SumsRow>(
    'select revision, digest, sums, seal from month_sums where organization_id = $1',
    [organizationId],
  )
  const [row] = rows
  if (row === undefined || !seal.fits(sealedText(organizationId, row), row.seal)) return null
  return (await digestAt(eventLog, organizationId, Number(row.revision))) === row.digest
    ? read(row.sums)
    : null
}

/** Of the event at a revision; null: there is none. The event's own digest covers all that is before it. */
const digestAt = async (
  eventLog: Pick<EventLog, 'read'>,
  organizationId: string,
  revision: number,
): Promise<string | null> => {
  try {
    const [event] = await eventLog.read(ledgerStream(organizationId), { from: revision, max: 1 })
    return event?.revision === revision ? placeOf(event).digest : null
  } catch (error) {
    if (error instanceof StreamMissing) return null
    throw error
  }
}

const keep = async (
  eventLog: Pick<EventLog, 'read'>,
  { pool, seal }: Kept,
  { organizationId, sums }: { readonly organizationId: string; readonly sums: MonthSums },
): Promise<void> => {
  // One that was looked ahead for is met again by whoever goes on from here.
  if (sums.closings.some(({ revision }) => revision >= sums.end)) return
  const digest = await digestAt(eventLog, organizationId, sums.end - 1)
  if (digest === null) return
  const row = { revision: String(sums.end - 1), digest, sums: written(sums) }
  await pool.query(
    `insert into month_sums as t (organization_id, revision, digest, sums, seal) values ($1, $2, $3, $4, $5)
     on conflict (organization_id) do update
        set revision = excluded.revision, digest = excluded.digest, sums = excluded.sums, seal = excluded.seal, kept_at = now()`,
    [organizationId, row.revision, row.digest, row.sums, seal.of(sealedText(organizationId, row))],
  )
}

type Written = {
  readonly name: string
  readonly end: number
  readonly closings: readonly MonthClosing[]
  readonly months: readonly (readonly [Month, { net: string; events: number; first: number }])[]
  readonly prices: readonly LedgerRecord[]
  readonly expiring: readonly (readonly [string, string])[]
}

const written = ({ name, end, closings, months, prices, expiring }: MonthSums): string =>
  JSON.stringify({
    ...{ name, end, closings, prices },
    months: [...months].map(([month, { net, events, first }]) => [
      month,
      { net: net.toString(), events, first },
    ]),
    expiring: [...expiring],
  } satisfies Record<keyof Written, unknown>)

const read = (text: string): MonthSums => {
  const { months, expiring, ...rest } = JSON.parse(text) as Written
  return {
    ...rest,
    whole: false,
    months: new Map(months.map(([month, { net, ...sum }]) => [month, { ...sum, net: BigInt(net) }])),
    expiring: new Map(expiring),
  }
}
