import { type Closing, closingAt, closingGapMax } from '../../billing/months.ts'
import type { EventLog, RecordedEvent } from '../../event-log/port.ts'
import { decodeEvent } from '../../event-log/stored-event.ts'
import type { MonthClosed } from '../../events/credits.ts'
import { ledgerStream } from '../../events/streams.ts'

/** A ledger from one revision on, page by page, with the closings of its months known before they are needed. */

const pageMax = 2_000
/** A page is given when all that a closing may come after its last counted event was read. */
const pagesAhead = closingGapMax / pageMax

type LedgerPages = {
  /** All that were met so far, in order: at least those that a given page has to know. */
  readonly closings: readonly MonthClosing[]
  /** Up to the end of the ledger, or up to a revision. Memory does not grow with the ledger. */
  pages(): AsyncGenerator<readonly RecordedEvent[]>
}

/** With what the `MonthClosed` itself says, and where. */
export type MonthClosing = Closing & { readonly revision: number; readonly closed: MonthClosed }

/** What an event closed; null for any other event. */
export const closingOf = (event: RecordedEvent): MonthClosing | null => {
  if (event.type !== 'MonthClosed') return null
  const { type, data } = decodeEvent(event)
  return type === 'MonthClosed'
    ? { ...closingAt(event.revision, data), revision: event.revision, closed: data }
    : null
}

/** `known`: closings before `from`. Throws what `read` throws. */
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
    // It may fail while the previous page is processed; the caller that awaits it gets the error. The caller may have left by then.
    page.catch(() => undefined)
    return page
  }
  const pages = async function* (): AsyncGenerator<readonly RecordedEvent[]> {
    const read: (readonly RecordedEvent[])[] = []
    // A page is being read while the previous one is processed.
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
