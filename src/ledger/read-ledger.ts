import type { EventLog, RecordedEvent } from '../event-log/port.ts'
import { pagesOf, readIfAny } from '../event-log/read-stream.ts'
import { decodeEvent } from '../event-log/stored-event.ts'
import { ledgerStream } from '../events/streams.ts'

type Log = Pick<EventLog, 'read'>

/** The events of a ledger from a revision up to its end, in pages. Yields nothing if there is no ledger. */
export const ledgerPages = (
  eventLog: Log,
  organizationId: string,
  from = 0,
): AsyncIterable<readonly RecordedEvent[]> =>
  pagesOf(eventLog, ledgerStream(organizationId), { from, whole: true })

/** The event at a revision of a ledger, or null if the ledger is shorter. */
export const ledgerEventAt = async (
  eventLog: Log,
  organizationId: string,
  revision: number,
): Promise<RecordedEvent | null> => {
  const [recorded] = await readIfAny(eventLog, ledgerStream(organizationId), { from: revision, max: 1 })
  return recorded ?? null
}

/** The first event that `fits` accepts, from the revision `from` up to but not including `before`, or null if there is none. */
export const firstInLedger = async (
  eventLog: Log,
  organizationId: string,
  {
    from = 0,
    before = Number.POSITIVE_INFINITY,
    fits,
  }: { from?: number; before?: number; fits: (recorded: RecordedEvent) => boolean },
): Promise<RecordedEvent | null> => {
  for await (const page of ledgerPages(eventLog, organizationId, from)) {
    const found = page.find((recorded) => recorded.revision < before && fits(recorded))
    if (found !== undefined) return found
    if ((page.at(-1)?.revision ?? 0) >= before) return null
  }
  return null
}

/** Whether an event has this type and belongs to this request. */
export const isOfRequest = (
  recorded: RecordedEvent,
  type: 'KeyUsed' | 'CreditCharged',
  requestId: string,
): boolean =>
  recorded.type === type &&
  recorded.metadata.includes(requestId) &&
  decodeEvent(recorded).metadata.request_id === requestId
