import { z } from 'zod'
import type { CapabilityDocument, DescribedCall } from '../../call/form.ts'
import { profileResult } from './contract.ts'
import examples from './examples.json' with { type: 'json' }

/** What people read about profile retrieval. */

export const profileCall: DescribedCall = {
  capability: 'profile',
  permission: 'profnet_scraping',
  method: 'POST',
  path: '/v1/profnet/profile',
  document: {
    operationId: 'retrieveProfile',
    summary: 'Retrieve a profile',
    description:
      'One person of the professional network. `deleted: true` says that the person was known and is gone; that costs nothing.',
    request: z.object({
      id: z.string().describe('A profile id (lid), a profile URL, or a person URN'),
      cached: z
        .boolean()
        .nullish()
        .describe(
          'true: data up to 30 days old. false: at most a minute old, at a price of its own. Default: true',
        ),
    }),
    result: profileResult,
    beside: z.object({
      cached: z.literal(true).optional().describe('Only where the data come from the cache'),
      cache_age_hours: z.number().min(0).optional().describe('Age of cached data'),
    }),
    codes: ['PROFNET_001', 'PROFNET_002', 'REQ_002', 'REQ_003', 'CREDIT_001'],
  },
}

export const document: CapabilityDocument = {
  tag: 'profile',
  about: 'People of the professional network.',
  calls: [profileCall],
  examples,
  firstCall: { call: profileCall, body: { id: 'ada-lovelace' } },
}
