import type { CallDecision } from '../../call/form.ts'
import type { ParsedAddress } from '../../egress/address.ts'
import type { IpLookupResult } from './contract.ts'
import type { Location } from './location.ts'

export type IpFindings = { readonly location: Location | null; readonly addressHmac: string }

const nowhere = {
  continent: null,
  continent_code: null,
  country: null,
  country_code: null,
  region: null,
  region_code: null,
  city: null,
  latitude: null,
  longitude: null,
  postal: null,
  is_eu: false,
  calling_code: null,
} as const

/** Builds the answer and the recorded facts. The structure of the answer is the same with and without a location (Spec §2.3, §4.2). */
export const decide = (
  { location, addressHmac }: IpFindings,
  address: ParsedAddress,
): CallDecision<IpLookupResult> => ({
  result: {
    ip: address.canonical,
    success: location !== null,
    type: address.type,
    ...(location ?? nowhere),
  },
  facts: {
    kind: 'ip_lookup',
    success: location !== null,
    country_code: location?.country_code ?? null,
    address_hmac: addressHmac,
  },
})
