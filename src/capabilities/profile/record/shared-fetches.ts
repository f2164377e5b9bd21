import type { Logger } from 'pino'
import type { After } from '../../../concurrency/deadline.ts'
import { FairPlaces } from '../../../concurrency/fair-places.ts'
import { type Asked, type Retrieved, retryAfterSeconds, unavailable } from './retrieved.ts'

/**
 * Callers of one process who request the same person at the same time share one fetch. The number of concurrent fetches is limited, with fair
 * shares for organizations. A caller who would wait too long must try again later.
 */
type SharedFetches = {
  /** The result of the running fetch, or of a new one, which counts towards the organization's share. */
  result(asked: Asked, wants: 'cached' | 'fresh', organizationId: string): Promise<Retrieved>
  /**
   * The result of a fetch that is not in the cache yet; null if there is none. The result counts as cached, because it existed before this
   * caller's request.
   */
  leftUnread(asked: Asked): Retrieved | null
  settled(): Promise<void>
}

type SharedFetchesOptions = {
  /** Calls `settle` with the result, and resolves when the cache contains it. */
  readonly fetch: (
    request: { asked: Asked; wants: 'cached' | 'fresh' },
    settle: (result: Retrieved) => void,
  ) => Promise<void>
  readonly limits: SharedFetchLimits
  readonly clock: { now(): number }
  readonly after: After
  readonly logger: Logger
}

export type SharedFetchLimits = typeof sharedFetchLimits
export const sharedFetchLimits = {
  fetchesMax: 100,
  /** The maximum number of waiting fetches; further callers must try again later. */
  waitingMax: 400,
  waitMaxMs: 2_000,
}

type Fetch = {
  readonly result: Promise<Retrieved>
  /** Resolves when the cache contains the result. */
  readonly done: Promise<void>
  /** The result and its time; null until the fetch has a result. */
  settled: { readonly left: Retrieved; readonly atMs: number } | null
}

export const createSharedFetches = (options: SharedFetchesOptions): SharedFetches => {
  const { limits, clock, after } = options
  const { fetchesMax, waitingMax, waitMaxMs } = limits
  const places = new FairPlaces({ placesMax: fetchesMax, waitingMax, waitMaxMs }, after)
  const fetches = new Map<string, Fetch>()

  // A failed fetch is not shared, because it may still be releasing its claim.
  const underWay = (asked: Asked, wants: 'cached' | 'fresh'): Fetch | undefined =>
    [keyOf(asked, 'fresh'), keyOf(asked, wants)]
      .map((key) => fetches.get(key))
      .find((fetch) => fetch !== undefined && fetch.settled?.left.kind !== 'unavailable')

  const join = (asked: Asked, wants: 'cached' | 'fresh', party: string): Fetch => {
    const running = underWay(asked, wants)
    if (running !== undefined) return running
    const key = keyOf(asked, wants)
    const inTurn = { ...options, fetch: inPlace(options.fetch, places, party) }
    const fetch = begin(inTurn, { asked, wants }, () => {
      if (fetches.get(key) === fetch) fetches.delete(key)
    })
    fetches.set(key, fetch)
    return fetch
  }

  return {
    result: (asked, wants, organizationId) => join(asked, wants, organizationId).result,
    leftUnread: (asked) => {
      const { left, atMs } = underWay(asked, 'cached')?.settled ?? {}
      if (left?.kind !== 'found' || atMs === undefined) return null
      const sinceMs = Math.max(0, clock.now() - atMs)
      return { ...left, source: 'cached', ageMs: left.ageMs + sinceMs }
    },
    settled: async () => {
      await Promise.all([...fetches.values()].map(({ done }) => done.catch(() => undefined)))
    },
  }
}

/** Runs a fetch when fewer than the maximum are running. A fetch no longer counts when its result has arrived. */
const inPlace =
  (fetch: SharedFetchesOptions['fetch'], places: FairPlaces, party: string): SharedFetchesOptions['fetch'] =>
  async (request, settle) => {
    const place = await places.take(party)
    if (typeof place === 'string') return settle(unavailable(retryAfterSeconds.busy))
    try {
      await fetch(request, (result) => {
        place()
        settle(result)
      })
    } finally {
      place()
    }
  }

/** The key contains the identifier and not the person, because the identifier may turn out to have a new owner. */
const keyOf = ({ hmac }: Asked, wants: 'cached' | 'fresh'): string => `${hmac} ${wants}`

/** Starts a fetch. If it fails, all its callers get the failure. */
const begin = (
  { fetch, clock, logger }: SharedFetchesOptions,
  request: { asked: Asked; wants: 'cached' | 'fresh' },
  ended: () => void,
): Fetch => {
  const result = Promise.withResolvers<Retrieved>()
  const done = fetch(request, result.resolve)
    .catch((error: unknown) => result.reject(error))
    .finally(ended)
  const begun: Fetch = { result: result.promise, done, settled: null }
  result.promise.then(
    (left) => {
      begun.settled = { left, atMs: clock.now() }
    },
    // The failure is logged here, because no caller may be waiting any more.
    (error: unknown) => logger.warn({ err: error }, 'a profile could not be fetched'),
  )
  return begun
}
