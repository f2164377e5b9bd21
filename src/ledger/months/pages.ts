import { type Closing, closingAt, closingGapMax } from '../../billing/months.ts'
import { decodeLedgerEvent } from '../../event-log/ledger-event.ts'
import { type EventLog, type RecordedEvent, StreamMissing } from '../../event-log/port.ts'
import { pagesOf } from '../../event-log/read-stream.ts'
import type { MonthClosed } from '../../events/credits.ts'
import { ledgerStream } from '../../events/streams.ts'

/** Reads a ledger in pages. Before a page is processed, all closings that determine the months of its events are read. */

const pageMax = 2_000
/** The number of pages to read ahead, because a closing can be up to `closingGapMax` events after the last event that it counts. */
const pagesAhead = closingGapMax / pageMax

type LedgerPages = {
  /** All closings that were read, in order. They include every closing that affects the current page. */
  readonly closings: readonly MonthClosing[]
  /** Reads to the end of the ledger, or to a revision. Only a few pages are in memory. */
  pages(): AsyncGenerator<readonly RecordedEvent[]>
}

/** A closing, with its revision and the data of its event. */
export type MonthClosing = Closing & { readonly revision: number; readonly closed: MonthClosed }

/** The closing that an event records, or null. */
export const closingOf = (event: RecordedEvent): MonthClosing | null => {
  if (event.type !== 'MonthClosed') return null
  const { type, data } = decodeLedgerEvent(event)
  return type === 'MonthClosed'
    ? { ...closingAt(event.revision, data), revision: event.revision, closed: data }
    : null
}

/**
 * Reads a ledger in pages, from a revision on. `known` must contain the closings before that revision. Throws `StreamMissing` if there is
 * no ledger.
 */
export const readLedger = (
  eventLog: Pick<EventLog, 'read'>,
  organizationId: string,
  {
    from,
    to = Number.MAX_SAFE_INTEGER,
    known = [],
  }: { from: number; to?: number; known?: readonly MonthClosing[] },
): LedgerPages => {
  const stream = ledgerStream(organizationId)
  const closings = [...known]
  const pages = async function* (): AsyncGenerator<readonly RecordedEvent[]> {
    const read: (readonly RecordedEvent[])[] = []
    for await (const page of pagesOf(eventLog, stream, { from, upTo: to, pageMax, whole: true })) {
      closings.push(...page.map(closingOf).filter((closing) => closing !== null))
      read.push(page)
      if (read.length > pagesAhead) yield* read.splice(0, 1)
    }
    if (read.length === 0 && from === 0) throw new StreamMissing(`there is no stream ${stream}`)
    yield* read
  }
  return { closings, pages }
}
