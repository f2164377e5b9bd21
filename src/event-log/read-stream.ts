import {
  type EventLog,
  EventsUnreadable,
  type ReadOptions,
  type RecordedEvent,
  StreamMissing,
} from './port.ts'

type Log = Pick<EventLog, 'read'>

/** Like `EventLog.read`, but returns no events for a missing stream. */
export const readIfAny = async (
  eventLog: Log,
  stream: string,
  options: ReadOptions,
): Promise<RecordedEvent[]> => {
  try {
    return await eventLog.read(stream, options)
  } catch (error) {
    if (error instanceof StreamMissing) return []
    throw error
  }
}

const pageMaxDefault = 1_000

/**
 * Yields the pages of a stream, and nothing if the stream is missing. The next page is read while the current page is processed. If
 * `whole` is true, throws `EventsUnreadable` for revisions that are missing between the events, because amounts would be wrong without them.
 */
export async function* pagesOf(
  eventLog: Log,
  stream: string,
  {
    from,
    upTo = Number.MAX_SAFE_INTEGER,
    pageMax = pageMaxDefault,
    whole = false,
  }: {
    readonly from: number
    readonly upTo?: number
    readonly pageMax?: number
    readonly whole?: boolean
  },
): AsyncGenerator<readonly RecordedEvent[]> {
  const read = (next: number): Promise<readonly RecordedEvent[]> => {
    const max = Math.min(pageMax, upTo - next + 1)
    const page = max <= 0 ? Promise.resolve([]) : readIfAny(eventLog, stream, { from: next, max })
    // The page can fail before it is awaited, which must not be an unhandled rejection.
    page.catch(() => undefined)
    return page
  }
  let next = from
  let reading = read(next)
  for (;;) {
    const page = await reading
    if (whole) refuseGap(stream, page, next)
    next = (page.at(-1)?.revision ?? next - 1) + 1
    const last = page.length < pageMax
    if (!last) reading = read(next)
    if (page.length > 0) yield page
    if (last) return
  }
}

const refuseGap = (stream: string, page: readonly RecordedEvent[], from: number): void => {
  const n = page.findIndex(({ revision }, i) => revision !== from + i)
  const after = page[n]
  if (after === undefined) return
  throw new EventsUnreadable({
    stream,
    firstRevision: from + n,
    lastRevision: after.revision - 1,
    why: 'they are missing from the event log; restore it from a backup',
  })
}

/**
 * Yields the items of a subscription. The next item is requested before the current item is processed. It may never arrive, so when the caller
 * takes no more items, `stop` is aborted, which must end the subscription.
 */
export async function* readingAhead<T>(items: AsyncIterable<T>, stop: AbortController): AsyncGenerator<T> {
  const iterator = items[Symbol.asyncIterator]()
  try {
    let next = iterator.next()
    for (;;) {
      const item = await next
      if (item.done === true) return
      next = iterator.next()
      // A caller that stops early never awaits this item.
      next.catch(() => undefined)
      yield item.value
    }
  } finally {
    stop.abort()
    await iterator.return?.()
  }
}
