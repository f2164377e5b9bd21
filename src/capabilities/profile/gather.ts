import type { Caller, PaidCall, Unaffordable } from '../../call/form.ts'
import type { ProfileFacts } from '../../events/profile.ts'
import type { ProfileRequest } from './contract.ts'
import type { ProfileFindings } from './decide.ts'
import type { Identifiers } from './identifier.ts'
import type { Retrieval } from './record/retrieval.ts'
import type { Retrieved } from './record/retrieved.ts'

export type ProfileParts = {
  readonly identifiers: Identifiers
  readonly retrieval: Pick<Retrieval, 'retrieve'>
  readonly observe: ProfileObserver
}

/** What operations need to know about retrievals. Called on every call, so it must be cheap. */
export type ProfileObserver = {
  /** The source of the data, or the reason why there is none. */
  readonly retrieved: (source: ProfileFacts['source'] | 'missing' | 'unavailable') => void
}

export const gather = async (
  { identifiers, retrieval, observe }: ProfileParts,
  { ref, cached }: ProfileRequest,
  caller: Caller,
): Promise<ProfileFindings | Unaffordable> => {
  // Before the cache is read: the fact that a person is in it has a value, too.
  const unaffordable = await caller.reserve(dearest(cached ? 'cached' : 'fresh'))
  if (unaffordable !== null) return unaffordable
  const { repeated } = caller
  const found = await retrieval.retrieve(ref, {
    wants: cached || repeated !== null ? 'cached' : 'fresh',
    organizationId: caller.key.organizationId,
    upstream: repeated === null,
    // The upstream costs money whether or not the caller can pay.
    beforeUpstream: () => caller.reserve(dearest('fresh')),
  })
  if ('unaffordable' in found) return found
  const retrieved = repeated === null ? found : leftBy(repeated, found, caller.atMs)
  observe.retrieved(retrieved.kind === 'found' ? retrieved.source : retrieved.kind)
  return { retrieved, urlOf: identifiers.urlOf }
}

/** As long as a storable answer is kept (decision 15). */
const repeatMaxMs = 86_400_000
/**
 * One charge is not a subscription: a repeated call gets the data of the person it paid for, as of the charge or up to a
 * day later. The identifier may belong to another person by now.
 */
const leftBy = (paid: PaidCall, found: Retrieved, nowMs: number): Retrieved => {
  if (found.kind !== 'found') return found
  const same = paid.facts.kind === 'profile' && paid.facts.subject_id === found.subjectId
  const inTime = nowMs - found.ageMs <= paid.atMs + repeatMaxMs
  return same && inTime ? found : { kind: 'unavailable', retryAfterSeconds: repeatRetryAfterSeconds }
}
const repeatRetryAfterSeconds = 60

/** The most that a call may cost. */
const dearest = (source: 'cached' | 'fresh'): ProfileFacts => ({
  kind: 'profile',
  source,
  age_seconds: 0,
  subject_id: '',
})
