import { z } from 'zod'
import type { EventLog, RecordedEvent } from '../event-log/port.ts'
import { pagesOf, readIfAny } from '../event-log/read-stream.ts'
import { type DecodedEvent, decodeEvent, faultOf } from '../event-log/stored-event.ts'
import { checkEventData, currentVersion } from '../events/catalogue.ts'
import { isInstant } from '../events/keys.ts'
import { ledgerStream } from '../events/streams.ts'

type Log = Pick<EventLog, 'read'>

/** The events of a ledger from a revision up to its end, in pages. Yields nothing if there is no ledger. */
export const ledgerPages = (
  eventLog: Log,
  organizationId: string,
  from = 0,
): AsyncIterable<readonly RecordedEvent[]> => pagesOf(eventLog, ledgerStream(organizationId), { from })

/** The event at a revision of a ledger, or null if the ledger is shorter. */
export const ledgerEventAt = async (
  eventLog: Log,
  organizationId: string,
  revision: number,
): Promise<RecordedEvent | null> => {
  const [recorded] = await readIfAny(eventLog, ledgerStream(organizationId), { from: revision, max: 1 })
  return recorded ?? null
}

/** An event of a ledger cannot be used, so nothing that depends on it can be calculated. The message contains the stream and the revision. */
export class LedgerEventInvalid extends Error {
  override name = 'LedgerEventInvalid'
  constructor({ stream, revision, type }: RecordedEvent, cause: unknown) {
    const why = cause instanceof Error ? cause.message : String(cause)
    super(`event ${revision} of ${stream} (${type.slice(0, 100)}) is invalid: ${why}; run "ledger verify"`, {
      cause,
    })
  }
}

/** Runs `work` on an event. If it throws, throws `LedgerEventInvalid`. */
export const withEvent = <Result>(recorded: RecordedEvent, work: () => Result): Result => {
  try {
    return work()
  } catch (error) {
    throw error instanceof LedgerEventInvalid ? error : new LedgerEventInvalid(recorded, error)
  }
}

/**
 * Decodes an event of a ledger, and checks the time and the data that other software or a person could have written. The data of
 * calls and charges are not checked against their schemas, because that takes longer than decoding them; folding checks their amounts.
 * Throws `LedgerEventInvalid`.
 */
export const decodeLedgerEvent = (recorded: RecordedEvent): DecodedEvent =>
  withEvent(recorded, () => {
    const decoded = decodeEvent(recorded)
    const { type, metadata } = decoded
    if (!isInstant(metadata.effective_at))
      throw new Error(`effective_at: ${JSON.stringify(metadata.effective_at)} is not an instant`)
    if (type !== 'KeyUsed' && type !== 'CreditCharged') checkFits(decoded)
    return decoded
  })

const checkFits = ({ type, data }: DecodedEvent): void => {
  try {
    checkEventData(type, currentVersion(type), data)
  } catch (error) {
    throw error instanceof z.ZodError ? new Error(faultOf(error, data), { cause: error }) : error
  }
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
