import { LRUCache } from 'lru-cache'
import type { Logger } from 'pino'
import { within } from '../concurrency/deadline.ts'
import { follow } from '../event-log/follow.ts'
import { type EventLog, type RecordedEvent, Unavailable } from '../event-log/port.ts'
import { keyId as keyIdSchema } from '../events/primitives.ts'
import { keyStream } from '../events/streams.ts'
import { endsAtMs, type KeyState } from '../keys/key-state.ts'
import { isInDoubt, type KeyStream } from '../keys/key-stream.ts'
import { type AllowList, allowList, isAllowed } from './allow-list.ts'
import { foldRecorded, readKeyStream } from './key-stream-reader.ts'

/** A key ready for the door: its state, and what is asked on every call computed once. */
export type DirectoryKey = KeyState & {
  readonly endsAtMs: number
  /** Null: any address may use the key. */
  readonly allowed: AllowList | null
}

/** `in_doubt`: the key's stream holds an event this release cannot read, which may have ended the key. */
export type FoundKey = DirectoryKey | 'in_doubt' | undefined

/**
 * The API keys this process was asked for, in memory. A key is read from its own stream in the event log when it is
 * first used, and followed from then on: authenticating asks nobody afterwards, and a revocation anywhere reaches every
 * process as soon as its subscription delivers it, well within a second.
 *
 * No read model is asked what a key is. Rows that are late, edited or gone cost a look-up or save one, and no row lets
 * a key in. Reading every key at the start instead would cost a look at the whole log, however old.
 */
export type KeyDirectory = {
  /** The key now; a promise where the log has to be asked, which rejects with `Unavailable` when it does not tell. */
  get(keyId: string): FoundKey | Promise<FoundKey>
  readonly caughtUp: Promise<void>
  stop(): Promise<void>
}

export type OpenKeyDirectory = KeyDirectory & {
  /** Why a key that should be let in may not be, or a revocation is heard late; null while all is well. */
  failure(): Error | null
  /** Keys whose stream holds what this process, or the projector, cannot read, and which are not revoked. */
  doubtful(): readonly string[]
  /** The streams of events the projector could not turn into rows, as of now: their keys are looked at at once. */
  parked(streams: readonly string[]): Promise<void>
}

/** Well-formed ids that no key has. About 1 MB. */
const missingMax = 10_000
/** Look-ups of ids that nothing speaks for: anybody can make up a million, and each would be a question to the log. */
const strangersBurst = 500
const strangersPerSecond = 100
const readMaxMs = 5_000

/**
 * `listed` are the ids the read model knows: they are looked up whenever they are asked for. Any other is a stranger, and
 * strangers are looked up at a bounded rate.
 */
export const openKeyDirectory = async ({
  eventLog,
  listed,
  logger,
}: {
  eventLog: EventLog
  listed: Iterable<string>
  logger: Logger
}): Promise<OpenKeyDirectory> => {
  const known = new Map<string, KeyStream & { readonly found: FoundKey }>()
  const speakFor = new Set(listed)
  const missing = new LRUCache<string, true>({ max: missingMax })
  const loading = new Map<string, Loading>()
  const unreadable = new Set<string>()
  let parked: ReadonlySet<string> = new Set()
  const strangers = createAllowance(strangersBurst, strangersPerSecond)

  const keep = (keyId: string, stream: KeyStream): FoundKey => {
    const found = foundOf(stream)
    known.set(keyId, { ...stream, found })
    if (!isInDoubt(stream)) unreadable.delete(keyId)
    else if (!unreadable.has(keyId)) {
      unreadable.add(keyId)
      logger.fatal(
        { stream: keyStream(keyId), revision: stream.unreadableAt },
        "an event of an API key's stream cannot be read: the key is refused until it is revoked or this release is replaced",
      )
    }
    return found
  }

  const hear = (recorded: RecordedEvent): void => {
    const { stream: name, revision } = recorded
    const keyId = keyIdOf(name)
    if (keyId === null) return
    speakFor.add(keyId)
    missing.delete(keyId)
    const load = loading.get(keyId)
    if (load !== undefined) load.heard = Math.max(load.heard, revision)
    const stream = known.get(keyId)
    if (stream === undefined || revision <= stream.revision) return
    // What leaves a hole makes this process read again.
    if (revision > stream.revision + 1) return void known.delete(keyId)
    keep(keyId, foldRecorded(stream, recorded))
  }

  // Asked before any stream is read: what is recorded in between is met twice, never missed.
  const following = follow({
    eventLog,
    after: await eventLog.head(),
    prefixes: [keyStream('')],
    logger,
    apply: ({ recorded }) => hear(recorded),
    unreadable: (recorded) => {
      hear(recorded)
      // So that it is known, and said, before the key is used.
      const keyId = keyIdOf(recorded.stream)
      if (keyId === null || known.has(keyId)) return
      look(keyId).catch((error: unknown) => logger.error({ err: error, stream: recorded.stream }, cannotLook))
    },
  })

  const load = async (keyId: string, own: Loading): Promise<FoundKey> => {
    const before = known.get(keyId)
    let stream = await readKeyStream(eventLog, keyId, before)
    // Again for what was recorded after the read and heard meanwhile. Ends: it only reads forward.
    while (own.heard > stream.revision && !own.over) stream = await readKeyStream(eventLog, keyId, stream)
    // What was heard since is not in it.
    if (own.over) throw new Unavailable(`${keyStream(keyId)} was read too late`)
    if (stream.revision === -1) {
      missing.set(keyId, true)
      return undefined
    }
    // The subscription may have been faster.
    const now = known.get(keyId)
    return now !== undefined && now.revision >= stream.revision ? now.found : keep(keyId, stream)
  }

  const look = (keyId: string): Promise<FoundKey> => {
    const under = loading.get(keyId)
    if (under !== undefined) return under.found
    const own: Loading = { heard: -1, over: false, found: Promise.resolve(undefined) }
    loading.set(keyId, own)
    own.found = within(load(keyId, own), { waitMs: readMaxMs }, tooLate).finally(() => {
      own.over = true
      loading.delete(keyId)
    })
    return own.found
  }

  const get: KeyDirectory['get'] = (keyId) => {
    // Without the subscription what is known may be out of date, and a key that was revoked must stay out.
    const heardOf = following.failure() === null
    const stream = known.get(keyId)
    if (stream !== undefined) return heardOf ? stream.found : look(keyId)
    if (!speakFor.has(keyId) && ((heardOf && missing.has(keyId)) || !strangers.take())) return undefined
    return look(keyId)
  }

  const doubtful = (): string[] => [
    ...new Set([...unreadable, ...[...parked].filter((keyId) => known.get(keyId)?.revoked !== true)]),
  ]

  return {
    get,
    doubtful,
    caughtUp: following.caughtUp,
    stop: following.stop,
    failure: () => {
      const [first] = doubtful()
      if (following.failure() !== null || first === undefined) return following.failure()
      return new Error(
        `events of ${keyStream(first)} cannot be read; revoke the key, or replace this release`,
      )
    },
    parked: async (streams) => {
      parked = new Set(streams.map(keyIdOf).filter((keyId) => keyId !== null))
      for (const keyId of parked)
        if (!known.has(keyId))
          await look(keyId).catch((error: unknown) =>
            logger.error({ err: error, stream: keyStream(keyId) }, cannotLook),
          )
    },
  }
}

/** The key whose stream this is; null for a stream of other software on a log that is shared: no key has such an id. */
const keyIdOf = (stream: string): string | null => {
  const id = stream.slice(keyStream('').length)
  return stream.startsWith(keyStream('')) && keyIdSchema.safeParse(id).success ? id : null
}

const cannotLook = "an API key's stream cannot be looked at now"

/** `heard`: the highest revision the subscription delivered while the stream was being read; nothing is noted once `over`. */
type Loading = { heard: number; over: boolean; found: Promise<FoundKey> }

const foundOf = (stream: KeyStream): FoundKey => {
  if (isInDoubt(stream)) return 'in_doubt'
  const { state, revoked } = stream
  return state === undefined
    ? undefined
    : {
        ...state,
        // From the moment it is heard of, whatever the revoking host's clock says.
        endsAtMs: revoked ? Number.NEGATIVE_INFINITY : endsAtMs(state),
        allowed: state.allowedCidrs.length === 0 ? null : allowList(state.allowedCidrs),
      }
}

/** Whether an address may use the key. */
export const mayCallFrom = (key: DirectoryKey, address: string): boolean =>
  key.allowed === null || isAllowed(key.allowed, address)

/** So many at once, and so many a second from then on. */
const createAllowance = (burst: number, perSecond: number): { take(): boolean } => {
  let left = burst
  let atMs = performance.now()
  return {
    take: () => {
      const nowMs = performance.now()
      left = Math.min(burst, left + ((nowMs - atMs) / 1_000) * perSecond)
      atMs = nowMs
      if (left < 1) return false
      left--
      return true
    },
  }
}

const tooLate = (): never => {
  throw new Unavailable(`the event log did not tell of an API key within ${readMaxMs} ms`)
}
