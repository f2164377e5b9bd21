import type { Capability } from '../../call/capability.ts'
import type { CapabilityForm } from '../../call/form.ts'
import { type ParsedAddress, parseAddress } from '../../egress/address.ts'
import { geoAge } from './checks.ts'
import { geoStatus } from './commands.ts'
import { ipLookupCall, ipMissing, ipOfAnotherType, notAnAddress } from './contract.ts'
import { createGeoData } from './data.ts'
import { decide, type IpFindings, type LocatedAddress } from './decide.ts'
import { gather, type IpLookupParts } from './gather.ts'
import { type GeoSettings, openConfiguredDatabase } from './geo-settings.ts'
import { rehearsal } from './rehearsal.ts'
import { renderResult } from './render.ts'

const geoData = createGeoData()

/**
 * IP lookup: geolocation and network data for one address (Spec §4.2). It asks a local database only: no address leaves
 * the process.
 */
export const ipLookup: Capability<GeoSettings> = {
  hosts: ['api'],
  calls: [ipLookupCall],
  open: async ({ settings, answersCalls, secrets, meters, logger }) => {
    // A process that only does jobs has no use for the location files.
    if (!answersCalls) return { forms: [] }
    const geo = await openConfiguredDatabase(settings, logger)
    meters.gauge(
      { name: 'geo_database_age_seconds', help: 'Since the oldest location file in use was built' },
      () => [{ value: Math.max(0, Date.now() - Date.parse(geo.status().build_date)) / 1000 }],
    )
    return {
      forms: [lookup({ geo, secrets })],
      reload: () => geo.reload(),
      close: async () => geo.close(),
    }
  },
  commands: [geoStatus],
  checks: (settings) => [geoAge(settings)],
  data: ({ settings }) => geoData(settings),
  recognizes: ({ secrets }, facts, text) => {
    if (facts.kind !== 'ip_lookup') return null
    const address = parseAddress(text)
    if (address === null) return { verdict: 'no', why: 'it is no IP address' }
    return { verdict: secrets.addressHmacs(address.canonical).includes(facts.address_hmac) ? 'yes' : 'no' }
  },
}

const lookup = (parts: IpLookupParts): CapabilityForm<ParsedAddress, IpFindings, LocatedAddress> => ({
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
  renderResult,
})
