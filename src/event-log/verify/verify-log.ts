import { checkpointStream, isStreamOfOurs } from '../../events/streams.ts'
import { type EventLog, EventsUnreadable, logStart, type Position, type RecordedEvent } from '../port.ts'
import { readOpenable, unreadableOrThrow } from '../read-openable.ts'
import {
  type Checkpoint,
  CheckpointFault,
  type CheckpointStream,
  createStreamReader,
  emptyStream,
} from '../tree/checkpoint-stream.ts'
import { stackAt } from '../tree/grow.ts'
import { ownEventsAfter } from '../tree/leaves.ts'
import { headOf, signerOf } from '../tree/signed-note.ts'
import type { StoredTree, TreeStore } from '../tree/store.ts'
import type { TileStack } from '../tree/tiles.ts'
import { type Chains, createChains, type IsKnown } from './chains.ts'
import { createRoots, type ExpectedRoot, type Roots } from './roots.ts'

/**
 * Reads the log once, in log order, and checks the chain and the end of each stream, and every signed root.
 *
 * Events that were verified earlier, up to a signed checkpoint, do not have to be read again. The stored tiles must have that checkpoint's root,
 * and each chain must continue from its last verified event.
 */

/** A difference between the log and the events that were written. `revision` and `event_id` are null if no single event is faulty. */
export type LogFault = {
  readonly stream: string
  readonly revision: number | null
  readonly event_id: string | null
  readonly fault: string
}

export type LogVerdict = {
  readonly events: number
  readonly streams: number
  /** The number of broken events that an operator has acknowledged. */
  readonly known: number
  /** The number of leaves that were verified earlier and not read again, or 0 if the log was read from its beginning. */
  readonly after: number
  /** The last checkpoint up to which everything is now verified. Null: there is none, or there are faults. */
  readonly through: VerifiedUpTo | null
  readonly checkpoints: {
    /** The number of checkpoints of this log's own tree whose roots were recalculated. */
    readonly recomputed: number
    /**
     * The number of checkpoints from the logs of which this log is a copy. Their signatures are valid, and the last checkpoint of each log is
     * the first leaf of the next tree.
     */
    readonly earlier: number
    readonly last: Checkpoint | null
    /** The keys that an operator announced because the previous key was lost, with the reasons. */
    readonly announced: readonly { readonly key_id: string; readonly reason: string }[]
  }
  /** The verdict on a checkpoint that the caller provided, or null. */
  readonly against: OutsideCheckpoint | null
  /** The first fault of each stream, in log order, and the faults of the tree, up to `faultsMax`. */
  readonly faults: readonly LogFault[]
}

export type VerifiedUpTo = { readonly origin: string; readonly size: number; readonly root: string }

export type VerifyLogOptions = {
  readonly against?: string | undefined
  readonly isKnown?: IsKnown | undefined
  /** A checkpoint after which to continue. If it is not signed in the log, or the stored tiles do not have its root, the whole log is read. */
  readonly since?: VerifiedUpTo | null | undefined
  /** How long to read, but at least up to the first checkpoint. By default, the log is read to its end. */
  readonly readMaxMs?: number | undefined
  readonly onProgress?:
    | undefined
    | ((progress: { events: number; position: Position; head: Position; elapsedMs: number }) => void)
}

type Log = Pick<EventLog, 'gapless' | 'read' | 'subscribe' | 'head' | 'lastRevision' | 'streams'>

const faultsMax = 100
const pageEvents = 4_000
const askedAtOnce = 16

/** Throws the errors of reading except `EventsUnreadable`, and `NoteFault` if `against` is not a checkpoint. */
export const verifyLog = async (
  { eventLog, store }: { eventLog: Log; store: TreeStore | null },
  { against, isKnown, onProgress, since = null, readMaxMs = Number.POSITIVE_INFINITY }: VerifyLogOptions = {},
): Promise<LogVerdict> => {
  const faults: LogFault[] = []
  const report = (fault: LogFault): void => void (faults.length < faultsMax && faults.push(fault))
  const { stream, expected: signed, earlier } = await signedRoots(eventLog, report)
  const stored = (await store?.read()) ?? null
  const begun = await begunAt(store, { stored, stream, signed, since })
  const expected = signed.filter(({ size }) => size > begun.size)
  const outside = against === undefined ? null : outsideCheckpoint(against, stream, report)
  const roots = createRoots({
    tree: stream.tree,
    expected: [...expected, ...storedSize(stored, { stream, begun, report }), ...(outside?.expected ?? [])],
    begun: begun.tree,
  })
  const chains = createChains(isKnown)
  const whole = await readAll(eventLog, { chains, roots, report, onProgress, begun, readMaxMs })
  // The ends of streams are checked only if the log was read to its end, and only for streams with new events.
  if (whole) await complete(eventLog, chains, { report, names: begun.size === 0 ? null : chains.met() })
  const { streams, known } = chains.counts()
  return {
    events: roots.size - begun.size - (begun.size > 0 || stream.tree?.previousNote == null ? 0 : 1),
    streams,
    known,
    after: begun.size,
    through: faults.length > 0 ? null : throughOf(stream, roots, begun.size > 0 ? since : null),
    checkpoints: {
      recomputed: expected.filter(({ size }) => whole || size <= roots.size).length,
      earlier,
      last: stream.last,
      announced: stream.keys.flatMap(({ id, reason }) => (reason === null ? [] : [{ key_id: id, reason }])),
    },
    against: outside?.checkpoint() ?? null,
    faults,
  }
}

type Report = (fault: LogFault) => void

const throughOf = (
  { tree }: CheckpointStream,
  { passed }: Roots,
  since: VerifiedUpTo | null,
): VerifiedUpTo | null =>
  passed === null || tree === null ? since : { origin: tree.origin, size: passed.size, root: passed.root }

/** `after` is the position of the last event that does not have to be read again. */
type Begun = { readonly size: number; readonly after: Position; readonly tree?: TileStack }

const beginning: Begun = { size: 0, after: logStart }

/** Returns the end of the part that was verified earlier, if the log contains its signed checkpoint and the stored tiles have its root. */
const begunAt = async (
  store: TreeStore | null,
  {
    stored,
    stream,
    signed,
    since,
  }: {
    stored: StoredTree | null
    stream: CheckpointStream
    signed: readonly ExpectedRoot[]
    since: VerifiedUpTo | null
  },
): Promise<Begun> => {
  const checkpoint = signed.find(({ size, root }) => size === since?.size && root === since.root)
  if (store === null || checkpoint?.position == null || since?.origin !== stream.tree?.origin)
    return beginning
  if (stored === null || stored.origin !== since?.origin || stored.size < checkpoint.size) return beginning
  const tree = (await stackAt(store, checkpoint.size))?.stack
  if (tree === undefined || tree.root().toString('base64') !== checkpoint.root) return beginning
  return { size: checkpoint.size, after: BigInt(checkpoint.position), tree }
}

/** Expects that the log is not shorter than the stored tree. The tiles themselves are checked by each proof. */
const storedSize = (
  stored: StoredTree | null,
  { stream, begun, report }: { stream: CheckpointStream; begun: Begun; report: Report },
): readonly ExpectedRoot[] => {
  if (stored === null || stored.origin !== stream.tree?.origin || stored.size <= begun.size) return []
  const { size } = stored
  const refuted = (why: string): void =>
    report({
      stream: checkpointStream,
      revision: null,
      event_id: null,
      fault: `the stored tree has ${size} leaves, but ${why}`,
    })
  return [{ size, root: null, position: null, refuted }]
}

/**
 * Returns the signed roots, up to the first fault in the stream of checkpoints. They are read before the log, so that no root is beyond the part of
 * the log that is read.
 */
const signedRoots = async (
  eventLog: Log,
  report: Report,
): Promise<{ stream: CheckpointStream; expected: ExpectedRoot[]; earlier: number }> => {
  const all: Checkpoint[] = []
  let stream = emptyStream
  try {
    stream = await createStreamReader(eventLog, {
      folded: (folded) => {
        stream = folded
        if (folded.last?.revision === folded.revision) all.push(folded.last)
      },
    })()
  } catch (error) {
    // Events that cannot be opened are reported when the log is read.
    if (error instanceof CheckpointFault)
      report({
        stream: checkpointStream,
        revision: error.revision,
        event_id: error.eventId,
        fault: error.message,
      })
    else if (!(error instanceof EventsUnreadable)) throw error
  }
  const own = all.filter(({ origin }) => origin === stream.tree?.origin)
  return {
    stream,
    earlier: all.length - own.length,
    expected: own.map(({ size, root, position, revision, eventId }) => ({
      size,
      root,
      position,
      refuted: (why) => report({ stream: checkpointStream, revision, event_id: eventId, fault: why }),
    })),
  }
}

const readAll = async (
  eventLog: Log,
  {
    chains,
    roots,
    report,
    onProgress,
    begun,
    readMaxMs,
  }: { chains: Chains; roots: Roots; report: Report; begun: Begun; readMaxMs: number } & Pick<
    VerifyLogOptions,
    'onProgress'
  >,
): Promise<boolean> => {
  const startedAt = performance.now()
  const head = await eventLog.head()
  let last = begun.after
  try {
    for await (const { events, all, position } of ownEventsAfter(eventLog, {
      after: begun.after,
      batchMax: pageEvents,
    })) {
      if (eventLog.gapless) for (const fault of gapsIn(all, last)) report(fault)
      last = all.at(-1)?.position ?? last
      await goOn(eventLog, chains, { events, after: begun.after })
      for (const event of events) {
        const fault = chains.check(event)
        if (fault !== null) report(faultAt(event, fault))
        roots.add(event)
      }
      const elapsedMs = performance.now() - startedAt
      onProgress?.({ events: roots.size - begun.size, position, head, elapsedMs })
      if (elapsedMs >= readMaxMs && roots.passed !== null) return false
    }
  } catch (error) {
    if (!(error instanceof EventsUnreadable)) throw error
    // An event cannot be opened, so the rest of the log cannot be read in log order. Instead, each stream is read separately, up to its first event
    // that cannot be opened. The rest of the tree is not checked.
    await readStreams(eventLog, chains, { report, begun })
    return true
  }
  roots.end()
  return true
}

/** The gaps in a log that should have none. The hash chains do not show that the last events of a stream were deleted. */
function* gapsIn(events: readonly RecordedEvent[], after: Position): Generator<LogFault> {
  let before = after
  for (const { stream, revision, id, position } of events) {
    if (position !== before + 1n)
      yield {
        stream,
        revision,
        event_id: id,
        fault: `it is at position ${position} of the log instead of ${before + 1n}: rows of the log were deleted or changed`,
      }
    before = position
  }
}

/** If the beginning of a stream was verified earlier, continues its chain after the last verified event. */
const goOn = async (
  eventLog: Log,
  chains: Chains,
  { events, after }: { readonly events: readonly RecordedEvent[]; readonly after: Position },
): Promise<void> => {
  const firsts = new Map<string, number>()
  for (const { stream, revision } of events)
    if (!firsts.has(stream) && revision > 0 && chains.lastOf(stream) === -1 && !chains.isBroken(stream))
      firsts.set(stream, revision)
  const unmet = [...firsts]
  for (let n = 0; n < unmet.length; n += askedAtOnce)
    await Promise.all(
      unmet.slice(n, n + askedAtOnce).map(async ([stream, revision]) => {
        const { events: before } = await readOpenable(eventLog, stream, { from: revision - 1, max: 1 })
        const [last] = before
        if (last?.revision === revision - 1 && last.position <= after) chains.begin(last)
      }),
    )
}

const faultAt = ({ stream, revision, id }: RecordedEvent, fault: string): LogFault => ({
  stream,
  revision,
  event_id: id,
  fault,
})

const readStreams = async (
  eventLog: Log,
  chains: Chains,
  { report, begun }: { report: Report; begun: Begun },
): Promise<void> => {
  const names = begun.size === 0 ? await allStreams(eventLog) : chains.met()
  for (const stream of names)
    for (let from = chains.lastOf(stream) + 1; !chains.isBroken(stream); ) {
      const { events, unreadable } = await readOpenable(eventLog, stream, { from, max: 1_000 })
      for (const event of events) {
        const fault = chains.check(event)
        if (fault !== null) report(faultAt(event, fault))
      }
      from += events.length
      if (unreadable === null && events.length === 0) break
      if (unreadable === null || chains.isBroken(stream)) continue
      report({ stream, revision: from, event_id: null, fault: unreadable.message })
      chains.giveUp(stream)
    }
}

const allStreams = async (eventLog: Log): Promise<string[]> =>
  (await eventLog.streams('')).filter(isStreamOfOurs).sort()

/** Checks that every stream ends at the revision in the engine's own records. Streams that have grown in the meantime are read again. */
const complete = async (
  eventLog: Log,
  chains: Chains,
  { report, names }: { report: Report; names: readonly string[] | null },
): Promise<void> => {
  const streams = names ?? (await allStreams(eventLog))
  for (let n = 0; n < streams.length; n += askedAtOnce) {
    const faults = await Promise.all(
      streams.slice(n, n + askedAtOnce).map((one) => endFault(eventLog, chains, one)),
    )
    for (const fault of faults) if (fault !== null) report(fault)
  }
}

const endFault = async (eventLog: Log, chains: Chains, stream: string): Promise<LogFault | null> => {
  if (chains.isBroken(stream)) return null
  const met = chains.lastOf(stream)
  const engine = await eventLog.lastRevision(stream).catch(unreadableOrThrow)
  if (engine instanceof EventsUnreadable)
    return { stream, revision: engine.firstRevision, event_id: null, fault: engine.message }
  if (engine === null || engine === met) return null
  const missing = (fault: string): LogFault => ({ stream, revision: met + 1, event_id: null, fault })
  if (engine < met)
    return missing(
      `the stream ends at revision ${met}, but according to the event log's own records at ${engine}`,
    )
  const { events, unreadable } = await readOpenable(eventLog, stream, { from: met + 1, max: 1 })
  if (unreadable !== null) return missing(unreadable.message)
  // The next event was written while the log was being read.
  if (events[0]?.revision === met + 1) return null
  return missing(
    `the stream ends before revision ${engine}, which is its last one according to the event log's own records`,
  )
}

type OutsideCheckpoint = {
  readonly origin: string
  readonly size: number
  readonly root: string
  /**
   * `extended`: the log's tree begins with the leaves of the checkpoint. `begun_from`: the log is a copy, and its tree begins with the checkpoint.
   * `refuted`: neither is true, for the reason in the faults.
   */
  readonly verdict: 'extended' | 'begun_from' | 'refuted'
}

type Fault = { stream: string; revision: null; event_id: null; fault: string }

/** Throws `NoteFault` if the text is not a checkpoint. `expected` is the root that the log must have, on which the verdict depends. */
const outsideCheckpoint = (
  note: string,
  { keys, tree }: CheckpointStream,
  report: (fault: Fault) => void,
): { readonly expected: readonly ExpectedRoot[]; checkpoint(): OutsideCheckpoint } => {
  const { origin, size, root: bytes } = headOf(note)
  const root = bytes.toString('base64')
  let verdict: OutsideCheckpoint['verdict'] = 'refuted'
  const refuted = (why: string): void => {
    verdict = 'refuted'
    report({ stream: 'the checkpoint kept outside', revision: null, event_id: null, fault: why })
  }
  const expected: ExpectedRoot[] = []
  if (signerOf(note, origin, keys) === undefined) refuted('no key that this log announced has signed it')
  else if (origin === tree?.origin) {
    verdict = 'extended'
    expected.push({ size, root, position: null, refuted })
  } else if (tree !== null && tree.previousNote === note) verdict = 'begun_from'
  else
    refuted(
      `it belongs to the tree ${origin}, but this log's tree is ${tree?.origin ?? 'not begun'}. A copied log proves only that it begins with the ` +
        'last checkpoint of the original log. Use that checkpoint, or verify this one against the original log',
    )
  return { expected, checkpoint: () => ({ origin, size, root, verdict }) }
}
