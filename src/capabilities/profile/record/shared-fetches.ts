import type { Logger } from 'pino'
import { type Asked, type Retrieved, retryAfterSeconds, unavailable } from './retrieved.ts'

/** The fetches of this process: callers who ask for the same person at the same time wait for one of them. */
type SharedFetches = {
  /** The result of the fetch under way, or of a new one. */
  result(asked: Asked, wants: 'cached' | 'fresh'): Promise<Retrieved>
  /**
   * What a fetch has left that cannot be read back yet: it was there before this caller came, so it is cached data, as it
   * will be in a moment. Null while there is none.
   */
  leftUnread(asked: Asked): Promise<Retrieved | null>
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
  readonly logger: Logger
}

export type SharedFetchLimits = typeof sharedFetchLimits
export const sharedFetchLimits = {
  /** Providers asked at once by this process; one more is told to come back. */
  fetchesMax: 100,
  /** Of those, for refreshing what is served from the cache meanwhile. */
  refreshesMax: 10,
}

type Fetch = {
  readonly result: Promise<Retrieved>
  /** The result can be read back. */
  readonly done: Promise<void>
  /** When it had its result; null before. */
  settledAtMs: number | null
}

export const createSharedFetches = (options: SharedFetchesOptions): SharedFetches => {
  const { limits, clock } = options
  const fetches = new Map<string, Fetch>()
  let refreshing = 0

  const underWay = (asked: Asked, wants: 'cached' | 'fresh'): Fetch | undefined =>
    fetches.get(keyOf(asked, 'fresh')) ?? fetches.get(keyOf(asked, wants))

  const join = (asked: Asked, wants: 'cached' | 'fresh'): Fetch => {
    const running = underWay(asked, wants)
    if (running !== undefined) return running
    if (fetches.size >= limits.fetchesMax) {
      const busy = unavailable(retryAfterSeconds.busy)
      return { result: Promise.resolve(busy), done: Promise.resolve(), settledAtMs: null }
    }
    const key = keyOf(asked, wants)
    const fetch = begin(options, { asked, wants }, () => fetches.delete(key))
    fetches.set(key, fetch)
    return fetch
  }

  return {
    result: (asked, wants) => join(asked, wants).result,
    leftUnread: async (asked) => {
      const fetch = underWay(asked, 'cached')
      if (fetch === undefined || fetch.settledAtMs === null) return null
      const left = await fetch.result
      if (left.kind !== 'found') return null
      const sinceMs = Math.max(0, clock.now() - fetch.settledAtMs)
      return { ...left, source: 'cached', ageMs: left.ageMs + sinceMs }
    },
    refresh: (asked) => {
      if (refreshing >= limits.refreshesMax) return
      refreshing += 1
      void join(asked, 'fresh')
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
  const begun: Fetch = { result: result.promise, done, settledAtMs: null }
  result.promise.then(
    () => {
      begun.settledAtMs = clock.now()
    },
    // It may be that no caller waits any more.
    (error: unknown) => logger.warn({ err: error }, 'a profile could not be fetched'),
  )
  return begun
}
