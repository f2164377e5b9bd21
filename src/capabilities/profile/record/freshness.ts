import type { ProfileAliasRow } from '../../../../projections/profile-cache.ts'

/**
 * Decides which known data may be served, and for how long (Spec §4.3, §8; decision 20). Pure: rows and time in, judgement
 * out. Data that is too old is never served, not even if no newer data is available.
 */

const hourMs = 3_600_000
const dayMs = 24 * hourMs

/** Spec §8: cached data is at most 30 days old. */
export const cachedAgeMaxMs = 720 * hourMs
/** A fetch this recent is still "no more than a minute old" when its answer arrives (decision 20). */
const freshReuseMaxMs = 55_000
/** Spec §8: the source itself may have seen its current data this long ago. */
export const freshAgeMaxMs = 60_000
/** A result "no person found" is believed this long if the caller accepts cached answers. */
const missMaxMs = 24 * hourMs
/** Identifiers change hands: an identifier not confirmed for this long leads nowhere. */
export const aliasAgeMaxMs = 30 * dayMs

export type Known =
  | {
      readonly kind: 'data'
      readonly subjectId: string
      readonly keyId: string
      readonly sealed: string
      readonly observedAtMs: number
    }
  | { readonly kind: 'deleted'; readonly subjectId: string; readonly goneAtMs: number }
  | { readonly kind: 'missing' }
  /** Nothing that may be served. `subjectId` is the person the identifier belonged to until now. */
  | { readonly kind: 'fetch'; readonly subjectId: string | null }

/** `wants`: `cached` accepts data up to 30 days old, `fresh` only data fetched a moment ago. */
export const judge = (row: ProfileAliasRow | undefined, nowMs: number, wants: 'cached' | 'fresh'): Known => {
  if (row === undefined) return { kind: 'fetch', subjectId: null }
  const subjectId = row.subject_id
  const since = (at: Date | null): number => (at === null ? Number.POSITIVE_INFINITY : nowMs - at.getTime())
  if (row.missed_at !== null)
    return since(row.missed_at) <= (wants === 'cached' ? missMaxMs : freshReuseMaxMs)
      ? { kind: 'missing' }
      : { kind: 'fetch', subjectId: since(row.verified_at) <= aliasAgeMaxMs ? subjectId : null }
  if (since(row.verified_at) > aliasAgeMaxMs) return { kind: 'fetch', subjectId: null }
  // If a source no longer finds a person, it may be a mistake; if it states that the person is deleted, it is not.
  const goneMaxMs = row.gone_reason === 'gone' ? cachedAgeMaxMs : missMaxMs
  if (row.gone_at !== null)
    return since(row.gone_at) <= (wants === 'cached' ? goneMaxMs : freshReuseMaxMs)
      ? { kind: 'deleted', subjectId, goneAtMs: row.gone_at.getTime() }
      : { kind: 'fetch', subjectId }
  const { key_id: keyId, sealed, observed_at: observedAt } = row
  if (keyId === null || sealed === null || observedAt === null) return { kind: 'fetch', subjectId }
  const ageMs = since(observedAt)
  const serves =
    wants === 'cached'
      ? ageMs <= cachedAgeMaxMs
      : // Our knowledge of who has the name now must be as fresh as the data.
        since(row.verified_at) <= freshReuseMaxMs &&
        since(row.fetched_at) <= freshReuseMaxMs &&
        ageMs <= freshAgeMaxMs
  return serves
    ? {
        kind: 'data',
        subjectId,
        keyId,
        sealed,
        observedAtMs: observedAt.getTime(),
      }
    : { kind: 'fetch', subjectId }
}
