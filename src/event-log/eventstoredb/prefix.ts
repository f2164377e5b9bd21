import { AppendConflict, type EventLog, type RecordedEvent, type SubscriptionItem } from '../port.ts'

/**
 * The part of a server's log whose stream names start with a prefix, as a log of its own. Its streams have their names
 * without the prefix: digests are over those.
 */
export const withPrefix = (whole: EventLog, prefix: string): EventLog => {
  const withoutPrefix = (event: RecordedEvent): RecordedEvent => ({
    ...event,
    stream: event.stream.slice(prefix.length),
  })

  async function* itemsOf(items: AsyncIterable<SubscriptionItem>): AsyncGenerator<SubscriptionItem> {
    for await (const item of items)
      yield item.kind === 'events' ? { ...item, events: item.events.map(withoutPrefix) } : item
  }

  return {
    append: (stream, expected, events) =>
      whole.append(`${prefix}${stream}`, expected, events).catch((error: unknown) => {
        throw error instanceof AppendConflict ? new AppendConflict(stream, expected, error.actual) : error
      }),
    read: async (stream, options) => (await whole.read(`${prefix}${stream}`, options)).map(withoutPrefix),
    subscribe: (options) => {
      const prefixes = options.prefixes.length === 0 ? [''] : options.prefixes
      return itemsOf(whole.subscribe({ ...options, prefixes: prefixes.map((own) => `${prefix}${own}`) }))
    },
    head: () => whole.head(),
    at: async (position) => {
      const event = await whole.at(position)
      return event?.stream.startsWith(prefix) === true ? withoutPrefix(event) : null
    },
    lookBack: async (from) => {
      const { events, ...rest } = await whole.lookBack(from)
      return { ...rest, events: events.map(withoutPrefix) }
    },
    lastRevision: (stream) => whole.lastRevision(`${prefix}${stream}`),
    streams: async (start) =>
      (await whole.streams(`${prefix}${start}`)).map((stream) => stream.slice(prefix.length)),
    close: () => whole.close(),
  }
}
