import { type Closing, closingAt, closingGapMax } from '../../billing/months.ts'
import type { EventLog, RecordedEvent } from '../../event-log/port.ts'
import { decodeEvent } from '../../event-log/stored-event.ts'
import type { MonthClosed } from '../../events/credits.ts'
import { ledgerStream } from '../../events/streams.ts'

/** Reads a ledger in pages. When a page is processed, all closings that determine the months of its events have already been read. */

const pageMax = 2_000
/** Pages are read this far ahead, because a closing can be up to `closingGapMax` events after the last event that it counts. */
const pagesAhead = closingGapMax / pageMax

type LedgerPages = {
  /** All closings read so far, in order. They include every closing that concerns the current page. */
  readonly closings: readonly MonthClosing[]
  /** Reads to the end of the ledger, or to a revision. Only a few pages are in memory. */
  pages(): AsyncGenerator<readonly RecordedEvent[]>
}

/** A closing, with its revision and the data of its event. */
export type MonthClosing = Closing & { readonly revision: number; readonly closed: MonthClosed }

/** The closing that an event records, or null. */
export const closingOf = (event: RecordedEvent): MonthClosing | null => {
  if (event.type !== 'MonthClosed') return null
  const { type, data } = decodeEvent(event)
  return type === 'MonthClosed'
    ? { ...closingAt(event.revision, data), revision: event.revision, closed: data }
    : null
}

/** Reads a ledger in pages, from a revision on. `known` contains the closings before that revision. */
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
  const readPage = async (first: number): Promise<readonly RecordedEvent[]> => {
    const max = Math.min(pageMax, to - first + 1)
    if (max <= 0) return []
    const page = await eventLog.read(stream, { from: first, max })
    for (const event of page) {
      const closing = closingOf(event)
      if (closing !== null) closings.push(closing)
    }
    return page
  }
  const fetch = (first: number): Promise<readonly RecordedEvent[]> => {
    const page = readPage(first)
    // The page can fail before it is awaited, or after the caller has stopped. This must not become an unhandled rejection.
    page.catch(() => undefined)
    return page
  }
  const pages = async function* (): AsyncGenerator<readonly RecordedEvent[]> {
    const read: (readonly RecordedEvent[])[] = []
    let next: Promise<readonly RecordedEvent[]> | null = fetch(from)
    for (let first = from; next !== null; ) {
      const page: readonly RecordedEvent[] = await next
      first += page.length
      next = page.length < pageMax ? null : fetch(first)
      read.push(page)
      if (read.length > pagesAhead) yield* read.splice(0, 1)
    }
    yield* read
  }
  return { closings, pages }
}
