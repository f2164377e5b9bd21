import type { ProfileAliasRow } from '../../../../projections/profile-cache.ts'

/**
 * What may be served from what is known, and for how long (Spec §4.3, §8; decision 20). Pure: rows and time in, judgement
 * out. Data too old are never served, not even when nothing newer can be had.
 */

const hourMs = 3_600_000
const dayMs = 24 * hourMs

/** Spec §8: cached data are at most 30 days old. */
export const cachedAgeMaxMs = 720 * hourMs
/** A fetch this recent is still "no more than a minute old" when its answer arrives (decision 20). */
const freshReuseMaxMs = 55_000
/** Spec §8: what a source calls current may have been seen by it this long ago. */
export const freshAgeMaxMs = 60_000
/** From this age on, cached data are served and fetched again behind the caller's back. */
const refreshAgeMs = 25 * dayMs
/** That no person was found is believed this long where cached answers will do. */
const missMaxMs = 24 * hourMs
/** Identifiers change hands: one not confirmed for this long leads nowhere. */
export const aliasAgeMaxMs = 30 * dayMs

export type Known =
  | {
      readonly kind: 'data'
      readonly subjectId: string
      readonly keyId: string
      readonly sealed: string
      readonly observedAtMs: number
      readonly refresh: boolean
    }
  | { readonly kind: 'deleted'; readonly subjectId: string; readonly goneAtMs: number }
  | { readonly kind: 'missing' }
  /** Nothing that may be served. `subjectId` is who the identifier belonged to until now. */
  | { readonly kind: 'fetch'; readonly subjectId: string | null }

/** `wants`: `cached` takes data up to 30 days old, `fresh` only what was fetched a moment ago. */
export const judge = (row: ProfileAliasRow | undefined, nowMs: number, wants: 'cached' | 'fresh'): Known => {
  if (row === undefined) return { kind: 'fetch', subjectId: null }
  const subjectId = row.subject_id
  const since = (at: Date | null): number => (at === null ? Number.POSITIVE_INFINITY : nowMs - at.getTime())
  if (row.missed_at !== null)
    return since(row.missed_at) <= (wants === 'cached' ? missMaxMs : freshReuseMaxMs)
      ? { kind: 'missing' }
      : { kind: 'fetch', subjectId: since(row.verified_at) <= aliasAgeMaxMs ? subjectId : null }
  if (since(row.verified_at) > aliasAgeMaxMs) return { kind: 'fetch', subjectId: null }
  // That a source no longer finds somebody may be its mistake; that it says they are gone is not.
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
      : // Whose name it is now must be as fresh as the data are.
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
        refresh: ageMs >= refreshAgeMs,
      }
    : { kind: 'fetch', subjectId }
}
