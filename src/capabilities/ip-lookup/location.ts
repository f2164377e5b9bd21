import { continents, countries } from 'countries-list'
import { getCountryCallingCode, isSupportedCountry } from 'libphonenumber-js/min'
import { regionCode } from './regions.ts'

/**
 * Converts a database record to a location.
 *
 * Three shapes are supported: *nested* (GeoIP2, GeoLite2, DB-IP from db-ip.com), *flat* (the ip-location-db packages) and *country* (IPinfo Lite:
 * flat, without a place). The shape is detected for each record, so a file can contain several shapes.
 */

/** The location of an address, with the names of the wire format (Spec §2.3). Absent values are null, never "". */
export type Location = Readonly<{
  continent: string | null
  continent_code: string | null
  country: string | null
  /** ISO 3166-1 alpha-2 in upper case. A record without it is not a location. */
  country_code: string
  region: string | null
  /** The part after the hyphen of the ISO 3166-2 code. */
  region_code: string | null
  city: string | null
  /** In degrees (WGS 84) with four decimals: about 11 m, far more precise than the data. */
  latitude: number | null
  longitude: number | null
  postal: string | null
  is_eu: boolean
  /** Digits only. */
  calling_code: string | null
}>

export type RecordShape = 'nested' | 'flat' | 'country'

type Fields = Readonly<Record<string, unknown>>

type Found = {
  countryCode: string
  continent?: string | null
  continentCode?: string | null
  country?: string | null
  region?: string | null
  regionCode?: string | null
  city?: string | null
  latitude?: unknown
  longitude?: unknown
  postal?: string | null
  isEu?: boolean | null
}

/** Returns the shape of a decoded record; null if it names no country in any of the three ways. */
export const recordShape = (record: unknown): RecordShape | null => {
  if (!isFields(record)) return null
  if (isFields(record.country)) return nestedCountryCode(record) === null ? null : 'nested'
  if (countryCodeOf(record.country_code) === null) return null
  return 'city' in record || 'latitude' in record || 'state1' in record ? 'flat' : 'country'
}

/**
 * Returns the location in a decoded record; null if it has no country code.
 * @throws Error if a string contains a NUL, which occurs only in a damaged file.
 */
export const toLocation = (record: unknown): Location | null => {
  const shape = recordShape(record)
  if (shape === null || !isFields(record)) return null
  const found = shape === 'nested' ? fromNested(record) : fromFlat(record)
  return found === null ? null : complete(found)
}

const fromNested = (record: Fields): Found | null => {
  const countryCode = nestedCountryCode(record)
  if (countryCode === null) return null
  const country = fieldsOf(record.country)
  const continent = fieldsOf(record.continent)
  const location = fieldsOf(record.location)
  // Subdivisions are listed from the largest to the smallest.
  const subdivision = Array.isArray(record.subdivisions) ? fieldsOf(record.subdivisions[0]) : {}
  return {
    countryCode,
    continent: englishName(continent),
    continentCode: textOf(continent.code),
    country: englishName(country),
    region: englishName(subdivision),
    regionCode: textOf(subdivision.iso_code),
    city: englishName(fieldsOf(record.city)),
    latitude: location.latitude,
    longitude: location.longitude,
    postal: textOf(fieldsOf(record.postal).code),
    isEu: typeof country.is_in_european_union === 'boolean' ? country.is_in_european_union : null,
  }
}

const fromFlat = (record: Fields): Found | null => {
  const countryCode = countryCodeOf(record.country_code)
  if (countryCode === null) return null
  return {
    countryCode,
    region: textOf(record.state1),
    city: textOf(record.city),
    latitude: record.latitude,
    longitude: record.longitude,
    postal: textOf(record.postcode),
  }
}

const complete = (found: Found): Location => {
  const country = countryByCode(found.countryCode)
  const region = found.region ?? null
  return {
    continent: found.continent ?? country?.continent ?? null,
    continent_code: found.continentCode ?? country?.continent_code ?? null,
    country: found.country ?? country?.name ?? null,
    country_code: found.countryCode,
    region,
    region_code: found.regionCode ?? (region === null ? null : regionCode(found.countryCode, region)),
    city: found.city ?? null,
    latitude: degrees(found.latitude, 90),
    longitude: degrees(found.longitude, 180),
    postal: found.postal ?? null,
    is_eu: found.isEu ?? country?.is_eu ?? false,
    calling_code: country?.calling_code ?? null,
  }
}

const nestedCountryCode = (record: Fields): string | null => {
  return countryCodeOf(fieldsOf(record.country).iso_code)
}

const countryCodeOf = (value: unknown): string | null => {
  return typeof value === 'string' && /^[A-Z]{2}$/.test(value) ? value : null
}

const englishName = (fields: Fields): string | null => {
  return textOf(fieldsOf(fields.names).en)
}

const textOf = (value: unknown): string | null => {
  if (typeof value !== 'string' || value === '') return null
  if (value.includes('\0')) throw new Error('the record contains a damaged text')
  return value
}

/** Some files contain coordinates as strings, and some as float32, which is exact only to four decimals. */
const degrees = (value: unknown, magnitudeMax: number): number | null => {
  const number = typeof value === 'string' && value !== '' ? Number(value) : value
  if (typeof number !== 'number' || !(Math.abs(number) <= magnitudeMax)) return null
  // Adding 0 turns -0 into 0.
  return Math.round(number * 10_000) / 10_000 + 0
}

const fieldsOf = (value: unknown): Fields => {
  return isFields(value) ? value : {}
}

const isFields = (value: unknown): value is Fields => {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

/**
 * Values that depend only on the country code. Names and continents come from countries-list 3.4.1, and calling codes from libphonenumber-js.
 * Their errors are corrected here, so that every source gives the same answer for a country.
 */

type Country = Readonly<{
  name: string
  continent: string
  continent_code: string
  is_eu: boolean
  /** Digits only, without `+`; "1" for every country of the North American Numbering Plan. */
  calling_code: string
}>

/**
 * The 27 member states and the seven outermost territories with their own codes, as in MaxMind's data. XK, GB and the French territories
 * outside the Union (NC, PF, BL, PM, WF, TF) are not included.
 */
const euCodes = new Set(
  (
    'AT BE BG CY CZ DE DK EE ES FI FR GR HR HU IE IT LT LU LV MT NL PL PT RO SE SI SK ' +
    'AX GF GP MF MQ RE YT'
  ).split(' '),
)

/** countries-list assigns these to Asia; GeoNames and MaxMind do not. */
const continentCorrections: Readonly<Record<string, 'EU' | 'OC'>> = { RU: 'EU', CX: 'OC' }

/** Countries without a numbering plan in libphonenumber get the code of the country that administers them. */
const callingCodeCorrections: Readonly<Record<string, string>> = {
  AQ: '672',
  BV: '47',
  GS: '500',
  HM: '672',
  PN: '64',
  TF: '262',
  UM: '1',
}

const table: ReadonlyMap<string, Country> = new Map(
  Object.entries(countries).map(([code, { name, continent }]) => {
    const continentCode = continentCorrections[code] ?? continent
    const callingCode = isSupportedCountry(code) ? getCountryCallingCode(code) : callingCodeCorrections[code]
    if (callingCode === undefined) throw new Error(`location.ts has no calling code for ${code}`)
    return [
      code,
      Object.freeze({
        name,
        continent: continents[continentCode],
        continent_code: continentCode,
        is_eu: euCodes.has(code),
        calling_code: callingCode,
      }),
    ]
  }),
)

/** Returns the country for an ISO 3166-1 alpha-2 code in upper case, including XK; null for an unknown code. Has all 249 assigned codes. */
export const countryByCode = (code: string): Country | null => {
  return table.get(code) ?? null
}
