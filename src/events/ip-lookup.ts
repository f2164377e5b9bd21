import { z } from 'zod'
import { keyedHmac } from './primitives.ts'

/** What an IP lookup established. The address itself never enters the event log (decision 21). */
export const ipLookupFacts = z.object({
  kind: z.literal('ip_lookup'),
  success: z.boolean(),
  country_code: z.string().length(2).nullable(),
  address_hmac: keyedHmac,
})
