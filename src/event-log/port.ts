/**
 * The event log is the only source of truth. All engines that implement this port pass the same contract suite
 * (`test/contract/event-log.ts`).
 */

import { hash } from 'node:crypto'

/** A place in the whole log. Positions increase in the order in which events became durable, but not always by 1. */
export type Position = bigint

/** The position before the first event. */
export const logStart: Position = 0n
/** PostgreSQL's largest bigint. No event has a higher position. */
export const positionMax: Position = 2n ** 63n - 1n

/** An event for the log. `data` and `metadata` are JSON, and their bytes never change. */
export type NewEvent = {
  /** A UUID that is unique within its stream. It is deterministic, so that a repeated append is recognized. */
  readonly id: string
  readonly type: string
  readonly data: string
  readonly metadata: string
}

export type RecordedEvent = NewEvent & {
  readonly position: Position
  readonly stream: string
  /** Counted from 0 within the stream, without gaps. */
  readonly revision: number
  /**
   * The recording time in milliseconds, by the writer's clock. The digest covers this time. If the writer recorded none, it is the time by the
   * log's own clock, which no digest covers.
   */
  readonly recordedAtMs: number
}

/** The last event that a reader has read. A log that still contains this event is the same log. */
export type LogPlace = {
  readonly position: Position
  readonly eventId: string
  /** The base64url SHA-256 of the whole event. The id alone is not enough, because a different event can have the same id. */
  readonly digest: string
}

export const placeOf = (event: RecordedEvent): LogPlace => ({
  position: event.position,
  eventId: event.id,
  digest: hash(
    'sha256',
    `${event.stream}\n${event.revision}\n${event.id}\n${event.type}\n${event.metadata}\n${event.data}`,
    'base64url',
  ),
})

/** The expected last revision of the stream. `none`: the stream must not exist yet. */
export type ExpectedRevision = number | 'none'

export type ReadOptions = {
  /** The first revision to read, inclusive. The default is the beginning or, when reading backwards, the end. */
  readonly from?: number
  readonly direction?: 'forwards' | 'backwards'
  readonly max: number
}

export type SubscribeOptions = {
  /** Exclusive. `logStart`: from the beginning of the log. */
  readonly after: Position
  /** The last event that the caller has read, at or before `after`. If the log has lost it, the subscription throws `LogRewritten`. */
  readonly known?: LogPlace | undefined
  /** The prefixes of the streams to deliver. If empty, all streams are delivered. */
  readonly prefixes: readonly string[]
  /** The maximum size of a batch. The default is 1,000. */
  readonly batchMax?: number
  /**
   * Called at least every `lookMaxMs` while the log answers and the consumer has everything. A subscription that fails is replaced without an
   * error, so only this shows whether the consumer can be behind.
   */
  readonly looked?: () => void
  readonly signal: AbortSignal
}

/** The longest time between two looks at a log that answers. */
export const lookMaxMs = 10_000

/**
 * An item of a subscription. `events`: a batch in log order, without gaps or duplicates, and never empty. `caught-up`: yielded once, when all
 * events that were in the log before the subscription have been delivered. `idle`: there is no matching event between the last delivered event
 * and `position`.
 */
export type SubscriptionItem =
  | { readonly kind: 'events'; readonly events: readonly RecordedEvent[]; readonly position: Position }
  | { readonly kind: 'caught-up'; readonly position: Position }
  | { readonly kind: 'idle'; readonly position: Position }

/** `repeated`: whether the events were already in the log, or undefined if the engine does not report this. */
export type Appended = { readonly revision: number; readonly repeated?: boolean }

export type LookedBack = {
  readonly events: readonly RecordedEvent[]
  /** The events in this range that cannot be opened. */
  readonly unreadable: readonly EventsUnreadable[]
  /** Events before this position were not read. Null: all events were read. */
  readonly next: Position | null
}

export type EventLog = {
  /** Whether the position of each event is that of the event before it plus 1, so that a gap shows that events were deleted. */
  readonly gapless: boolean
  /**
   * Appends atomically at exactly `expected` + 1, and settles within the adapter's append deadline. If an append is repeated with the same ids at
   * the same revision, it succeeds without writing again, even much later.
   *
   * Throws `AppendConflict`, `TooLarge`, `UnknownOutcome` (repeat the identical append to find out), `Unavailable`
   * (nothing was written), `LogRewritten` if the engine can detect it before it writes, and TypeError for invalid
   * events.
   */
  append(stream: string, expected: ExpectedRevision, events: readonly NewEvent[]): Promise<Appended>
  /**
   * Reads one stream. Fewer events than `max` mean that the stream ends there. Throws `StreamMissing`, `Unavailable`, `EventsUnreadable`, and
   * `TooLarge` if a page exceeds `readBytesMax`.
   */
  read(stream: string, options: ReadOptions): Promise<RecordedEvent[]>
  /** Catches up, and then follows the log until the signal aborts. Reconnects after failures. Throws only final errors such as `LogRewritten`. */
  subscribe(options: SubscribeOptions): AsyncIterable<SubscriptionItem>
  /** Returns the position of the last event, or `logStart` for an empty log. */
  head(): Promise<Position>
  /** Returns the event at exactly this position, or null. */
  at(position: Position): Promise<RecordedEvent | null>
  /**
   * Returns the newest events of the whole log before a position or, if it is null, before the end of the log. Returns at most `max` events and at
   * most one page. Events that cannot be opened are reported and skipped. Returns nothing for a position that never had an event.
   */
  lookBack(from: { readonly before: Position | null; readonly max: number }): Promise<LookedBack>
  /**
   * Returns the stream's last revision according to the engine's own records instead of its events, or null if the stream does not exist. Throws
   * `EventsUnreadable` if the engine hides events of the stream.
   */
  lastRevision(stream: string): Promise<number | null>
  /** Returns the names of the streams that start with the prefix, in any order. */
  streams(prefix: string): Promise<string[]>
  /** Waits for all work in progress, and closes every connection. */
  close(): Promise<void>
}

/** The stream is not at the expected revision. `actual` is its last revision, or −1 if it does not exist. */
export class AppendConflict extends Error {
  override name = 'AppendConflict'
  readonly stream: string
  readonly actual: number
  constructor(stream: string, expected: ExpectedRevision, actual: number) {
    super(`${stream} is at revision ${actual}, not at ${expected}`)
    this.stream = stream
    this.actual = actual
  }
}

/** The append may have been written. To find out, repeat the identical append or read the stream. */
export class UnknownOutcome extends Error {
  override name = 'UnknownOutcome'
}

export class StreamMissing extends Error {
  override name = 'StreamMissing'
}

/**
 * The log has lost events that were read before, because it was restored from an older copy or is another log, or its own records contradict each
 * other. This error is final.
 */
export class LogRewritten extends Error {
  override name = 'LogRewritten'
}

/**
 * Events cannot be opened, because a database page is damaged or the bytes were replaced. Reading them again does not help, but the events before
 * and after them can be read.
 */
export class EventsUnreadable extends Error {
  override name = 'EventsUnreadable'
  readonly stream: string
  readonly firstRevision: number
  readonly lastRevision: number
  constructor(
    {
      stream,
      firstRevision,
      lastRevision,
      why,
    }: { stream: string; firstRevision: number; lastRevision: number; why: string },
    options?: ErrorOptions,
  ) {
    const revisions =
      firstRevision === lastRevision
        ? `revision ${lastRevision}`
        : `revisions ${firstRevision} to ${lastRevision}`
    super(`${revisions} of ${stream} cannot be opened: ${why}`, options)
    this.stream = stream
    this.firstRevision = firstRevision
    this.lastRevision = lastRevision
  }
}

/** Whether the log still contains an event that was read. Throws the errors of `at`. */
export const stillHolds = async (eventLog: Pick<EventLog, 'at'>, place: LogPlace): Promise<boolean> => {
  const standing = await eventLog.at(place.position)
  return standing !== null && placeOf(standing).digest === place.digest
}

/** An append exceeds a limit and was not written, or a read exceeds `readBytesMax`. */
export class TooLarge extends Error {
  override name = 'TooLarge'
}

/** The log is temporarily unavailable, and nothing was written. The operation can be tried again later. */
export class Unavailable extends Error {
  override name = 'Unavailable'
}

export const appendBytesMax = 1_000_000
export const appendEventsMax = 1_024
/** The limit for the data and metadata of one read. A normal page of a thousand events needs only a hundredth of this. */
export const readBytesMax = 64 * 1024 * 1024

/** Whether a stream of this service can have this name. */
export const isStreamName = (name: string): boolean => streamName.test(name)

const streamName = /^[a-z][a-z0-9]*(-[A-Za-z0-9_.:]{1,120})?$/
/** Whether an event of this service can have this type. */
const isEventTypeName = (type: string): boolean => eventTypeName.test(type)

const eventTypeName = /^[A-Za-z][A-Za-z0-9]{0,99}$/
const uuidText = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/

/**
 * Adapters call this before they contact their engine. Throws if an append has no events, an invalid stream name or id, repeated ids, or a size
 * that not all engines accept.
 */
export const checkAppend = (
  stream: string,
  expected: ExpectedRevision,
  events: readonly NewEvent[],
): void => {
  if (!isStreamName(stream)) throw new TypeError(`"${stream.slice(0, 80)}" is not a stream name`)
  if (expected !== 'none' && !(Number.isSafeInteger(expected) && expected >= 0))
    throw new TypeError(`expected revision ${expected} of ${stream} is not a whole number`)
  if (events.length === 0) throw new TypeError(`an append to ${stream} without events`)
  if (events.length > appendEventsMax)
    throw new TooLarge(`an append of ${events.length} events to ${stream}; at most ${appendEventsMax}`)
  const ids = new Set<string>()
  let length = 0
  for (const event of events) {
    if (typeof event.data !== 'string' || typeof event.metadata !== 'string')
      throw new TypeError(
        `${event.type} for ${stream} is not serialized: data and metadata must be JSON texts`,
      )
    if (!isEventTypeName(event.type)) throw new TypeError(`"${event.type.slice(0, 80)}" is not an event type`)
    if (!event.data.isWellFormed() || !event.metadata.isWellFormed())
      throw new TypeError(
        `${event.type} for ${stream} contains an incomplete character (a lone surrogate), which UTF-8 cannot encode`,
      )
    if (!uuidText.test(event.id))
      throw new TypeError(`event id ${event.id} for ${stream} is not a lower-case UUID`)
    ids.add(event.id)
    length += event.data.length + event.metadata.length
  }
  if (ids.size !== events.length) throw new TypeError(`an append to ${stream} contains an event id twice`)
  // Most appends are far below the limit, so the exact number of bytes is counted only near it.
  if (length * 3 > appendBytesMax && appendBytes(events) > appendBytesMax)
    throw new TooLarge(`an append of ${appendBytes(events)} bytes to ${stream}; at most ${appendBytesMax}`)
}

const appendBytes = (events: readonly NewEvent[]): number =>
  events.reduce((sum, event) => sum + Buffer.byteLength(event.data) + Buffer.byteLength(event.metadata), 0)

/**
 * Returns the JSON text of event data. Throws for values that JSON would change or drop, such as BigInt, NaN, functions and symbols. Omits members
 * that are undefined.
 */
export const eventJson = (value: unknown): string => {
  // Checking the value first is several times faster than using a replacer in JSON.stringify.
  refuseUnfaithful('', value)
  if (value === undefined) throw new TypeError('event data is undefined, which JSON cannot represent')
  return JSON.stringify(value)
}

const refuseUnfaithful = (name: string, member: unknown): void => {
  if (typeof member === 'string' || typeof member === 'boolean') return
  if (typeof member === 'number') {
    if (!Number.isFinite(member))
      throw new TypeError(`event member "${name}" is ${member}, which JSON cannot represent`)
  } else if (typeof member === 'object') {
    if (member === null) return
    for (const key in member) refuseUnfaithful(key, (member as Record<string, unknown>)[key])
  } else if (member !== undefined)
    throw new TypeError(
      `event member "${name}" is a ${typeof member}; events can contain only JSON primitives`,
    )
}
