import {
  type EventLog,
  EventsUnreadable,
  type LookedBack,
  type Position,
  type RecordedEvent,
  StreamMissing,
} from '../../event-log/port.ts'
import { readOpenableBackwards } from '../../event-log/read-openable.ts'
import { type ChainLink, linkOf } from '../../event-log/verify/page-chain.ts'

type Log = Pick<EventLog, 'read' | 'lookBack'>

/** The maximum number of events on a page. */
const pageMax = 200
/** The maximum number of events that a search for one type reads. The next page continues the search. */
export const lookedAtMax = 2_000
/** The maximum number of events that a search for one type in one stream reads, in a single read. */
const streamLookedAtMax = 500

type Asked = { readonly type: string | null; readonly max: number }

/**
 * At most `max` of the newest events before a position, or of the whole log if the position is null; if `type` is set, only events
 * of this type.
 */
export const newestEvents = async (
  eventLog: Pick<Log, 'lookBack'>,
  { before, type, max }: Asked & { readonly before: Position | null },
): Promise<LookedBack> => {
  const shownMax = Math.min(max, pageMax)
  const events: RecordedEvent[] = []
  const unreadable: EventsUnreadable[] = []
  let lookedAt = 0
  let next = before
  do {
    const page = await eventLog.lookBack({ before: next, max: type === null ? shownMax : pageMax })
    unreadable.push(...page.unreadable)
    next = page.next
    for (const event of page.events) {
      lookedAt++
      if (type === null || event.type === type) events.push(event)
      if (events.length < shownMax) continue
      // The next request reads the rest of this page.
      const isLast = page.next === null && event === page.events.at(-1)
      return { events, unreadable, next: isLast ? null : event.position }
    }
  } while (next !== null && type !== null && lookedAt < lookedAtMax)
  return { events, unreadable, next }
}

/** The event with this id, if it is among the newest. */
export const recentEvent = async (
  eventLog: Pick<Log, 'lookBack'>,
  id: string,
): Promise<RecordedEvent | null> => {
  let before: Position | null = null
  for (let pages = 0; pages < lookedAtMax / pageMax; pages++) {
    const page: LookedBack = await eventLog.lookBack({ before, max: pageMax })
    const found = page.events.find((event) => event.id === id)
    if (found !== undefined || page.next === null) return found ?? null
    before = page.next
  }
  return null
}

type StreamPage = {
  /** The events, newest first, each with its link to the event before it. */
  readonly events: readonly { readonly event: RecordedEvent; readonly link: ChainLink }[]
  /** Every recomputed link, in the order of the stream, including those of events that a filter leaves out. */
  readonly links: readonly ChainLink[]
  /** The unreadable events right before the events of this page. */
  readonly unreadable: EventsUnreadable | null
  /** The next page contains the events before this revision; null on the last page. */
  readonly next: number | null
}

/**
 * At most `max` of the newest events of a stream before a revision, or at its end if the revision is null, with their chain
 * recomputed. Null if the stream does not exist.
 */
export const streamPage = async (
  eventLog: Pick<Log, 'read'>,
  asked: Asked & { readonly stream: string; readonly before: number | null },
): Promise<StreamPage | null> => {
  const { type } = asked
  const shownMax = Math.min(asked.max, pageMax)
  const readMax = type === null ? shownMax : streamLookedAtMax
  const read = await readOpenableBackwards(eventLog, { ...asked, max: readMax + 1 })
  if (read === null) return null
  const whole = read.events.slice(0, readMax)
  const matching = whole.filter((event) => type === null || event.type === type).slice(0, shownMax)
  const last = matching.at(-1)
  // A full page ends with its last matching event.
  const end = matching.length === shownMax && last !== undefined ? whole.indexOf(last) + 1 : whole.length
  const looked = whole.slice(0, end)
  const linked = looked.map((event, i) => ({ event, link: linkOf(event, read.events[i + 1] ?? null) }))
  const events = linked.filter(({ event }) => matching.includes(event))
  const links = linked.map(({ link }) => link).reverse()
  const oldest = looked.at(-1)?.revision ?? null
  const unreadable = end === read.events.length ? read.unreadable : null
  const next = unreadable === null ? oldest : unreadable.firstRevision
  return { events, links, unreadable, next: next === null || next <= 0 ? null : next }
}

export type EventPage = {
  readonly event: RecordedEvent
  readonly link: ChainLink
  /**
   * The next event of the stream, with its link to the shown event; null at the end of the stream, or if the next event cannot be
   * opened.
   */
  readonly following: { readonly event: RecordedEvent; readonly link: ChainLink } | null
  readonly preceding: RecordedEvent | null
}

/** One event with the events before and after it; null if it does not exist. Throws `EventsUnreadable` if it cannot be opened. */
export const eventPage = async (
  eventLog: Pick<Log, 'read'>,
  { stream, revision }: { readonly stream: string; readonly revision: number },
): Promise<EventPage | null> => {
  const one = (at: number): Promise<RecordedEvent | null> =>
    eventLog.read(stream, { from: at, max: 1 }).then(
      ([event]) => event ?? null,
      (error: unknown) => {
        if (error instanceof StreamMissing || (error instanceof EventsUnreadable && at !== revision))
          return null
        throw error
      },
    )
  const event = await one(revision)
  if (event === null || event.revision !== revision) return null
  const preceding = revision === 0 ? null : await one(revision - 1)
  const next = await one(revision + 1)
  return {
    event,
    preceding,
    link: linkOf(event, preceding),
    following: next === null ? null : { event: next, link: linkOf(next, event) },
  }
}
