import { randomUUID } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import { within } from '../../../concurrency/deadline.ts'
import { askFor } from '../sources/asking.ts'
import type { ProfileProvider, ProfileRef, ProviderAnswer } from '../sources/provider.ts'
import type { Claims } from './claims.ts'
import { cachedAgeMaxMs, freshAgeMaxMs, judge, type Known } from './freshness.ts'
import { createLookUps } from './look-ups.ts'
import { type RecordingParts, recordAbsent, recordFound } from './recording.ts'
import type { Asked, Payload, Retrieved } from './retrieved.ts'
import { findAlias, idsOf, knownAliases } from './subjects.ts'

/**
 * Where a profile comes from: the cache while it is young enough, else a provider, asked once for everybody who waits
 * for the same person, in this process and in the others.
 */

type RetrievalParts = RecordingParts & {
  readonly claims: Claims
  readonly provider: ProfileProvider
  readonly limits?: Partial<RetrievalLimits>
}

type RetrievalLimits = typeof retrievalLimits
const retrievalLimits = {
  /** From asking to answering: past it the caller is told to come back, and the fetch goes on into the cache. */
  answerMaxMs: 8_000,
  /** Providers asked at once by this process; one more is told to come back. */
  fetchesMax: 100,
  /** Of those, for refreshing what is served from the cache meanwhile. */
  refreshesMax: 10,
  /** How often a process looks whether another one's fetch is done. */
  claimPauseMs: 50,
  /** How long a fetch waits until its own result can be read back. */
  visibleMaxMs: 2_000,
}

export type Retrieval = {
  /**
   * `beforeUpstream` is awaited before a provider is asked on this caller's behalf. What it returns other than null is returned, and
   * no provider is asked for this caller.
   */
  retrieve<Stopped>(
    ref: ProfileRef,
    options: {
      wants: 'cached' | 'fresh'
      beforeUpstream: () => Promise<Stopped | null>
      /** False: what is cached or nothing; the provider is not asked, not even behind the answer. */
      upstream?: boolean
    },
  ): Promise<Retrieved | Stopped>
  /** Waits for fetches that no caller waits for any more. */
  close(): Promise<void>
}

const retryAfterSeconds = { late: 2, busy: 1, failed: 5 } as const

/** A fetch everybody who asks for the same person waits for, until its result can be read back. */
type Fetch = {
  readonly result: Promise<Retrieved>
  readonly done: Promise<void>
  /** When it had its result; null before. */
  settledAtMs: number | null
}

export const createRetrieval = (parts: RetrievalParts): Retrieval => {
  const { vault, clock, logger } = parts
  const lookUps = createLookUps(parts.pool)
  const limits: RetrievalLimits = { ...retrievalLimits, ...parts.limits }
  const fetches = new Map<string, Fetch>()
  let refreshing = 0

  /** What is known, opened; null: a provider has to be asked. */
  const served = (known: Known, sealedKey: string | null): Retrieved | null => {
    if (known.kind === 'missing') return { kind: 'missing' }
    if (known.kind === 'deleted')
      return { kind: 'deleted', subjectId: known.subjectId, ageMs: ageOf(known.goneAtMs) }
    if (known.kind === 'fetch') return null
    const text = vault.openWith(sealedKey, known)
    if (text === null) return null
    const { ids, data } = JSON.parse(text) as Payload
    return {
      kind: 'found',
      source: 'cached',
      ageMs: ageOf(known.observedAtMs),
      subjectId: known.subjectId,
      ids,
      data,
    }
  }

  const ageOf = (atMs: number): number => Math.max(0, clock.now() - atMs)

  /** By identifier: whose it is now is part of what is asked. */
  const keyOf = ({ hmac }: Asked, mode: 'cached' | 'fresh'): string => `${hmac} ${mode}`

  const underWay = (asked: Asked, wants: 'cached' | 'fresh'): Fetch | undefined =>
    fetches.get(keyOf(asked, 'fresh')) ?? fetches.get(keyOf(asked, wants))

  /**
   * What a fetch has left that cannot be read back yet: it was there before this caller came, so it is cached data, as it
   * will be in a moment. Null while there is none.
   */
  const leftUnread = async (asked: Asked): Promise<Retrieved | null> => {
    const fetch = underWay(asked, 'cached')
    if (fetch === undefined || fetch.settledAtMs === null) return null
    const left = await fetch.result
    return left.kind === 'found'
      ? { ...left, source: 'cached', ageMs: left.ageMs + ageOf(fetch.settledAtMs) }
      : null
  }

  /** Joins the fetch under way, or begins one. */
  const fetchShared = (asked: Asked, wants: 'cached' | 'fresh'): Fetch => {
    const key = keyOf(asked, wants)
    const running = underWay(asked, wants)
    if (running !== undefined) return running
    if (fetches.size >= limits.fetchesMax) {
      const busy: Retrieved = { kind: 'unavailable', retryAfterSeconds: retryAfterSeconds.busy }
      return { result: Promise.resolve(busy), done: Promise.resolve(), settledAtMs: null }
    }
    const result = Promise.withResolvers<Retrieved>()
    const done = fetchClaimed(asked, wants, result.resolve)
      .catch((error: unknown) => result.reject(error))
      .finally(() => fetches.delete(key))
    // It may be that no caller waits any more.
    result.promise.catch((error: unknown) => logger.warn({ err: error }, 'a profile could not be fetched'))
    const fetch: Fetch = { result: result.promise, done, settledAtMs: null }
    result.promise.then(
      () => {
        fetch.settledAtMs = clock.now()
      },
      () => undefined,
    )
    fetches.set(key, fetch)
    return fetch
  }

  /** One process fetches; the others look at what it left. The claim is kept until the result can be read back. */
  const fetchClaimed = async (
    asked: Asked,
    wants: 'cached' | 'fresh',
    settle: (result: Retrieved) => void,
  ): Promise<void> => {
    const deadlineMs = performance.now() + limits.answerMaxMs
    const claim = asked.hmac
    const holder = randomUUID()
    let claimed = await parts.claims.take(claim, holder)
    while (!claimed && performance.now() < deadlineMs) {
      await sleep(limits.claimPauseMs)
      claimed = await parts.claims.take(claim, holder)
    }
    if (!claimed) return settle({ kind: 'unavailable', retryAfterSeconds: retryAfterSeconds.late })
    try {
      // Somebody else may have fetched between our looking and our claim.
      const { suppressed, row, sealedKey } = await lookUps.of(asked.hmac)
      if (suppressed) return settle({ kind: 'missing' })
      const known = judge(row, clock.now(), wants)
      const left = served(known, sealedKey)
      if (left !== null) return settle(fresher(left, wants))
      const before = known.kind === 'fetch' || known.kind === 'data' ? known.subjectId : null
      const fetched = await askAndRecord(asked, before, { deadlineMs, wants })
      settle(fetched.result)
      if (fetched.changed) await visible(asked.hmac, fetched.atMs)
    } finally {
      await parts.claims.release(claim, holder).catch((error: unknown) => {
        logger.warn({ err: error }, 'a claim on a profile is left to run out')
      })
    }
  }

  /** Waits until the projection shows what was just recorded; without it the next caller would fetch again. */
  const visible = async (hmac: string, atMs: number): Promise<void> => {
    const untilMs = performance.now() + limits.visibleMaxMs
    while (performance.now() < untilMs) {
      const row = await findAlias(parts, hmac)
      const seen = [row?.fetched_at, row?.missed_at, row?.gone_at].map((at) => at?.getTime() ?? 0)
      if (Math.max(...seen) >= atMs) return
      await sleep(limits.claimPauseMs)
    }
  }

  const askAndRecord = async (
    asked: Asked,
    subjectId: string | null,
    { deadlineMs, wants }: { deadlineMs: number; wants: 'cached' | 'fresh' },
  ): Promise<{ result: Retrieved; changed: boolean; atMs: number }> => {
    const known = subjectId === null ? [] : await knownAliases(parts, subjectId)
    const answer = await askFor(parts.provider, asked.ref, {
      deadlineMs,
      ageMaxMs: wants === 'fresh' ? freshAgeMaxMs : cachedAgeMaxMs,
      signal: AbortSignal.timeout(Math.max(1, Math.ceil(deadlineMs - performance.now()))),
      idsOf: () => idsOf(parts, asked.hmac),
    })
    const atMs = clock.now()
    const context = { subjectId, known, provider: answer.provider ?? parts.provider.name, atMs }
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
        return { result: unanswered(answer), changed: false, atMs }
    }
  }

  const unanswered = (
    answer: Extract<ProviderAnswer, { kind: 'rate_limited' | 'transient' | 'malformed' }>,
  ): Retrieved => {
    if (answer.kind !== 'rate_limited')
      logger.warn({ detail: answer.detail }, `profile provider: ${answer.kind}`)
    // What the source says, as it says it: a caller who comes back earlier is told the same again.
    const seconds = answer.kind === 'malformed' ? null : answer.retryAfterSeconds
    return { kind: 'unavailable', retryAfterSeconds: seconds ?? retryAfterSeconds.failed }
  }

  const refresh = (asked: Asked): void => {
    if (refreshing >= limits.refreshesMax) return
    refreshing += 1
    void fetchShared(asked, 'fresh')
      .done.catch(() => undefined)
      .finally(() => {
        refreshing -= 1
      })
  }

  return {
    retrieve: async (ref, { wants, beforeUpstream, upstream = true }) => {
      const asked: Asked = { ref, hmac: parts.identifierHmac(`${ref.kind}:${ref.value}`) }
      const { suppressed, row, sealedKey } = await lookUps.of(asked.hmac)
      if (suppressed) return { kind: 'missing' }
      const known = judge(row, clock.now(), wants)
      const cached = served(known, sealedKey)
      if (cached !== null) {
        if (upstream && known.kind === 'data' && known.refresh) refresh(asked)
        return fresher(cached, wants)
      }
      const left = wants === 'cached' ? await leftUnread(asked) : null
      if (left !== null) return left
      if (!upstream) return late
      const stopped = await beforeUpstream()
      if (stopped !== null) return stopped
      const { result } = fetchShared(asked, wants)
      const retrieved = await within(result, { waitMs: limits.answerMaxMs }, () => late)
      // A source that has nothing current does not make what it has current.
      return retrieved.kind === 'found' && wants === 'fresh' && retrieved.source !== 'fresh'
        ? { kind: 'unavailable', retryAfterSeconds: retryAfterSeconds.failed }
        : retrieved
    },
    close: async () => {
      await Promise.all([...fetches.values()].map(({ done }) => done.catch(() => undefined)))
    },
  }
}

const late: Retrieved = { kind: 'unavailable', retryAfterSeconds: retryAfterSeconds.late }

/** What was fetched a moment ago is fresh for who asked for fresh data (decision 20). */
const fresher = (retrieved: Retrieved, wants: 'cached' | 'fresh'): Retrieved =>
  retrieved.kind === 'found' && wants === 'fresh' ? { ...retrieved, source: 'fresh' } : retrieved
