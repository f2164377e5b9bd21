import type { EventLog, RecordedEvent } from '../event-log/port.ts'
import { pagesOf, readIfAny } from '../event-log/read-stream.ts'
import { operatorStream } from '../events/streams.ts'

/** Finds the newest event of each given type in the operators' stream. Each call reads only the events added since the previous call. */
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
    let to: number | undefined
    let last = -1
    for (;;) {
      const page = await readIfAny(eventLog, operatorStream, {
        ...{ direction: 'backwards', max: pageMax },
        ...(to !== undefined && { from: to }),
      })
      last = Math.max(last, page[0]?.revision ?? -1)
      for (const event of page)
        if (types.includes(event.type) && !found.has(event.type)) found.set(event.type, event)
      const oldest = page.at(-1)?.revision ?? 0
      if (oldest === 0 || found.size === types.length) break
      to = oldest - 1
    }
    seen = last
  }

  const lookOn = async (): Promise<void> => {
    const range = { from: seen + 1, upTo: seen + lookOnMax, pageMax }
    for await (const page of pagesOf(eventLog, operatorStream, range))
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
