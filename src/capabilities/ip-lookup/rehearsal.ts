import type { Rehearsal } from '../../call/form.ts'
import { codeOfStatus } from '../../call/rehearsal.ts'
import type { ParsedAddress } from '../../egress/address.ts'
import type { IpFindings } from './decide.ts'
import type { IpLookupParts } from './gather.ts'
import type { Location } from './location.ts'

/** What test keys are told of addresses (src/guides/testing.md, "IP addresses"). */

/** One place for every address that has one: where the address is, is what a live key pays for. */
const somewhere: Location = Object.freeze({
  continent: 'Europe',
  continent_code: 'EU',
  country: 'Luxembourg',
  country_code: 'LU',
  region: 'Luxembourg',
  region_code: 'LU',
  city: 'Luxembourg',
  latitude: 49.6117,
  longitude: 6.13,
  postal: 'L-1118',
  is_eu: true,
  calling_code: '352',
})

const notLocated = 404

/** An address for documentation that ends with a status: 2001:db8::402, and 192.0.2.102, for 402 less 300. */
const statusIn = (canonical: string): number | null => {
  if (canonical.startsWith('192.0.2.')) return 300 + Number(canonical.slice('192.0.2.'.length))
  const [, digits] = /^2001:db8::(\d{1,4})$/.exec(canonical) ?? []
  return digits === undefined ? null : Number(digits)
}

const isForDocumentation = (canonical: string): boolean => /^(192\.0\.2\.|2001:db8:)/.test(canonical)

export const rehearsal = ({
  secrets,
}: Pick<IpLookupParts, 'secrets'>): Rehearsal<ParsedAddress, IpFindings> => ({
  asked: ({ canonical }) => codeOfStatus[statusIn(canonical) ?? 0] ?? null,
  gather: ({ canonical, reachable }) => {
    const located = isForDocumentation(canonical) ? statusIn(canonical) !== notLocated : reachable
    return { location: located ? somewhere : null, addressHmac: secrets.addressHmac(canonical) }
  },
})
