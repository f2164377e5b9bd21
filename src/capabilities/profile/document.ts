import { z } from 'zod'
import type { CapabilityDocument, DescribedCall } from '../../call/form.ts'
import { profileResult } from './contract.ts'
import examples from './examples.json' with { type: 'json' }

export const profileCall: DescribedCall = {
  capability: 'profile',
  permission: 'profnet_scraping',
  method: 'POST',
  path: '/v1/profnet/profile',
  document: {
    operationId: 'retrieveProfile',
    summary: 'Retrieve a profile',
    description:
      'Returns one person of the professional network. `deleted: true` means that the person was known but has been deleted; such an answer is free.',
    request: z.object({
      id: z.string().describe('A profile id (lid), a profile URL, or a person URN'),
      cached: z
        .boolean()
        .nullish()
        .describe(
          'true: data up to 30 days old. false: data at most a minute old, at a different price. Default: true',
        ),
    }),
    result: profileResult,
    beside: z.object({
      cached: z.literal(true).optional().describe('Present only if the data comes from the cache'),
      cache_age_hours: z.number().min(0).optional().describe('The age of cached data'),
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
