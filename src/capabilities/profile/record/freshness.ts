import type { ProfileAliasRow } from '../../../../projections/profile-cache.ts'

/**
 * Decides which known data can be returned (Spec §4.3, §8; decision 20). Data that is too old is never returned, even if there is no newer
 * data. Pure.
 */

const hourMs = 3_600_000
const dayMs = 24 * hourMs

/** Spec §8: cached data is at most 30 days old. */
export const cachedAgeMaxMs = 720 * hourMs
/** Data fetched this recently is at most a minute old when the answer arrives (decision 20). */
const freshReuseMaxMs = 55_000
/** How far a reader's clock may be behind the clock that dated the data. Both together are the minute that the specification allows. */
const behindMaxMs = 5_000
/** Spec §8: the source itself saw "fresh" data at most this long ago. */
export const freshAgeMaxMs = 60_000
/** The time for which a result without a person is valid for callers who accept cached answers. */
const missMaxMs = 24 * hourMs
/** An identifier can pass to another person, so it is used only if its owner was confirmed within this time. */
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
  /** There is nothing to serve. `subjectId` is the identifier's last known owner. */
  | { readonly kind: 'fetch'; readonly subjectId: string | null }

/** `cached` accepts data up to 30 days old, `fresh` only data fetched a moment ago. */
export const judge = (row: ProfileAliasRow | undefined, nowMs: number, wants: 'cached' | 'fresh'): Known => {
  if (row === undefined) return { kind: 'fetch', subjectId: null }
  const subjectId = row.subject_id
  const since = (at: Date | null): number => (at === null ? Number.POSITIVE_INFINITY : nowMs - at.getTime())
  /** If the clock was set back, the age of data from before that is unknown, so the data are not fresh. */
  const isFresh = (at: Date | null): boolean => since(at) <= freshReuseMaxMs && since(at) >= -behindMaxMs
  const isValid = (at: Date, maxMs: number): boolean =>
    wants === 'cached' ? since(at) <= maxMs : isFresh(at)
  if (row.missed_at !== null)
    return isValid(row.missed_at, missMaxMs)
      ? { kind: 'missing' }
      : { kind: 'fetch', subjectId: since(row.verified_at) <= aliasAgeMaxMs ? subjectId : null }
  if (since(row.verified_at) > aliasAgeMaxMs) return { kind: 'fetch', subjectId: null }
  // A source that does not find a person may be mistaken, but a report that the person was deleted is reliable.
  const goneMaxMs = row.gone_reason === 'gone' ? cachedAgeMaxMs : missMaxMs
  if (row.gone_at !== null)
    return isValid(row.gone_at, goneMaxMs)
      ? { kind: 'deleted', subjectId, goneAtMs: row.gone_at.getTime() }
      : { kind: 'fetch', subjectId }
  const { key_id: keyId, sealed, observed_at: observedAt } = row
  if (keyId === null || sealed === null || observedAt === null) return { kind: 'fetch', subjectId }
  const ageMs = since(observedAt)
  const serves =
    wants === 'cached'
      ? ageMs <= cachedAgeMaxMs
      : // The identifier's owner must have been confirmed as recently as the data.
        isFresh(row.verified_at) && isFresh(row.fetched_at) && ageMs <= freshAgeMaxMs
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
