/**
 * A database record, whatever its shape, as the one shape of a location that answers have.
 *
 * Three shapes are understood: *nested* (GeoIP2, GeoLite2, DB-IP from db-ip.com), *flat* (the ip-location-db
 * packages) and *country* (IPinfo Lite: flat, without a place). The shape is judged record by record, so a file
 * that mixes them still answers.
 */
import { countryByCode } from './countries.ts'
import { regionCode } from './regions.ts'

/** Where an address is, as the wire names it (Spec §2.3). Frozen; absent values are null, never "". */
export type Location = Readonly<{
  continent: string | null
  continent_code: string | null
  country: string | null
  /** ISO 3166-1 alpha-2, upper case; a record without one is no location. */
  country_code: string
  region: string | null
  /** The part after the hyphen of the ISO 3166-2 code. */
  region_code: string | null
  city: string | null
  /** Degrees, WGS 84, four decimals: about 11 m, far finer than the data. */
  latitude: number | null
  longitude: number | null
  postal: string | null
  is_eu: boolean
  /** Digits only. */
  calling_code: string | null
}>

export type RecordShape = 'nested' | 'flat' | 'country'

type Fields = Readonly<Record<string, unknown>>

/** What a shape can say before the country table fills the rest. */
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

/** The shape of one decoded record; null when it names no country in any of the three ways. */
export const recordShape = (record: unknown): RecordShape | null => {
  if (!isFields(record)) return null
  if (isFields(record.country)) return nestedCountryCode(record) === null ? null : 'nested'
  if (countryCodeOf(record.country_code) === null) return null
  return 'city' in record || 'latitude' in record || 'state1' in record ? 'flat' : 'country'
}

/**
 * The location in one decoded record; null when it has no country code.
 * @throws Error when a text holds a NUL, which only a damaged file contains.
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
  // Subdivisions run from the largest to the smallest.
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
  return Object.freeze({
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
  })
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
  if (value.includes('\0')) throw new Error('the record holds a damaged text')
  return value
}

/** Some files write coordinates as texts and some as float32, whose noise starts after the fourth decimal. */
const degrees = (value: unknown, magnitudeMax: number): number | null => {
  const number = typeof value === 'string' && value !== '' ? Number(value) : value
  if (typeof number !== 'number' || !(Math.abs(number) <= magnitudeMax)) return null
  // Adding 0 turns -0, which JSON would print as 0 anyway, into 0.
  return Math.round(number * 10_000) / 10_000 + 0
}

const fieldsOf = (value: unknown): Fields => {
  return isFields(value) ? value : {}
}

const isFields = (value: unknown): value is Fields => {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}
