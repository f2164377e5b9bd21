import { z } from 'zod'
import { missingParameter, type Refusal, submittedCharactersMax, wrongParameter } from '../../call/errors.ts'

/** The wire format of POST /v1/ip/lookup, with the names of Spec §2.3 and §4.2. */

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

const supportedFormats = ['IPv4', 'IPv6'] as const

/** The refusal of a malformed address (Spec §4.2 rule 3). */
export const notAnAddress = (submitted: string): Refusal => ({
  code: 'IP_001',
  message: 'ip is not a valid IPv4 or IPv6 address.',
  details: {
    ip: submitted.slice(0, submittedCharactersMax),
    supported_formats: supportedFormats,
  },
})

/** The refusal of a request without an address (Spec §4.2 rule 4). */
export const ipMissing = (): Refusal => missingParameter('ip', 'string')

/** The refusal of a value that is not a string (decision 3). */
export const ipOfAnotherType = (): Refusal => wrongParameter('ip', 'a string')
