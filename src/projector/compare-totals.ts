import type pg from 'pg'
import { microOf } from '../../projections/micro.ts'
import type { Figure, ProjectedEvent, Projection, TableName } from '../../projections/projection.ts'
import { logStart, type Position } from '../event-log/port.ts'
import { type Decoded, within } from './batch.ts'
import type { Poison } from './fold.ts'

/** A total of an organization that differs between the live and the rebuilt rows. Null: the rows do not contain it. */
export type TotalDifference = {
  readonly projection: string
  readonly organization_id: string
  readonly figure: string
  readonly live: string | null
  readonly rebuilt: string | null
}

/** The rebuilt rows do not have the totals of the event log, so they must not go live. */
export class TotalsDiffer extends Error {
  override name = 'TotalsDiffer'
}

const differencesMax = 1_000

type Sums = { lines: number; granted: bigint; charged: bigint; expired: bigint; adjusted: bigint }

const figureOf: Readonly<Record<Figure, (sums: Sums) => number | bigint>> = {
  lines: ({ lines }) => lines,
  balance: ({ granted, charged, expired, adjusted }) => granted - charged - expired + adjusted,
  granted: ({ granted }) => granted,
  charged: ({ charged }) => charged,
  expired: ({ expired }) => expired,
  adjusted: ({ adjusted }) => adjusted,
}

/** The number of lines and the sums of every ledger, calculated from the events instead of from rows. */
export type LogTotals = {
  /** The position up to which events have been counted. */
  position: Position
  readonly ledgers: Map<string, Sums | 'unreadable'>
  /** The revision of the next event of each ledger. */
  readonly due: Map<string, number>
  /** Whether a ledger lacks events, for example because the event store deleted them. */
  lacking: boolean
}

export const noTotals = (): LogTotals => ({
  position: logStart,
  ledgers: new Map(),
  due: new Map(),
  lacking: false,
})

const ledgerPrefix = 'ledger-'
const organizationOf = (stream: string): string => stream.slice(ledgerPrefix.length)

/** Adds the events of a batch up to `to` to the totals of each build, starting after its own position. */
export function countTotals(
  all: readonly { readonly totals: LogTotals; readonly to: Position }[],
  decoded: Decoded,
): void {
  if (all.length === 0) return
  // Usually, all builds count the whole batch, so its sums are calculated only once.
  const whole = sumsOf(decoded)
  for (const { totals, to } of all) {
    const part = within(decoded, { after: totals.position, to })
    noteRevisions(totals, part)
    const counted = part === decoded ? whole : sumsOf(part)
    for (const [stream, sums] of counted) {
      const before = totals.ledgers.get(stream)
      if (before === 'unreadable') continue
      totals.ledgers.set(stream, before === undefined || sums === 'unreadable' ? sums : plus(before, sums))
    }
  }
}

function noteRevisions(totals: LogTotals, { recorded }: Decoded): void {
  for (const { stream, revision } of recorded) {
    if (!stream.startsWith(ledgerPrefix)) continue
    if (revision !== (totals.due.get(stream) ?? 0)) totals.lacking = true
    totals.due.set(stream, revision + 1)
  }
}

const plus = (a: Sums, b: Sums): Sums => ({
  lines: a.lines + b.lines,
  granted: a.granted + b.granted,
  charged: a.charged + b.charged,
  expired: a.expired + b.expired,
  adjusted: a.adjusted + b.adjusted,
})

function sumsOf({ events }: Decoded): LogTotals['ledgers'] {
  const ledgers: LogTotals['ledgers'] = new Map()
  for (const event of events) {
    if (!event.stream.startsWith(ledgerPrefix)) continue
    let sums = ledgers.get(event.stream)
    if (sums === 'unreadable') continue
    if (sums === undefined) {
      sums = { lines: 0, granted: 0n, charged: 0n, expired: 0n, adjusted: 0n }
      ledgers.set(event.stream, sums)
    }
    try {
      addTo(sums, event)
    } catch {
      ledgers.set(event.stream, 'unreadable')
    }
  }
  return ledgers
}

function addTo(sums: Sums, event: ProjectedEvent): void {
  switch (event.type) {
    case 'KeyUsed':
    case 'RateLimitExceeded':
    case 'CallsRefused':
      sums.lines++
      break
    case 'CreditGranted':
      sums.lines++
      sums.granted += microOf(event.data.amount)
      break
    case 'CreditExpired':
      sums.lines++
      sums.expired += microOf(event.data.amount)
      break
    case 'CreditAdjusted':
      sums.lines++
      sums.adjusted += microOf(event.data.amount)
      break
    case 'CreditCharged':
      // A charge is part of its call's line, so it adds no line.
      sums.charged += microOf(event.data.amount)
  }
}

type RowsDifference = {
  readonly organization_id: string
  readonly figure: string
  readonly rows: string | null
  readonly log: string | null
}

/**
 * Returns the figures that differ between a projection's rows and the log's totals, in the caller's transaction. Ignores the ledgers
 * in `poison`, whose rows are halted at an event, because these are reported separately.
 */
export async function compareWithLog(
  client: pg.ClientBase,
  projection: Projection,
  { table, totals, poison }: { table: TableName; totals: LogTotals; poison: readonly Poison[] },
): Promise<RowsDifference[]> {
  if (projection.totals === undefined) return []
  const { figures, of } = projection.totals
  const all = [...totals.ledgers].flatMap(([stream, sums]) =>
    figures.map((figure) => ({ organizationId: organizationOf(stream), figure, sums })),
  )
  const { rows } = await client.query<RowsDifference>(
    `select organization_id, figure, r.amount as rows, l.amount::text as log
       from (${of(table).text}) r
       full join unnest($1::text[], $2::text[], $3::numeric[]) as l (organization_id, figure, amount)
            using (organization_id, figure)
      where coalesce(r.amount::numeric, 0) <> coalesce(l.amount, 0) and organization_id <> all ($4::text[])
      order by organization_id, figure limit ${differencesMax}`,
    [
      all.map(({ organizationId }) => organizationId),
      all.map(({ figure }) => figure),
      // NaN differs from every amount, so a ledger with an unreadable event is reported unless it is in `poison`.
      all.map(({ figure, sums }) => (sums === 'unreadable' ? 'NaN' : figureOf[figure](sums).toString())),
      poison.map(({ stream }) => organizationOf(stream)),
    ],
  )
  return rows
}
