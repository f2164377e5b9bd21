import type { Capability } from '../../call/capability.ts'
import type { CapabilityForm, Rehearsal } from '../../call/form.ts'
import { codeOfStatus } from '../../call/rehearsal.ts'
import { type ParsedAddress, parseAddress } from '../../egress/address.ts'
import type { Secrets } from '../../guard/secrets/secrets.ts'
import { type IpLookupResult, ipMissing, ipOfAnotherType, notAnAddress } from './contract.ts'
import { decide, type IpFindings } from './decide.ts'
import { document, ipLookupCall } from './document.ts'
import type { GeoDatabase } from './geo-database.ts'
import { type GeoSettings, geoAge, geoData, openConfiguredDatabase } from './geo-settings.ts'
import type { Location } from './location.ts'

type IpLookupParts = {
  readonly geo: Pick<GeoDatabase, 'lookup'>
  readonly secrets: Pick<Secrets, 'addressHmac'>
}

/** An address that does not exist on the public Internet gets no location. */
const gather = ({ geo, secrets }: IpLookupParts, address: ParsedAddress): IpFindings => ({
  location: address.reachable ? geo.lookup(address.lookup) : null,
  addressHmac: secrets.addressHmac(address.canonical),
})

/** The answers that test keys get are in src/guides/testing.md, "Which IP address gets which answer?". */

/** The location of every located address, because real locations are only for live keys. */
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

/** Reads the status at the end of a documentation address: 402 is in 2001:db8::402 and, less 300, in 192.0.2.102. */
const statusIn = (canonical: string): number | null => {
  if (canonical.startsWith('192.0.2.')) return 300 + Number(canonical.slice('192.0.2.'.length))
  const [, digits] = /^2001:db8::(\d{1,4})$/.exec(canonical) ?? []
  return digits === undefined ? null : Number(digits)
}

const isForDocumentation = (canonical: string): boolean => /^(192\.0\.2\.|2001:db8:)/.test(canonical)

const rehearsal = ({ secrets }: Pick<IpLookupParts, 'secrets'>): Rehearsal<ParsedAddress, IpFindings> => ({
  asked: ({ canonical }) => codeOfStatus[statusIn(canonical) ?? 0] ?? null,
  gather: ({ canonical, reachable }) => {
    const located = isForDocumentation(canonical) ? statusIn(canonical) !== notLocated : reachable
    return { location: located ? somewhere : null, addressHmac: secrets.addressHmac(canonical) }
  },
})

/** IP lookup: the location of one address (Spec §4.2). The database is local, so that no address leaves the process. */
export const ipLookup: Capability<GeoSettings> = {
  hosts: ['api'],
  document,
  open: async ({ settings, answersCalls, secrets, meters, logger }) => {
    // A process that only runs jobs does not need the location files.
    if (!answersCalls) return { forms: [] }
    const geo = await openConfiguredDatabase(settings, logger)
    meters.gauge({ name: 'geo_database_age_seconds', help: 'Age of the oldest location file in use' }, () => [
      { value: Math.max(0, Date.now() - Date.parse(geo.status().build_date)) / 1000 },
    ])
    return {
      forms: [lookup({ geo, secrets })],
      reload: () => geo.reload(),
      close: async () => geo.close(),
    }
  },
  checks: (settings) => [geoAge(settings)],
  data: ({ settings }) => geoData(settings),
  recognizes: ({ secrets }, text) => {
    const address = parseAddress(text)
    const hmac = address === null ? null : secrets.addressHmac(address.canonical)
    return (facts) => {
      if (facts.kind !== 'ip_lookup') return null
      if (hmac === null) return { verdict: 'no', why: 'it is not an IP address' }
      return { verdict: hmac === facts.address_hmac ? 'yes' : 'no' }
    }
  },
}

const lookup = (parts: IpLookupParts): CapabilityForm<ParsedAddress, IpFindings, IpLookupResult> => ({
  ...ipLookupCall,
  parse: ({ ip }) => {
    if (ip === undefined || ip === null) return { refusal: ipMissing() }
    if (typeof ip !== 'string') return { refusal: ipOfAnotherType() }
    const address = parseAddress(ip)
    return address === null ? { refusal: notAnAddress(ip) } : { input: address }
  },
  rehearse: rehearsal(parts),
  gather: (address) => gather(parts, address),
  decide,
})
