import { durationText } from '../../administration/doctor/finding.ts'
import type { ProjectionState } from '../../administration/projections.ts'

/** A projection, and for how long at least it has been behind: 0 where that is not known. */
export type StandingProjection = ProjectionState & { readonly behindMs: number }

/**
 * How far a projection is behind the event log, in time: positions are counted in events on one kind of log and in bytes on the
 * other.
 */
export const behindText = ({ behind, behindMs }: Pick<StandingProjection, 'behind' | 'behindMs'>): string => {
  if (behind === null) return 'unknown'
  if (behind === 0n) return '–'
  return behindMs === 0 ? 'a moment' : `${durationText(behindMs)} or longer`
}
