import { appendUntilKnown } from '../../event-log/append-until-known.ts'
import {
  AppendConflict,
  type EventLog,
  logStart,
  type Position,
  type RecordedEvent,
} from '../../event-log/port.ts'
import { readIfAny } from '../../event-log/read-stream.ts'
import { hasEnvelope } from '../../event-log/stored-event.ts'
import { beginCopiedTree } from '../../event-log/tree/begin-copied.ts'
import { isStreamOfOurs } from '../../events/streams.ts'
import { CommandRefused } from '../../ledger/command.ts'

export type CopyProgress = {
  readonly events: number
  readonly position: Position
  readonly head: Position
  readonly elapsedMs: number
}
export type Copied = {
  readonly events: number
  readonly already: number
  readonly streams: number
  /** The number of events of other software in the same event store. They are not copied. */
  readonly leftOut: number
}

const batchMax = 1_000
const appendsAtOnceMax = 64

/**
 * Copies one log, as it is at the start, into another log. Ids, types, data, metadata and revisions are copied byte for byte; positions and
 * recording times are those of the new log. Events of other software are left out. The service must be stopped, because nothing may be
 * written to either log during the copy. If the log has checkpoints, one more event is appended, which begins a new tree for the new log.
 *
 * The copy can be interrupted and started again. Throws if the target contains a different event at a revision, and `CommandRefused` if the
 * source was written to during the copy.
 */
export const copyEventLog = async ({
  from,
  to,
  onProgress,
}: {
  from: EventLog
  to: EventLog
  onProgress?: (progress: CopyProgress) => void
}): Promise<Copied> => {
  const head = await from.head()
  const startedAt = performance.now()
  const streams = new Set<string>()
  let events = 0
  let already = 0
  let leftOut = 0
  if (head === logStart) return { events, already, streams: 0, leftOut }
  const done = new AbortController()
  for await (const item of from.subscribe({ after: logStart, prefixes: [], batchMax, signal: done.signal })) {
    if (item.kind === 'events') {
      const due = item.events.filter(({ position }) => position <= head)
      const ours = due.filter(isOurs)
      leftOut += due.length - ours.length
      const byStream = Map.groupBy(ours, ({ stream }) => stream)
      const appends = [...byStream]
      for (let i = 0; i < appends.length; i += appendsAtOnceMax) {
        const copied = await Promise.all(
          appends.slice(i, i + appendsAtOnceMax).map(([stream, own]) => copyInto(to, stream, own)),
        )
        for (const [n, [stream, own]] of appends.slice(i, i + appendsAtOnceMax).entries()) {
          streams.add(stream)
          events += own.length
          if (copied[n] === 'already') already += own.length
        }
      }
    }
    onProgress?.({ events, position: item.position, head, elapsedMs: performance.now() - startedAt })
    if (item.position >= head) break
  }
  done.abort()
  await refuseWritten(from, head)
  await beginCopiedTree({ from, to })
  return { events, already, streams: streams.size, leftOut }
}

const isOurs = (event: RecordedEvent): boolean => isStreamOfOurs(event.stream) && hasEnvelope(event)

/** Throws `CommandRefused` if there are events after `head`, which were not copied. */
const refuseWritten = async (from: EventLog, head: Position): Promise<void> => {
  const end = await from.head()
  if (end === head) return
  const done = new AbortController()
  let written = 0
  for await (const item of from.subscribe({ after: head, prefixes: [], batchMax, signal: done.signal })) {
    if (item.kind === 'events') written += item.events.filter(isOurs).length
    if (item.kind === 'caught-up' || item.position >= end) break
  }
  done.abort()
  if (written > 0)
    throw new CommandRefused(
      `${written} events were written to the source during the copy, so a process of the service still uses it. ` +
        'Stop every process, and run the same command again: it continues where it stopped',
    )
}

/** Appends a stream's next events at their own revisions. A batch that is too large for one append is halved. */
const copyInto = async (
  to: EventLog,
  stream: string,
  events: readonly RecordedEvent[],
): Promise<'copied' | 'already'> => {
  const first = events[0]
  const last = events.at(-1)
  if (first === undefined || last === undefined) return 'already'
  if (await holds(to, last)) return 'already'
  const bytes = events.reduce(
    (sum, { data, metadata }) => sum + Buffer.byteLength(data) + Buffer.byteLength(metadata),
    0,
  )
  const inHalves = async (): Promise<'copied' | 'already'> => {
    const half = events.length >> 1
    await copyInto(to, stream, events.slice(0, half))
    return copyInto(to, stream, events.slice(half))
  }
  if (events.length > 1 && bytes > appendBytesGood) return inHalves()
  try {
    await appendUntilKnown(
      to,
      stream,
      first.revision === 0 ? 'none' : first.revision - 1,
      events.map(({ id, type, data, metadata }) => ({ id, type, data, metadata })),
    )
    return 'copied'
  } catch (error) {
    if (!(error instanceof AppendConflict)) throw error
    if (events.length === 1)
      throw new Error(
        `the target contains a different event at revision ${first.revision} of ${stream}, or lacks earlier events ` +
          `(it is at ${error.actual}). Copy into an empty log, or into an earlier copy of this log.`,
        { cause: error },
      )
    // An earlier attempt may have copied part of the batch.
    return inHalves()
  }
}

/** Below the limit of every event store for one append. */
const appendBytesGood = 500_000

const holds = async (
  to: EventLog,
  { stream, revision, id, data, metadata }: RecordedEvent,
): Promise<boolean> => {
  const [there] = await readIfAny(to, stream, { from: revision, max: 1 })
  return there !== undefined && there.id === id && there.data === data && there.metadata === metadata
}
