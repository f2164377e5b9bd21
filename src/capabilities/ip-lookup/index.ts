import type { CapabilityForm } from '../../call/form.ts'
import { type ParsedAddress, parseAddress } from '../../egress/address.ts'
import type { Secrets } from '../../guard/secrets.ts'
import { ipMissing, ipOfAnotherType, notAnAddress } from './contract.ts'
import { decide, type IpFindings, type LocatedAddress, resultOf } from './decide.ts'
import type { GeoDatabase } from './geo-database.ts'
import type { Location } from './location.ts'

/**
 * IP lookup: geolocation and network data for one address (Spec §4.2). It asks a local database only; nothing leaves
 * the house.
 */
export const ipLookup = ({
  geo,
  secrets,
}: {
  geo: GeoDatabase
  secrets: Secrets
}): CapabilityForm<ParsedAddress, IpFindings, LocatedAddress> => ({
  capability: 'ip_lookup',
  permission: 'ip_lookup',
  method: 'POST',
  path: '/v1/ip/lookup',
  parse: ({ ip }) => {
    if (ip === undefined || ip === null) return { refusal: ipMissing() }
    if (typeof ip !== 'string') return { refusal: ipOfAnotherType() }
    const address = parseAddress(ip)
    return address === null ? { refusal: notAnAddress(ip) } : { input: address }
  },
  gather: (address) => ({
    location: address.reachable ? geo.lookup(address.lookup) : null,
    addressHmac: secrets.addressHmac(address.canonical),
  }),
  decide,
  renderResult,
})

/** A location's members as JSON, kept as long as the database keeps the location: many addresses share one. */
const locationJson = new WeakMap<Location, string>()

/** What JSON.stringify of the whole result gives, several times faster for a location seen before. */
export const renderResult = (located: LocatedAddress): string => {
  const { ip, type, location } = located
  if (location === null) return JSON.stringify(resultOf(located))
  let members = locationJson.get(location)
  if (members === undefined) {
    members = JSON.stringify(location).slice(1)
    locationJson.set(location, members)
  }
  return `{"ip":"${ip}","success":true,"type":"${type}",${members}`
}
