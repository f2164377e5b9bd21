import { type EventLog, EventsUnreadable, type RecordedEvent, StreamMissing } from './port.ts'
import { readIfAny } from './read-stream.ts'

type Openable = {
  readonly events: readonly RecordedEvent[]
  /** Why the next event in the direction of reading cannot be opened; null if it can be opened or does not exist. */
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

/** If the log reports the wrong events as damaged, earlier events can also be damaged. */
const nothingOpens = (error: unknown): readonly RecordedEvent[] => {
  if (error instanceof EventsUnreadable) return []
  throw error
}

/** For `lastRevision`: returns the error if events cannot be opened, and throws other errors. */
export const unreadableOrThrow = (error: unknown): EventsUnreadable => {
  if (error instanceof EventsUnreadable) return error
  throw error
}

/**
 * Reads the newest events before a revision, or before the end if the revision is null, down to the first event that cannot be opened. `unreadable`
 * describes the events right before the returned ones. Null if the stream does not exist.
 */
export const readOpenableBackwards = async (
  eventLog: Pick<EventLog, 'read'>,
  { stream, before, max }: { readonly stream: string; readonly before: number | null; readonly max: number },
): Promise<Openable | null> => {
  const top = before === null ? null : before - 1
  if (top !== null && top < 0) return { events: [], unreadable: null }
  const from = top === null ? {} : { from: top }
  try {
    const events = await eventLog.read(stream, { ...from, direction: 'backwards', max })
    return { events, unreadable: null }
  } catch (error) {
    if (error instanceof StreamMissing) return null
    if (!(error instanceof EventsUnreadable)) throw error
    return { events: await openedAfter(eventLog, error, { top, max }), unreadable: error }
  }
}

/** Reads the events after the unreadable ones. They can be read, because the failed read went backwards and reached them first. */
const openedAfter = async (
  eventLog: Pick<EventLog, 'read'>,
  { stream, lastRevision }: EventsUnreadable,
  { top, max }: { readonly top: number | null; readonly max: number },
): Promise<readonly RecordedEvent[]> => {
  const between = top === null ? max : Math.min(max, top - lastRevision)
  if (between <= 0) return []
  const events = await eventLog.read(stream, { from: lastRevision + 1, max: between }).catch(nothingOpens)
  return events.toReversed()
}

const pageMax = 1_000

/** Yields the pages of a stream, without the events that cannot be opened. Yields nothing if the stream is missing. */
export async function* openablePages(
  eventLog: Pick<EventLog, 'read'>,
  stream: string,
  { from, upTo = Number.MAX_SAFE_INTEGER }: { readonly from: number; readonly upTo?: number },
): AsyncGenerator<readonly RecordedEvent[]> {
  for (let next = from; next <= upTo; ) {
    const max = Math.min(pageMax, upTo - next + 1)
    const { events, unreadable } = await readOpenable(eventLog, stream, { from: next, max })
    if (events.length > 0) yield events
    if (unreadable === null && events.length < max) return
    // The error is about events before this page, so no event of the stream can be opened, at any revision.
    if (unreadable !== null && unreadable.lastRevision < next) return
    next = Math.max(next, unreadable?.lastRevision ?? events.at(-1)?.revision ?? next) + 1
  }
}
