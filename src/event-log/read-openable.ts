import { type EventLog, EventsUnreadable, type RecordedEvent, StreamMissing } from './port.ts'

type Openable = {
  readonly events: readonly RecordedEvent[]
  /** What comes after these events, where it cannot be opened; null where it can, or nothing comes. */
  readonly unreadable: EventsUnreadable | null
}

/** Reads a page of a stream for who looks for what is broken: as far as its events can be opened. No stream has no events. */
export const readOpenable = async (
  eventLog: Pick<EventLog, 'read'>,
  stream: string,
  { from, max }: { readonly from: number; readonly max: number },
): Promise<Openable> => {
  try {
    return { events: await eventLog.read(stream, { from, max }), unreadable: null }
  } catch (error) {
    if (error instanceof StreamMissing) return { events: [], unreadable: null }
    if (!(error instanceof EventsUnreadable)) throw error
    const before = error.firstRevision - from
    const events = before > 0 ? await eventLog.read(stream, { from, max: before }).catch(nothingOpens) : []
    return { events, unreadable: error }
  }
}

/** Where the log is wrong about how many events it cannot open, none before them is known to be sound. */
const nothingOpens = (error: unknown): readonly RecordedEvent[] => {
  if (error instanceof EventsUnreadable) return []
  throw error
}
