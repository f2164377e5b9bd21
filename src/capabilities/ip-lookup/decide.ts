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

/** Builds the answer and the recorded facts. The structure is the same whether or not there is a location (Spec §2.3, §4.2). */
export const decide = (
  { location, addressHmac }: IpFindings,
  address: ParsedAddress,
): CallDecision<LocatedAddress> => ({
  result: { ip: address.canonical, type: address.type, location },
  facts: {
    kind: 'ip_lookup',
    success: location !== null,
    country_code: location?.country_code ?? null,
    address_hmac: addressHmac,
  },
})

/** The result before serialization. Many addresses share the same location object. */
export type LocatedAddress = {
  readonly ip: string
  readonly type: 'IPv4' | 'IPv6'
  readonly location: Location | null
}

/** Arranges the result as in the specification. */
export const resultOf = ({ ip, type, location }: LocatedAddress): IpLookupResult => ({
  ip,
  success: location !== null,
  type,
  ...(location ?? nowhere),
})
