import type { Logger } from 'pino'
import type { After } from '../../../concurrency/deadline.ts'
import { FairPlaces } from '../../../concurrency/fair-places.ts'
import { type Asked, type Retrieved, retryAfterSeconds, unavailable } from './retrieved.ts'

/**
 * The fetches of this process: callers who ask for the same person at the same time wait for one of them. So many providers are
 * asked at once; organizations share that fairly, and who waits too long is told to come back.
 */
type SharedFetches = {
  /** The result of the fetch under way, or of a new one, which counts as the organization's. */
  result(asked: Asked, wants: 'cached' | 'fresh', organizationId: string): Promise<Retrieved>
  /**
   * What a fetch has left that cannot be read back yet: it was there before this caller came, so it is cached data, as it
   * will be in a moment. Null while there is none.
   */
  leftUnread(asked: Asked): Retrieved | null
  /** Fetches fresh data for the cache; does nothing while too many such fetches are under way. */
  refresh(asked: Asked): void
  /** Waits for the fetches under way. */
  settled(): Promise<void>
}

type SharedFetchesOptions = {
  /** Calls `settle` with the result, and resolves when the result can be read back. */
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
  /** Providers asked at once by this process. */
  fetchesMax: 100,
  /** Fetches that wait for that; one more is told to come back. */
  waitingMax: 400,
  waitMaxMs: 2_000,
  /** Of those, for refreshing what is served from the cache meanwhile. */
  refreshesMax: 10,
}

type Fetch = {
  readonly result: Promise<Retrieved>
  /** The result can be read back. */
  readonly done: Promise<void>
  /** Its result, and when it had it; null before. */
  settled: { readonly left: Retrieved; readonly atMs: number } | null
}

export const createSharedFetches = (options: SharedFetchesOptions): SharedFetches => {
  const { limits, clock, after } = options
  const { fetchesMax, waitingMax, waitMaxMs } = limits
  const places = new FairPlaces({ placesMax: fetchesMax, waitingMax, waitMaxMs }, after)
  const fetches = new Map<string, Fetch>()
  let refreshing = 0

  // One that came to nothing may still be letting go of its claim: who comes after it asks again.
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
    refresh: (asked) => {
      if (refreshing >= limits.refreshesMax) return
      refreshing += 1
      void join(asked, 'fresh', refreshes)
        .done.catch(() => undefined)
        .finally(() => {
          refreshing -= 1
        })
    },
    settled: async () => {
      await Promise.all([...fetches.values()].map(({ done }) => done.catch(() => undefined)))
    },
  }
}

/** No caller waits for them: all together they count as one more organization. */
const refreshes = 'refreshes'

/** The same fetch, once a place is free, which it gives back with its result. Whoever gets none is told to come back. */
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

/** By identifier: whose it is now is part of what is asked. */
const keyOf = ({ hmac }: Asked, wants: 'cached' | 'fresh'): string => `${hmac} ${wants}`

/** Starts a fetch. Its failure is that of all who wait for it. */
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
    // It may be that no caller waits any more.
    (error: unknown) => logger.warn({ err: error }, 'a profile could not be fetched'),
  )
  return begun
}
