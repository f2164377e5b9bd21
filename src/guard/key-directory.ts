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

/** The state of a key, with precomputed values that every call needs. */
export type DirectoryKey = KeyState & {
  readonly endsAtMs: number
  /** Null: the key can be used from any address. */
  readonly allowed: AllowList | null
}

/** `in_doubt`: an event of the key's stream is missing or cannot be read by this release, and could be a revocation. */
export type FoundKey = DirectoryKey | 'in_doubt' | undefined

/**
 * The API keys that this process has used, in memory. When a key is first used, its stream is read from the event log. A subscription delivers
 * later changes, so a revocation reaches every process well within a second.
 *
 * The state of a key never comes from a read model. Outdated, changed or missing rows can only affect the number of look-ups; they never make a
 * key valid. Reading all keys at startup would require reading the whole log.
 */
export type KeyDirectory = {
  /** Returns the current state of a key. If the log must be read, returns a promise, which rejects with `Unavailable` if it does not answer. */
  get(keyId: string): FoundKey | Promise<FoundKey>
  readonly caughtUp: Promise<void>
  stop(): Promise<void>
}

export type OpenKeyDirectory = KeyDirectory & {
  /**
   * Returns the reason why changes of keys can be delayed, or null if there is none. A key with an unreadable event is not a reason, because other
   * keys are answered.
   */
  failure(): Error | null
  /** Returns the keys that are not revoked, but have an event that is missing, or that this process or the projector cannot read. */
  doubtful(): readonly string[]
  /** Must be called with the streams that have parked events. Their keys are checked immediately. */
  parked(streams: readonly string[]): Promise<void>
}

/** The maximum number of keys in memory, about 50 MB. Another key's stream is read again when the key is next used. */
const knownMax = 50_000
/** The maximum number of unknown key ids in memory, about 1 MB. */
const missingMax = 10_000
/** Limits the look-ups of unknown ids, because anyone can invent a million ids and each look-up is a query to the log. */
const strangersBurst = 500
const strangersPerSecond = 100
const readMaxMs = 5_000

type Keys = {
  readonly eventLog: EventLog
  readonly logger: Logger
  /** The keys that were read, by id, with the result of `get` for each. */
  readonly known: LRUCache<string, KeyStream & { readonly found: FoundKey }>
  /** The ids that the read model or the log contains. */
  readonly named: Set<string>
  readonly missing: LRUCache<string, true>
  readonly loading: Map<string, Loading>
  readonly unreadable: Set<string>
  /** Keys with parked events. */
  parked: ReadonlySet<string>
  /** Keys with parked events that are revoked. A revocation is final, so this remains true if the key is no longer in memory. */
  parkedAndRevoked: ReadonlySet<string>
}

/**
 * A read in progress. `heard`: the highest revision that the subscription delivered during the read. `over`: the read took too long, so its
 * result is ignored.
 */
type Loading = { heard: number; over: boolean; found: Promise<FoundKey> }

/** `listed` are the ids in the read model. Look-ups of other ids are limited. */
export const openKeyDirectory = async ({
  eventLog,
  listed,
  logger,
  max = knownMax,
}: {
  eventLog: EventLog
  listed: Iterable<string>
  logger: Logger
  max?: number
}): Promise<OpenKeyDirectory> => {
  const keys: Keys = {
    eventLog,
    logger,
    known: new LRUCache({ max }),
    named: new Set(listed),
    missing: new LRUCache({ max: missingMax }),
    loading: new Map(),
    unreadable: new Set(),
    parked: new Set(),
    parkedAndRevoked: new Set(),
  }
  const { known, named, missing, unreadable } = keys
  const strangers = createAllowance(strangersBurst, strangersPerSecond)

  // The subscription starts before any stream is read, so an event can be delivered twice, but never missed.
  const following = follow({
    eventLog,
    after: await eventLog.head(),
    prefixes: [keyStream('')],
    logger,
    apply: ({ recorded }) => hear(keys, recorded),
    unreadable: (recorded) => {
      hear(keys, recorded)
      const keyId = keyIdOf(recorded.stream)
      if (keyId !== null) void lookAhead(keys, keyId)
    },
  })

  const doubtful = (): string[] => [
    ...new Set([...unreadable, ...[...keys.parked].filter((keyId) => !keys.parkedAndRevoked.has(keyId))]),
  ]

  return {
    get: (keyId) => {
      // If the subscription fails, the state in memory can be out of date, so the log is read. A revoked key must not be accepted.
      const heardOf = following.failure() === null
      const stream = known.get(keyId)
      if (stream !== undefined) return heardOf ? stream.found : look(keys, keyId)
      if (!named.has(keyId) && ((heardOf && missing.has(keyId)) || !strangers.take())) return undefined
      return look(keys, keyId)
    },
    doubtful,
    caughtUp: following.caughtUp,
    stop: following.stop,
    failure: following.failure,
    parked: async (streams) => {
      keys.parked = new Set(streams.map(keyIdOf).filter((keyId) => keyId !== null))
      const isRevoked = (keyId: string): boolean =>
        keys.parkedAndRevoked.has(keyId) || known.peek(keyId)?.revoked === true
      keys.parkedAndRevoked = new Set([...keys.parked].filter(isRevoked))
      for (const keyId of keys.parked) if (!keys.parkedAndRevoked.has(keyId)) await lookAhead(keys, keyId)
    },
  }
}

/** Returns the key id in a stream's name, or null for a stream of another application on a shared log. */
const keyIdOf = (stream: string): string | null => {
  const id = stream.slice(keyStream('').length)
  return stream.startsWith(keyStream('')) && keyIdSchema.safeParse(id).success ? id : null
}

/** Applies an event that the subscription delivered. */
const hear = (keys: Keys, recorded: RecordedEvent): void => {
  const { stream: name, revision } = recorded
  const keyId = keyIdOf(name)
  if (keyId === null) return
  keys.named.add(keyId)
  keys.missing.delete(keyId)
  const loading = keys.loading.get(keyId)
  if (loading !== undefined) loading.heard = Math.max(loading.heard, revision)
  const stream = keys.known.peek(keyId)
  // The event can be the revocation that resolves the doubt about a key that is no longer in memory.
  if (stream === undefined && (keys.unreadable.has(keyId) || keys.parked.has(keyId)))
    return void lookAhead(keys, keyId)
  if (stream === undefined || revision <= stream.revision) return
  // There is a gap, so the stream is read again when the key is next used.
  if (revision > stream.revision + 1) return void keys.known.delete(keyId)
  keep(keys, keyId, foldRecorded(stream, recorded))
}

const keep = (keys: Keys, keyId: string, stream: KeyStream): FoundKey => {
  const { known, unreadable, logger } = keys
  const found = foundOf(stream)
  known.set(keyId, { ...stream, found })
  if (stream.revoked && keys.parked.has(keyId))
    keys.parkedAndRevoked = new Set([...keys.parkedAndRevoked, keyId])
  if (!isInDoubt(stream)) unreadable.delete(keyId)
  else if (!unreadable.has(keyId)) {
    unreadable.add(keyId)
    logger.fatal(
      { stream: keyStream(keyId), revision: stream.unreadableAt },
      "an event of an API key's stream is missing or cannot be read, so the key is refused; restore the event log, install a release that can read it, or revoke the key",
    )
  }
  return found
}

/** Reads the key's stream, once for all concurrent callers and for at most `readMaxMs`. */
const look = (keys: Keys, keyId: string): Promise<FoundKey> => {
  const underWay = keys.loading.get(keyId)
  if (underWay !== undefined) return underWay.found
  const own: Loading = { heard: -1, over: false, found: Promise.resolve(undefined) }
  keys.loading.set(keyId, own)
  own.found = within(load(keys, keyId, own), { waitMs: readMaxMs }, tooLate).finally(() => {
    own.over = true
    keys.loading.delete(keyId)
  })
  return own.found
}

/** Reads a key with an unreadable event, so that the fault is logged even if the key is not used. */
const lookAhead = async (keys: Keys, keyId: string): Promise<void> => {
  if (keys.known.has(keyId)) return
  await look(keys, keyId).catch((error: unknown) =>
    keys.logger.error(
      { err: error, stream: keyStream(keyId) },
      "an API key's stream could not be read; it is read again when the key is used",
    ),
  )
}

const load = async (keys: Keys, keyId: string, own: Loading): Promise<FoundKey> => {
  const { eventLog, known, missing } = keys
  let stream = await readKeyStream(eventLog, keyId, known.get(keyId))
  // Reads again if events were delivered during the read. Each read continues after the previous one, so the loop ends.
  while (own.heard > stream.revision && !own.over) stream = await readKeyStream(eventLog, keyId, stream)
  // The read took too long, so events may have been delivered since.
  if (own.over) throw new Unavailable(`reading ${keyStream(keyId)} took too long`)
  if (stream.revision === -1) {
    missing.set(keyId, true)
    return undefined
  }
  // The subscription can have delivered newer events than those in this read.
  const now = known.get(keyId)
  return now !== undefined && now.revision >= stream.revision ? now.found : keep(keys, keyId, stream)
}

const tooLate = (): never => {
  throw new Unavailable(`the stream of an API key could not be read within ${readMaxMs} ms`)
}

const foundOf = (stream: KeyStream): FoundKey => {
  if (isInDoubt(stream)) return 'in_doubt'
  const { state, ended } = stream
  return state === undefined
    ? undefined
    : {
        ...state,
        // A revocation takes effect when it is delivered, regardless of the clock on the host that revoked the key.
        endsAtMs: ended ? Number.NEGATIVE_INFINITY : endsAtMs(state),
        allowed: state.allowedCidrs.length === 0 ? null : allowList(state.allowedCidrs),
      }
}

/** Whether the key can be used from an address. */
export const mayCallFrom = (key: DirectoryKey, address: string): boolean =>
  key.allowed === null || isAllowed(key.allowed, address)

/** Allows `burst` uses in a row, and `perSecond` uses per second in the long run. */
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
