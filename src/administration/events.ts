import { EventsUnreadable, type RecordedEvent, StreamMissing } from '../event-log/port.ts'
import { readOpenable } from '../event-log/read-openable.ts'
import { decodeEvent } from '../event-log/stored-event.ts'
import { isStreamOfOurs, ledgerStream, organizationOfStream } from '../events/streams.ts'
import type { Foundation } from '../foundation/foundation.ts'
import { CommandRefused } from '../ledger/commit.ts'
import { verifyLedgers } from './ledgers.ts'

const pageMax = 1_000
/** As many as a terminal shows. */
const newestMax = 20

/**
 * One event of a stream, or its newest ones in order where no revision is given. Throws `CommandRefused` where there is no such stream or
 * event, or where it cannot be opened.
 */
export const showEvents = async (
  { eventLog }: Pick<Foundation, 'eventLog'>,
  { stream, revision }: { stream: string; revision: number | null },
): Promise<readonly RecordedEvent[]> => {
  try {
    const events =
      revision === null
        ? (await eventLog.read(stream, { direction: 'backwards', max: newestMax })).reverse()
        : await eventLog.read(stream, { from: revision, max: 1 })
    if (events.length === 0) throw new CommandRefused(`there is no revision ${revision} of ${stream}`)
    return events
  } catch (error) {
    if (error instanceof StreamMissing || error instanceof EventsUnreadable)
      throw new CommandRefused(error.message)
    throw error
  }
}

/** Where a stream stops being what was written. `event_id` is null where an event is missing or cannot be opened. */
type StreamFault = {
  readonly stream: string
  readonly revision: number
  readonly event_id: string | null
  readonly fault: string
}

/**
 * Reads every stream of the event log. Ledgers are verified as `verifyLedgers` does; of the others every event has to be
 * there, in its place, and such as this release can read. Names the first fault of each stream.
 */
export const verifyEventLog = async (
  foundation: Foundation,
  onProgress: (stream: string, events: number) => void,
): Promise<{ streams: number; events: number; faults: StreamFault[] }> => {
  const { eventLog } = foundation
  const { ledgers } = await verifyLedgers(foundation, {
    onProgress: (organizationId, count) => onProgress(ledgerStream(organizationId), count),
  })
  const faults: StreamFault[] = []
  let events = 0
  for (const { organizationId, events: count, fault } of ledgers) {
    events += count
    if (fault !== null) faults.push({ ...fault, stream: ledgerStream(organizationId) })
  }
  const others = (await eventLog.streams(''))
    .filter((stream) => isStreamOfOurs(stream) && organizationOfStream(stream) === null)
    .sort()
  for (const stream of others) {
    const verdict = await verifyStream(eventLog, stream)
    events += verdict.events
    onProgress(stream, verdict.events)
    if (verdict.fault !== null) faults.push(verdict.fault)
  }
  return { streams: ledgers.length + others.length, events, faults }
}

const verifyStream = async (
  eventLog: Pick<Foundation['eventLog'], 'read' | 'lastRevision'>,
  stream: string,
): Promise<{ events: number; fault: StreamFault | null }> => {
  // Asked first, for the stream may grow meanwhile.
  const last = (await eventLog.lastRevision(stream)) ?? -1
  for (let from = 0; ; ) {
    const { events, unreadable } = await readOpenable(eventLog, stream, { from, max: pageMax })
    for (const event of events) {
      const fault = faultOf(event, from)
      if (fault !== null)
        return { events: from, fault: { stream, revision: event.revision, event_id: event.id, fault } }
      from++
    }
    const missing = (fault: string) => ({
      events: from,
      fault: { stream, revision: from, event_id: null, fault },
    })
    if (unreadable !== null) return missing(unreadable.message)
    if (events.length === pageMax) continue
    return from > last
      ? { events: from, fault: null }
      : missing(`the stream ends before revision ${last}, up to which the event log itself counts it`)
  }
}

const faultOf = (event: RecordedEvent, expectedRevision: number): string | null => {
  if (event.revision !== expectedRevision) return `expected revision ${expectedRevision}: an event is missing`
  try {
    decodeEvent(event)
    return null
  } catch (error) {
    return error instanceof Error ? error.message : String(error)
  }
}
