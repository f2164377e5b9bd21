import { type EventLog, type RecordedEvent, StreamMissing } from '../event-log/port.ts'
import { decodeEvent } from '../event-log/stored-event.ts'
import { ledgerStream } from '../events/streams.ts'

type Log = Pick<EventLog, 'read'>

const pageMax = 1_000

/** An organization's events from a revision on, in pages, up to the end of the ledger. Yields nothing if there is no ledger. */
export async function* ledgerPages(
  eventLog: Log,
  organizationId: string,
  from = 0,
): AsyncGenerator<readonly RecordedEvent[]> {
  for (let next = from; ; ) {
    const page = await eventLog
      .read(ledgerStream(organizationId), { from: next, max: pageMax })
      .catch((error: unknown) => {
        if (error instanceof StreamMissing) return []
        throw error
      })
    if (page.length > 0) yield page
    next += page.length
    if (page.length < pageMax) return
  }
}

/** The event at a revision of a ledger; null if the ledger is shorter. */
export const ledgerEventAt = async (
  eventLog: Log,
  organizationId: string,
  revision: number,
): Promise<RecordedEvent | null> => {
  const [recorded] = await eventLog
    .read(ledgerStream(organizationId), { from: revision, max: 1 })
    .catch((error: unknown) => {
      if (error instanceof StreamMissing) return []
      throw error
    })
  return recorded ?? null
}

/** The first event that `fits` accepts, from revision `from` on and before revision `before`; null: there is none. */
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
