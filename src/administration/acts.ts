import type { EventLog, RecordedEvent } from '../event-log/port.ts'
import { openablePages, readOpenableBackwards } from '../event-log/read-openable.ts'
import { operatorStream } from '../events/streams.ts'

/**
 * Finds the newest event of each given type in the operators' stream, among the events that can be opened. Each call reads only the events since the
 * previous call.
 */
export type Acts = {
  /** The newest event of this type; undefined if there is none. Throws the errors of `read`. */
  newest(type: string): Promise<RecordedEvent | undefined>
}

const pageMax = 500
/** The maximum number of events that each call after the first one reads. The next call reads any further events. */
const lookOnMax = 10_000

export const createActs = (eventLog: Pick<EventLog, 'read'>, types: readonly string[]): Acts => {
  const found = new Map<string, RecordedEvent>()
  let seen = -1
  let looking: Promise<void> | undefined

  /** Reads backwards until every type is found, because any number of other events can follow the newest event of a type. */
  const lookBack = async (): Promise<void> => {
    let last = -1
    for (let before: number | null = null; (before ?? 1) > 0 && found.size < types.length; ) {
      const page = await readOpenableBackwards(eventLog, { stream: operatorStream, before, max: pageMax })
      const { events, unreadable } = page ?? { events: [], unreadable: null }
      last = Math.max(last, events[0]?.revision ?? unreadable?.lastRevision ?? -1)
      for (const event of events)
        if (types.includes(event.type) && !found.has(event.type)) found.set(event.type, event)
      const next: number = unreadable?.firstRevision ?? events.at(-1)?.revision ?? 0
      // A damaged row can name a wrong revision.
      before = before === null ? next : Math.min(next, before - 1)
    }
    seen = last
  }

  const lookOn = async (): Promise<void> => {
    const range = { from: seen + 1, upTo: seen + lookOnMax }
    for await (const page of openablePages(eventLog, operatorStream, range))
      for (const event of page) {
        if (types.includes(event.type)) found.set(event.type, event)
        seen = event.revision
      }
  }

  return {
    newest: async (type) => {
      looking ??= (seen === -1 ? lookBack() : lookOn()).finally(() => {
        looking = undefined
      })
      await looking
      return found.get(type)
    },
  }
}
