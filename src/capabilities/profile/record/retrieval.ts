import { randomUUID } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import { afterMs, within } from '../../../concurrency/deadline.ts'
import type {
  AskOptions,
  ProfileIds,
  ProfileProvider,
  ProfileRef,
  ProviderAnswer,
} from '../sources/provider.ts'
import { type CacheParts, readCache } from './cache.ts'
import type { FetchClaims } from './claims.ts'
import { cachedAgeMaxMs, freshAgeMaxMs } from './freshness.ts'
import { createLookUps } from './look-ups.ts'
import { type RecordingParts, recordAbsent, recordFound } from './recording.ts'
import { type Asked, askedFor, type Retrieved, retryAfterSeconds, unavailable } from './retrieved.ts'
import { createSharedFetches, type SharedFetchLimits, sharedFetchLimits } from './shared-fetches.ts'
import { findAlias, idsOf, knownAliases } from './subjects.ts'

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

type FetchParts = RecordingParts &
  CacheParts & {
    readonly claims: FetchClaims
    readonly provider: ProfileProvider
    readonly limits: FetchLimits
  }

type FetchLimits = typeof fetchLimits
const fetchLimits = {
  /** The maximum wait of a caller. After this time, the caller must try again later, and the fetch continues for the cache. */
  answerMaxMs: 8_000,
  claimPauseMs: 50,
  /** The maximum time for which a fetch waits until its result can be read back. */
  visibleMaxMs: 2_000,
}

/**
 * Asks the provider for a person and records the answer. One process fetches; all other processes read its result. `settle` is called once with
 * the result; the claim is kept until the result can be read back.
 */
const fetchClaimed = async (
  parts: FetchParts,
  { asked, wants }: { asked: Asked; wants: 'cached' | 'fresh' },
  settle: (result: Retrieved) => void,
): Promise<void> => {
  const deadlineMs = performance.now() + parts.limits.answerMaxMs
  const claim = asked.hmac
  const holder = randomUUID()
  if (!(await takeClaim(parts, { claim, holder, deadlineMs })))
    return settle(unavailable(retryAfterSeconds.late))
  try {
    // Another process may have fetched between our check and our claim.
    const { served, subjectId } = await readCache(parts, asked, wants)
    if (served !== null) return settle(served)
    const fetched = await askAndRecord(parts, asked, { subjectId, deadlineMs, wants })
    settle(fetched.result)
    if (fetched.changed) await untilVisible(parts, asked.hmac, fetched.atMs)
  } finally {
    await parts.claims.release(claim, holder).catch((error: unknown) => {
      parts.logger.warn({ err: error }, 'a claim on a profile could not be released, and will expire')
    })
  }
}

const takeClaim = async (
  { claims, limits }: FetchParts,
  { claim, holder, deadlineMs }: { claim: string; holder: string; deadlineMs: number },
): Promise<boolean> => {
  let claimed = await claims.take(claim, holder)
  while (!claimed && performance.now() < deadlineMs) {
    await sleep(limits.claimPauseMs)
    claimed = await claims.take(claim, holder)
  }
  return claimed
}

/** `changed` is true if an event was recorded. */
const askAndRecord = async (
  parts: FetchParts,
  asked: Asked,
  options: { subjectId: string | null; deadlineMs: number; wants: 'cached' | 'fresh' },
): Promise<{ result: Retrieved; changed: boolean; atMs: number }> => {
  const { subjectId, deadlineMs, wants } = options
  const known = subjectId === null ? [] : await knownAliases(parts, subjectId)
  const answer = await askFor(parts.provider, asked.ref, {
    deadlineMs,
    ageMaxMs: wants === 'fresh' ? freshAgeMaxMs : cachedAgeMaxMs,
    idsOf: () => idsOf(parts, asked.hmac),
  })
  const atMs = parts.clock.now()
  const context = { subjectId, known, provider: parts.provider.name, atMs }
  switch (answer.kind) {
    case 'found':
      return { result: await recordFound(parts, asked, answer, context), changed: true, atMs }
    case 'gone':
    case 'not_found':
    case 'inaccessible':
      return { result: await recordAbsent(parts, asked, answer.kind, context), changed: true, atMs }
    case 'unsupported':
      return { result: { kind: 'missing' }, changed: false, atMs }
    case 'rate_limited':
    case 'transient':
    case 'malformed':
      return { result: unanswered(parts, answer), changed: false, atMs }
  }
}

const unanswered = (
  { logger }: FetchParts,
  answer: Extract<ProviderAnswer, { kind: 'rate_limited' | 'transient' | 'malformed' }>,
): Retrieved => {
  if (answer.kind !== 'rate_limited')
    logger.warn({ detail: answer.detail }, `profile provider: ${answer.kind}`)
  // Uses the time stated by the source, because a caller who tries again earlier gets the same answer.
  const seconds = answer.kind === 'malformed' ? null : answer.retryAfterSeconds
  return unavailable(seconds ?? retryAfterSeconds.failed)
}

/** Waits until the projection contains the new event. Otherwise, the next caller would fetch again. */
const untilVisible = async (parts: FetchParts, hmac: string, atMs: number): Promise<void> => {
  const untilMs = performance.now() + parts.limits.visibleMaxMs
  while (performance.now() < untilMs) {
    const row = await findAlias(parts, hmac)
    const seen = [row?.fetched_at, row?.missed_at, row?.gone_at].map((at) => at?.getTime() ?? 0)
    if (Math.max(...seen) >= atMs) return
    await sleep(parts.limits.claimPauseMs)
  }
}

/**
 * Asks a provider for a person by any supported identifier. A person who is not found under one identifier is not necessarily deleted,
 * because names change, and some sources cannot be asked by number.
 */

type Ask = (ref: ProfileRef) => Promise<ProviderAnswer>

const failed = ({ kind }: ProviderAnswer): boolean =>
  kind === 'transient' || kind === 'rate_limited' || kind === 'malformed'

/** `idsOf` returns the identifiers last received for the person of `ref`; null if they are unknown or unreadable. */
const askFor = async (
  provider: Pick<ProfileProvider, 'fetch'>,
  ref: ProfileRef,
  { idsOf, ...options }: AskOptions & { idsOf: () => Promise<ProfileIds | null> },
): Promise<ProviderAnswer> => {
  const ask: Ask = (one) => provider.fetch(one, options)
  const first = await ask(ref)
  if (first.kind === 'unsupported') return (await askByOther(ask, ref, await idsOf())) ?? first
  if (first.kind !== 'not_found' || ref.kind !== 'lid') return first
  const number = (await idsOf())?.urn ?? null
  return number === null ? first : askByNumber(ask, number, first)
}

const askByOther = async (
  ask: Ask,
  ref: ProfileRef,
  ids: ProfileIds | null,
): Promise<ProviderAnswer | null> => {
  if (ids === null) return null
  if (ref.kind === 'urn') return ask({ kind: 'lid', value: ids.lid })
  return ids.urn === null ? null : ask({ kind: 'urn', value: ids.urn })
}

/** Asks by number after no person was found by name. The person may have changed the name, but numbers never change. */
const askByNumber = async (ask: Ask, number: string, first: ProviderAnswer): Promise<ProviderAnswer> => {
  const answer = await ask({ kind: 'urn', value: number })
  if (answer.kind === 'found') return answer.ids.urn === number ? { ...answer, redirected: true } : first
  return failed(answer) || answer.kind === 'gone' ? answer : first
}
