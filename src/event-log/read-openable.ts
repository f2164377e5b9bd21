import { type EventLog, EventsUnreadable, type RecordedEvent } from './port.ts'
import { readIfAny } from './read-stream.ts'

type Openable = {
  readonly events: readonly RecordedEvent[]
  /** Why the event after this page cannot be opened; null if it can be opened or does not exist. */
  readonly unreadable: EventsUnreadable | null
}

/** Reads a page of a stream, up to the first event that cannot be opened. A missing stream has no events. */
export const readOpenable = async (
  eventLog: Pick<EventLog, 'read'>,
  stream: string,
  { from, max }: { readonly from: number; readonly max: number },
): Promise<Openable> => {
  try {
    return { events: await readIfAny(eventLog, stream, { from, max }), unreadable: null }
  } catch (error) {
    if (!(error instanceof EventsUnreadable)) throw error
    const before = error.firstRevision - from
    const events = before > 0 ? await eventLog.read(stream, { from, max: before }).catch(nothingOpens) : []
    return { events, unreadable: error }
  }
}

/** If the log reports the wrong events as damaged, earlier events may be damaged, too. */
const nothingOpens = (error: unknown): readonly RecordedEvent[] => {
  if (error instanceof EventsUnreadable) return []
  throw error
}
