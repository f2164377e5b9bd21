import { upstreamUnavailable } from '../../call/errors.ts'
import type { CallDecision } from '../../call/form.ts'
import { noData, type ProfileRequest, type ProfileResult, profileNotFound, resultOf } from './contract.ts'
import type { Retrieved } from './record/retrieved.ts'

export type ProfileFindings = {
  readonly retrieved: Retrieved
  readonly urlOf: (lid: string) => string
}

const hourMs = 3_600_000

/** Hours with two decimals, rounded down, so that the highest value is 720.00. */
const hoursOf = (ageMs: number): number => Math.floor((ageMs / hourMs) * 100) / 100

/** Answers with data, with `deleted: true` or with `PROFNET_002` (Spec §2.4, §4.3). `cached` appears only with cached data (decision 20). */
export const decide = (
  { retrieved, urlOf }: ProfileFindings,
  { ref, id }: ProfileRequest,
): CallDecision<ProfileResult> => {
  switch (retrieved.kind) {
    case 'missing':
      return { refusal: profileNotFound(id) }
    case 'unavailable':
      return { refusal: upstreamUnavailable(retrieved.retryAfterSeconds) }
    case 'deleted': {
      const lid = ref.kind === 'lid' ? ref.value : null
      return {
        result: resultOf(noData, { lid, url: lid === null ? null : urlOf(lid), deleted: true }),
        facts: factsOf('deleted', retrieved),
      }
    }
    case 'found': {
      const { source, ageMs, ids, data } = retrieved
      return {
        result: resultOf(data, { lid: ids.lid, url: urlOf(ids.lid), deleted: false }),
        facts: factsOf(source, retrieved),
        ...(source === 'cached' ? { beside: { cached: true, cache_age_hours: hoursOf(ageMs) } } : {}),
      }
    }
  }
}

const factsOf = (
  source: 'cached' | 'fresh' | 'deleted',
  { ageMs, subjectId }: { ageMs: number; subjectId: string },
) => ({
  kind: 'profile' as const,
  source,
  age_seconds: Math.floor(ageMs / 1_000),
  subject_id: subjectId,
})
