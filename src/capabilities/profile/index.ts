import type { CapabilityForm } from '../../call/form.ts'
import type { ProfileFacts } from '../../events/profile.ts'
import { type ProfileRequest, type ProfileResult, parseProfileRequest } from './contract.ts'
import { decide, type ProfileFindings } from './decide.ts'
import type { Identifiers } from './identifier.ts'
import type { Retrieval } from './retrieval.ts'

/**
 * Profile retrieval (Spec §4.3): one person's data, cached or fresh, by whichever identifier. Answers hold a person's
 * data and are never kept.
 */
export const profile = ({
  identifiers,
  retrieval,
}: {
  identifiers: Identifiers
  retrieval: Retrieval
}): CapabilityForm<ProfileRequest, ProfileFindings, ProfileResult> => ({
  capability: 'profile',
  permission: 'profnet_scraping',
  method: 'POST',
  path: '/v1/profnet/profile',
  personal: true,
  parse: (body) => parseProfileRequest(body, identifiers),
  gather: async ({ ref, cached }, caller) => {
    // Before the cache is looked into: whether somebody is in it is worth something, too.
    await caller.reserve(dearest(cached ? 'cached' : 'fresh'))
    const retrieved = await retrieval.retrieve(ref, {
      wants: cached || caller.repeated ? 'cached' : 'fresh',
      // One charge is not a subscription: a repeated call gets what the first one left.
      upstream: !caller.repeated,
      // The upstream costs whether or not the caller can pay.
      beforeUpstream: () => caller.reserve(dearest('fresh')),
    })
    return { retrieved, urlOf: identifiers.urlOf }
  },
  decide,
})

/** What a call may come to cost. */
const dearest = (source: 'cached' | 'fresh'): ProfileFacts => ({
  kind: 'profile',
  source,
  age_seconds: 0,
  subject_id: '',
})
