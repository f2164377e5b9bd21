import { readFileSync } from 'node:fs'
import {
  constants,
  createZstdCompress,
  createZstdDecompress,
  type ZstdOptions,
  zstdCompressSync,
  zstdDecompressSync,
} from 'node:zlib'
import { recordedMsIn } from '../hash-chain.ts'
import {
  appendBytesMax,
  appendEventsMax,
  EventsUnreadable,
  type NewEvent,
  type RecordedEvent,
} from '../port.ts'

/**
 * Compresses and opens whole zstd frames in a reusable context. `zstdDecompressSync` and `zstdCompressSync` create a context and load the
 * dictionary for every frame, which takes several times as long as compressing one call. Node.js has no documented way to reuse a context, so
 * this code uses an internal handle. If the handle is missing, it uses these functions instead. The frames are identical.
 */

/**
 * Compresses or opens a frame. `room` is the maximum size of the result, which is valid only until the next call. Throws if the input is not a
 * frame, or if the result does not fit.
 */
type Zstd = (input: Buffer, room: number) => Buffer

type Stream = ReturnType<typeof createZstdCompress> | ReturnType<typeof createZstdDecompress>

type Handle = {
  writeSync(
    flush: number,
    ...places: [input: Buffer, from: number, length: number, output: Buffer, at: number, room: number]
  ): void
}

type Context = {
  readonly stream: Stream
  readonly handle: Handle
  /** The output space and the input bytes that were left after the last write. */
  readonly left: Uint32Array
}

const contextOf = (stream: Stream): Context | null => {
  const handle: unknown = Reflect.get(stream, '_handle')
  const left: unknown = Reflect.get(stream, '_writeState')
  if (!isHandle(handle) || !(left instanceof Uint32Array)) return null
  // The error is thrown below. Without a listener, it would also crash the process.
  stream.on('error', () => undefined)
  return { stream, handle, left }
}

const isHandle = (value: unknown): value is Handle =>
  typeof value === 'object' && value !== null && 'writeSync' in value && typeof value.writeSync === 'function'

const outputBytesUsual = 64 * 1024

/** Returns a function that reuses a context. `once` is the documented function with the same results. */
export const keptZstd = (open: () => Stream, once: Zstd): Zstd => {
  let context: Context | null = null
  let output = Buffer.alloc(0)
  return (input, room) => {
    context ??= contextOf(open())
    if (context === null) return once(input, room)
    if (output.length < room) output = Buffer.allocUnsafe(Math.max(room, outputBytesUsual))
    const { stream, handle, left } = context
    handle.writeSync(constants.ZSTD_e_end, input, 0, input.length, output, 0, room)
    const unused = left[0] ?? 0
    if (stream.errored === null && unused > 0) return output.subarray(0, room - unused)
    // The context has stopped in the middle of this frame, so it cannot be used for the next one.
    context = null
    stream.destroy()
    throw stream.errored ?? new RangeError(`the result needs at least ${room} bytes`)
  }
}

/**
 * The events of one append are one row of `log_segments`. The row contains ids of 16 bytes each, and a zstd frame with the types, data and
 * metadata, separated by U+001E. The dictionary contains text that most events have in common, so that a single call needs only a third of the
 * space. A frame can be opened only with the dictionary with which it was written, so the dictionary file must never change.
 *
 * PostgreSQL itself compresses only rows above 2 kB, so a single call would need 2.3 times as much space, and the embedded build has no lz4.
 */
const dictionary = readFileSync(new URL('segment-dictionary.bin', import.meta.url))

/** JSON never contains this character unescaped, so it can separate JSON texts. */
const separator = '\x1e'
const zstdLevel = 1
/** The maximum that `checkAppend` allows: data and metadata, and a type and three separators for each event. */
const segmentBytesMax = appendBytesMax + appendEventsMax * (100 + 3)
const idBytes = 16

const packing: ZstdOptions = {
  // The frame does not contain the length of the text, because the row already does.
  params: { [constants.ZSTD_c_compressionLevel]: zstdLevel, [constants.ZSTD_c_contentSizeFlag]: 0 },
  dictionary,
}
const compress = keptZstd(
  () => createZstdCompress(packing),
  (text) => zstdCompressSync(text, packing),
)
/** Enough room for a frame, even if the text cannot be compressed. */
const frameRoom = (bytes: number): number => bytes + (bytes >> 7) + 1_024

const decompress = keptZstd(
  () => createZstdDecompress({ dictionary }),
  (frame, room) => zstdDecompressSync(frame, { dictionary, maxOutputLength: room }),
)

export type Segment = {
  /** The ids as hexadecimal digits, without hyphens. */
  readonly ids: string
  readonly bytes: number
  readonly events: Buffer
}

export const packSegment = (events: readonly NewEvent[]): Segment => {
  let ids = ''
  let text = ''
  for (const { id, type, data, metadata } of events) {
    ids += id
    text += `${text === '' ? '' : separator}${type}${separator}${data}${separator}${metadata}`
  }
  const open = Buffer.from(text)
  return {
    ids: ids.replaceAll('-', ''),
    bytes: open.length,
    events: Buffer.from(compress(open, frameRoom(open.length))),
  }
}

/** Throws if an event contains the separator. JSON never contains it unescaped, so such data is not JSON. */
export const refuseSeparator = (stream: string, events: readonly NewEvent[]): void => {
  for (const { type, data, metadata } of events)
    if (data.includes(separator) || metadata.includes(separator))
      throw new TypeError(
        `${type} for ${stream} contains U+001E unescaped, so its data or metadata is not JSON text`,
      )
}

/** A row of `log_segments` with the name of its stream, as node-postgres returns it. */
export type SegmentRow = {
  readonly last_position: string
  readonly last_revision: string
  readonly count: number
  readonly bytes: number
  /** Milliseconds after 1970. PostgreSQL also knows infinite times, and later ones than a `Date` can express. */
  readonly recorded: string
  readonly stream: string | null
  readonly ids: Buffer
  readonly events: Buffer
}

/** Returns the events of a segment, in order. Throws `EventsUnreadable` if the segment was changed after it was written. */
export const openSegment = (row: SegmentRow): RecordedEvent[] => {
  const { count, ids } = row
  const stream = row.stream ?? 'a stream without a name'
  const lastRevision = Number(row.last_revision)
  const firstRevision = lastRevision - count + 1
  const unreadable = (why: string, cause?: unknown): EventsUnreadable =>
    new EventsUnreadable({ stream, firstRevision, lastRevision, why }, { cause })
  if (row.stream === null) throw unreadable('the stream is not listed')
  if (ids.length !== count * idBytes) throw unreadable(`${ids.length} bytes of ids for ${count} events`)
  const logMs = Number(row.recorded)
  if (Number.isNaN(new Date(logMs).valueOf()))
    throw unreadable(
      `the column recorded_at of its row is ${row.recorded} ms after 1970, which is not a date`,
    )
  const fields = textOf(row, unreadable).split(separator)
  if (fields.length !== count * 3) throw unreadable(`${fields.length} fields for ${count} events`)
  const uuids = uuidsOf(ids)
  const opened: RecordedEvent[] = []
  let position = BigInt(row.last_position) - BigInt(count)
  for (let n = 0; n < count; n++) {
    const metadata = fields[3 * n + 2] ?? ''
    opened.push({
      position: ++position,
      stream,
      revision: firstRevision + n,
      id: uuids.slice(n * uuidChars, (n + 1) * uuidChars),
      type: fields[3 * n] ?? '',
      data: fields[3 * n + 1] ?? '',
      metadata,
      recordedAtMs: recordedMsIn(metadata, logMs),
    })
  }
  return opened
}

const textOf = (
  { bytes, events }: SegmentRow,
  unreadable: (why: string, cause?: unknown) => EventsUnreadable,
): string => {
  if (bytes > segmentBytesMax) throw unreadable(`${bytes} bytes; an append has at most ${segmentBytesMax}`)
  let open: Buffer
  try {
    // If the frame contains more bytes than the row states, this fails before they fill the memory.
    open = decompress(events, bytes + 1)
  } catch (error) {
    throw unreadable(error instanceof Error ? error.message : String(error), error)
  }
  if (open.length !== bytes) throw unreadable(`${open.length} bytes instead of ${bytes}`)
  return open.toString()
}

const uuidChars = 36
const hyphen = 0x2d
const hexDigits = Buffer.from('0123456789abcdef')

/** Returns consecutive ids of 16 bytes as UUIDs. This function runs thousands of times a second, so it creates few strings. */
const uuidsOf = (ids: Buffer): string => {
  const text = Buffer.allocUnsafe((ids.length / idBytes) * uuidChars)
  let at = 0
  for (let i = 0; i < ids.length; i++) {
    const byte = ids[i] ?? 0
    text[at++] = hexDigits[byte >> 4] ?? 0
    text[at++] = hexDigits[byte & 15] ?? 0
    const within = i % idBytes
    if (within === 3 || within === 5 || within === 7 || within === 9) text[at++] = hyphen
  }
  return text.toString('latin1')
}
