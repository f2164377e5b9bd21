import { afterMs, within } from '../../../concurrency/deadline.ts'
import type { ProfileProvider, ProfileRef } from '../sources/provider.ts'
import { readCache } from './cache.ts'
import { type FetchLimits, type FetchParts, fetchClaimed, fetchLimits } from './claimed-fetch.ts'
import type { FetchClaims } from './claims.ts'
import { createLookUps } from './look-ups.ts'
import type { RecordingParts } from './recording.ts'
import { askedFor, type Retrieved, retryAfterSeconds, unavailable } from './retrieved.ts'
import { createSharedFetches, type SharedFetchLimits, sharedFetchLimits } from './shared-fetches.ts'

/**
 * Reads a profile from the cache if it is recent enough. Otherwise, asks a provider, once for all callers in all processes who wait for the
 * same person.
 */

type RetrievalParts = RecordingParts & {
  readonly claims: FetchClaims
  readonly provider: ProfileProvider
  readonly limits?: Partial<FetchLimits & SharedFetchLimits>
}

export type Retrieval = {
  /**
   * `beforeUpstream` is awaited before a provider is asked for this caller. If its result is not null, the result is returned and no provider
   * is asked.
   */
  retrieve<Stopped>(
    ref: ProfileRef,
    options: {
      wants: 'cached' | 'fresh'
      organizationId: string
      beforeUpstream: () => Promise<Stopped | null>
      /** If false, only cached data is returned, and no provider is asked. */
      upstream?: boolean
    },
  ): Promise<Retrieved | Stopped>
  /** Waits for fetches that have no waiting callers. */
  close(): Promise<void>
}

export const createRetrieval = (parts: RetrievalParts): Retrieval => {
  const { clock, logger } = parts
  const limits = { ...fetchLimits, ...sharedFetchLimits, ...parts.limits }
  const fetchParts: FetchParts = { ...parts, limits, lookUps: createLookUps(parts.pool) }
  const fetches = createSharedFetches({
    fetch: (request, settle) => fetchClaimed(fetchParts, request, settle),
    limits,
    clock,
    after: afterMs,
    logger,
  })
  return {
    retrieve: async (ref, { wants, organizationId, beforeUpstream, upstream = true }) => {
      const asked = askedFor(ref, parts.identifierHmac)
      const { served } = await readCache(fetchParts, asked, wants)
      if (served !== null) return served
      const left = wants === 'cached' ? fetches.leftUnread(asked) : null
      if (left !== null) return left
      if (!upstream) return late
      const stopped = await beforeUpstream()
      if (stopped !== null) return stopped
      const result = fetches.result(asked, wants, organizationId)
      const retrieved = await within(result, { waitMs: limits.answerMaxMs }, () => late)
      // If the source has no current data, older data must not be returned as fresh.
      return retrieved.kind === 'found' && wants === 'fresh' && retrieved.source !== 'fresh'
        ? unavailable(retryAfterSeconds.failed)
        : retrieved
    },
    close: fetches.settled,
  }
}

const late = unavailable(retryAfterSeconds.late)
