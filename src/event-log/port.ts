/**
 * The event log: the only source of truth. One port, several engines, one contract suite
 * (`test/contract/event-log.ts`). Never "log" alone: that is the logger.
 */

import { hash } from 'node:crypto'

/** An opaque, ordered place in the whole log. Strictly increasing in the order events became durable. */
export type Position = bigint

/** Before the first event. */
export const logStart: Position = 0n

/** An event for the log. `data` and `metadata` are JSON texts whose bytes are never changed or re-ordered. */
export type NewEvent = {
  /** A UUID, unique within its stream. Deterministic, so that a resent append is recognized. */
  readonly id: string
  readonly type: string
  readonly data: string
  readonly metadata: string
}

export type RecordedEvent = NewEvent & {
  readonly position: Position
  readonly stream: string
  /** Counted from 0 within the stream, without holes. */
  readonly revision: number
  /**
   * In milliseconds since the epoch: the time that the writer recorded, which the digest covers. The log's own clock, which no digest covers,
   * is used only for events without it.
   */
  readonly recordedAtMs: number
}

/** An event by which a reader recognizes the log it has read: its position, id and digest. */
export type LogPlace = {
  readonly position: Position
  readonly eventId: string
  /** SHA-256 of the whole event, base64url: ids derive from calls, so another event may have the same id with other bytes. */
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

/** The stream's last revision, as far as the appender knows it. `none`: the stream does not exist yet. */
export type ExpectedRevision = number | 'none'

export type ReadOptions = {
  /** The first revision to read, inclusive. Default: the beginning (or, backwards, the end). */
  readonly from?: number
  readonly direction?: 'forwards' | 'backwards'
  readonly max: number
}

export type SubscribeOptions = {
  /** Exclusive. `logStart` for everything. */
  readonly after: Position
  /** The last event the caller has, at or before `after`: if the log no longer holds it, the subscription ends with `LogRewritten`. */
  readonly known?: LogPlace | undefined
  /** Streams whose name starts with one of these; all streams when empty. */
  readonly prefixes: readonly string[]
  /** Largest batch to deliver. Default 1,000. */
  readonly batchMax?: number
  readonly signal: AbortSignal
}

/**
 * What a subscription yields. `events` batches are in global order, without gap or duplicate, never empty;
 * `caught-up` comes once, when every event that was in the log at the time is delivered; `idle` means that no
 * matching event lies between the last event and `position`.
 */
export type SubscriptionItem =
  | { readonly kind: 'events'; readonly events: readonly RecordedEvent[]; readonly position: Position }
  | { readonly kind: 'caught-up'; readonly position: Position }
  | { readonly kind: 'idle'; readonly position: Position }

/** The outcome of an append. `repeated`: whether its ids were there already; undefined where the engine does not report it. */
export type Appended = { readonly revision: number; readonly repeated?: boolean }

/** A look back over the whole log. */
export type LookedBack = {
  /** The newest first. */
  readonly events: readonly RecordedEvent[]
  /** Events among them that cannot be opened. */
  readonly unreadable: readonly EventsUnreadable[]
  /** Events before this position were not looked at; null: there are none. */
  readonly next: Position | null
}

export type EventLog = {
  /**
   * Appends atomically at exactly `expected` + 1 and settles within the adapter's append deadline. Resending the same
   * ids at the same revision succeeds without writing again, forever.
   *
   * Throws `AppendConflict`, `TooLarge`, `UnknownOutcome` (may or may not have been written: resend the identical
   * append), `Unavailable` (was not written), `LogRewritten` where the engine can detect it before it writes, and TypeError for
   * events no engine could take.
   */
  append(stream: string, expected: ExpectedRevision, events: readonly NewEvent[]): Promise<Appended>
  /**
   * Reads one stream. Fewer events than `max` mean the end of the stream. Throws `StreamMissing` where there is no stream,
   * `Unavailable` when the log cannot be reached, `EventsUnreadable`, and `TooLarge` where a page exceeds `readBytesMax`.
   */
  read(stream: string, options: ReadOptions): Promise<RecordedEvent[]>
  /**
   * Catches up, then follows live until the signal aborts. Reconnects by itself; throws only what is final, such as
   * `LogRewritten` when an event it delivered is no longer in its place.
   */
  subscribe(options: SubscribeOptions): AsyncIterable<SubscriptionItem>
  /** The position of the last event; `logStart` for an empty log. */
  head(): Promise<Position>
  /** The event at exactly this position; null if there is none. */
  at(position: Position): Promise<RecordedEvent | null>
  /**
   * The newest events of the whole log before a position, or from its end where none is given: at most `max`, and as many as a page
   * of bytes holds. Events that cannot be opened are reported and skipped. A position where there was never an event has nothing before it.
   */
  lookBack(from: { readonly before: Position | null; readonly max: number }): Promise<LookedBack>
  /** The stream's last revision in the engine's own records, not derived from its events; null where it knows no stream. */
  lastRevision(stream: string): Promise<number | null>
  /** The names of the streams that start with the prefix, as the engine lists them, in no order. */
  streams(prefix: string): Promise<string[]>
  /** Settles everything in flight and closes every connection. */
  close(): Promise<void>
}

/** The stream is at another revision than expected. `actual` is its last revision, −1 if it does not exist. */
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

/** The append may or may not have been written. Resend the identical append, or read the stream, to find out. */
export class UnknownOutcome extends Error {
  override name = 'UnknownOutcome'
}

export class StreamMissing extends Error {
  override name = 'StreamMissing'
}

/** Events that were read from the log are no longer in it: it was restored from an older copy, or is another log. Final. */
export class LogRewritten extends Error {
  override name = 'LogRewritten'
}

/**
 * The log holds something at these events that cannot be opened: a damaged page, or bytes it was never given. Final
 * for readers of that place. Events before and after it can be read.
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

/** Whether the log still holds an event a reader was given. Throws what `at` throws. */
export const stillHolds = async (eventLog: Pick<EventLog, 'at'>, place: LogPlace): Promise<boolean> => {
  const standing = await eventLog.at(place.position)
  return standing !== null && placeOf(standing).digest === place.digest
}

/** The append exceeds what the engine takes, and nothing was written; or a read exceeds `readBytesMax`. */
export class TooLarge extends Error {
  override name = 'TooLarge'
}

/** The log cannot be reached or refuses to work now; nothing was written. Trying again later may help. */
export class Unavailable extends Error {
  override name = 'Unavailable'
}

export const appendBytesMax = 1_000_000
export const appendEventsMax = 1_024
/** Of data and metadata. A page of a thousand events is a hundredth of it. More would take memory without a use. */
export const readBytesMax = 64 * 1024 * 1024

/** Whether a stream of this service may have this name. */
export const isStreamName = (name: string): boolean => streamName.test(name)

const streamName = /^[a-z][a-z0-9]*(-[A-Za-z0-9_.:]{1,120})?$/
/** Whether an event of this service may have this type. */
export const isEventTypeName = (type: string): boolean => eventTypeName.test(type)

const eventTypeName = /^[A-Za-z][A-Za-z0-9]{0,99}$/
const uuidText = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/

/**
 * Appends that every adapter refuses before it talks to its engine: no events, bad stream names (including an engine's own
 * `$` streams), ids that are not UUIDs or occur twice in the append, and appends beyond the size all engines take.
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
      throw new TypeError(`${event.type} for ${stream} is not serialised: data and metadata are JSON texts`)
    if (!isEventTypeName(event.type)) throw new TypeError(`"${event.type.slice(0, 80)}" is not an event type`)
    if (!event.data.isWellFormed() || !event.metadata.isWellFormed())
      throw new TypeError(`${event.type} for ${stream} holds half a character, which UTF-8 cannot write`)
    if (!uuidText.test(event.id))
      throw new TypeError(`event id ${event.id} for ${stream} is not a lower-case UUID`)
    ids.add(event.id)
    length += event.data.length + event.metadata.length
  }
  if (ids.size !== events.length) throw new TypeError(`an append to ${stream} holds an event id twice`)
  // The exact count in bytes matters only near the limit; most appends are far below.
  if (length * 3 > appendBytesMax && appendBytes(events) > appendBytesMax)
    throw new TooLarge(`an append of ${appendBytes(events)} bytes to ${stream}; at most ${appendBytesMax}`)
}

const appendBytes = (events: readonly NewEvent[]): number =>
  events.reduce((sum, event) => sum + Buffer.byteLength(event.data) + Buffer.byteLength(event.metadata), 0)

/**
 * JSON text of event data. Refuses, synchronously and by name, values that JSON would change or drop: BigInt, NaN, infinite
 * numbers, functions and symbols. Members that are undefined are left out.
 */
export const eventJson = (value: unknown): string => {
  // Walking the value first is several times faster than a replacer of JSON.stringify.
  refuseUnfaithful('', value)
  if (value === undefined) throw new TypeError('event data is undefined; events hold JSON')
  return JSON.stringify(value)
}

const refuseUnfaithful = (name: string, member: unknown): void => {
  if (typeof member === 'string' || typeof member === 'boolean') return
  if (typeof member === 'number') {
    if (!Number.isFinite(member))
      throw new TypeError(`event member "${name}" is ${member}, which JSON cannot hold`)
  } else if (typeof member === 'object') {
    if (member === null) return
    for (const key in member) refuseUnfaithful(key, (member as Record<string, unknown>)[key])
  } else if (member !== undefined)
    throw new TypeError(`event member "${name}" is a ${typeof member}; events hold JSON primitives only`)
}
