import { LogRewritten, type NewEvent, placeOf, type RecordedEvent, StreamMissing } from '../port.ts'
import type { Connection } from './client.ts'
import { readAt, readEvents } from './read.ts'

/**
 * The last append that this process has written. Only its ids are compared, because the server accepts an append whose ids another process has
 * already written with other bytes. Writers read such events afterwards.
 */
type Written = { readonly stream: string; readonly revision: number; readonly events: readonly NewEvent[] }

/**
 * The last events that this process has read and written. A server can be restored from an older copy only while it is stopped, so it is
 * enough to look for them on each new connection. Otherwise, another process may have written other events at the same revisions.
 */
export type LastSeen = {
  noteRead(events: readonly RecordedEvent[]): void
  noteWritten(written: Written): void
  /** Throws `LogRewritten` if the log no longer contains these events, and the errors of reads. */
  check(connection: Connection, silenceMs: number): Promise<void>
}

export const createLastSeen = (): LastSeen => {
  let read: RecordedEvent | undefined
  let written: Written | undefined
  return {
    noteRead: (events) => {
      for (const event of [events[0], events.at(-1)])
        if (event !== undefined && (read === undefined || event.position > read.position)) read = event
    },
    noteWritten: (last) => {
      written = last
    },
    check: async (connection, silenceMs) => {
      if (read !== undefined) {
        const there = await readAt(connection, read.position, silenceMs)
        if (there === null || placeOf(there).digest !== placeOf(read).digest)
          throw lost(`the event at position ${read.position} that this process has read`)
      }
      if (written !== undefined && !(await isThere(written, connection, silenceMs)))
        throw lost(
          `the event at revision ${written.revision} of ${written.stream} that this process has written`,
        )
    },
  }
}

const lost = (what: string): LogRewritten =>
  new LogRewritten(
    `the event log no longer contains ${what}: it was restored from an older copy; restart this process`,
  )

const isThere = async (
  { stream, revision, events }: Written,
  connection: Connection,
  silenceMs: number,
): Promise<boolean> => {
  const from = revision - events.length + 1
  const request = { stream, direction: 'forwards', from, max: events.length } as const
  const there = await readEvents(connection, request, silenceMs).catch((error: unknown) => {
    if (error instanceof StreamMissing) return []
    throw error
  })
  return events.every(({ id }, n) => there[n]?.id === id)
}
