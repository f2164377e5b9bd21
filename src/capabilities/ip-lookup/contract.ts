import { z } from 'zod'
import { echoedCharactersMax, missingParameter, type Refusal } from '../../call/errors.ts'

/** The wire of POST /v1/ip/lookup (Spec §2.3, §4.2). Names are the specification's. */

export const ipLookupResult = z.object({
  ip: z.string(),
  success: z.boolean(),
  type: z.enum(['IPv4', 'IPv6']).nullable(),
  continent: z.string().nullable(),
  continent_code: z.string().length(2).nullable(),
  country: z.string().nullable(),
  country_code: z.string().length(2).nullable(),
  region: z.string().nullable(),
  region_code: z.string().nullable(),
  city: z.string().nullable(),
  latitude: z.number().nullable(),
  longitude: z.number().nullable(),
  postal: z.string().nullable(),
  is_eu: z.boolean(),
  calling_code: z.string().nullable(),
})
export type IpLookupResult = z.infer<typeof ipLookupResult>

export const supportedFormats = ['IPv4', 'IPv6'] as const

/** Spec §4.2 rule 3. What is no string is shown as JSON, so that the caller sees what arrived. */
export const notAnAddress = (submitted: unknown): Refusal => ({
  code: 'IP_001',
  message: 'ip is not a valid IPv4 or IPv6 address.',
  details: {
    ip: (typeof submitted === 'string' ? submitted : JSON.stringify(submitted)).slice(0, echoedCharactersMax),
    supported_formats: supportedFormats,
  },
})

/** Spec §4.2 rule 4. */
export const ipMissing = (): Refusal => missingParameter('ip', 'string')
