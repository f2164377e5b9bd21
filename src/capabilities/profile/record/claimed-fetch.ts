import { randomUUID } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import { askFor } from '../sources/asking.ts'
import type { ProfileProvider, ProviderAnswer } from '../sources/provider.ts'
import { type CacheParts, readCache } from './cache.ts'
import type { FetchClaims } from './claims.ts'
import { cachedAgeMaxMs, freshAgeMaxMs } from './freshness.ts'
import { type RecordingParts, recordAbsent, recordFound } from './recording.ts'
import { type Asked, type Retrieved, retryAfterSeconds, unavailable } from './retrieved.ts'
import { findAlias, idsOf, knownAliases } from './subjects.ts'

export type FetchParts = RecordingParts &
  CacheParts & {
    readonly claims: FetchClaims
    readonly provider: ProfileProvider
    readonly limits: FetchLimits
  }

export type FetchLimits = typeof fetchLimits
export const fetchLimits = {
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
export const fetchClaimed = async (
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
