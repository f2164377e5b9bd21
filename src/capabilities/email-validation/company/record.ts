import { hash } from 'node:crypto'
import { countries } from 'countries-list'
import { iso31661 } from 'iso-3166'
import type { CompanyResult } from '../contract.ts'
import { addressText, registrableDomainOf, urlCharactersMax, urlOf, webAddressOf } from './web-address.ts'

/**
 * Parses a record of a company. Bulk data has missing, mistyped and misplaced fields, so an unreadable field becomes null. A record is
 * refused only if it is useless for all answers. Pure.
 */

const sizeRanges: readonly string[] = [
  '1-10',
  '11-50',
  '51-200',
  '201-500',
  '501-1000',
  '1001-5000',
  '5001-10000',
  '10001+',
]

export type RankedCompany = {
  readonly company: CompanyResult
  /** Among the records of one edition, the record with the highest value wins (see `preferenceOf`). */
  readonly preference: number
  /**
   * Among records with equal preferences, the record with the lowest value wins, compared byte by byte. Different records have different
   * values.
   */
  readonly tieBreak: string
}

export type CompanyRefusal =
  /**
   * The record has no website and cannot be found by a domain. This is not an error, because a third of the records in public data have no
   * website.
   */
  | 'no_domain'
  /** The website is an IP address, a bare public suffix, a name without a known suffix, or not a host at all. */
  | 'website_unusable'
  | 'not_an_object'
  | 'name_missing'
  | 'name_too_long'
  /** The name contains bytes or surrogates that are not text. */
  | 'name_not_text'

/**
 * The name of the field for a company's page at the professional network, and the domains of such pages. The network's brand
 * appears nowhere else in the source.
 */
const network = { field: 'linkedin_url', domains: ['linkedin.com', 'profnet.com'] } as const

const nameCharactersMax = 200
const textCharactersMax = 120
const recordIdCharactersMax = 100
/** The maximum length of a number or date written as text. */
const numberCharactersMax = 60
/** The oldest companies still in business were founded in the sixth century. */
const foundedYearMin = 500
const employeesMax = 10_000_000

/**
 * Parses one record in the format of the PDL free company data set or in our own. `defaults` apply if the record does not
 * describe its source; `yearMax` is the latest possible founding year.
 */
export const companyOf = (
  raw: unknown,
  defaults: { readonly source: string; readonly sourceUpdatedAt: string; readonly yearMax: number },
): RankedCompany | { readonly refused: CompanyRefusal } => {
  if (!isRecord(raw)) return { refused: 'not_an_object' }
  const site = siteOf({ domain: firstOf(raw.domain), website: firstOf(raw.website) })
  if ('refused' in site) return site
  const name = nameOf(firstOf(raw.name))
  if ('refused' in name) return name
  const employeeCount = wholeNumberOf(firstOf(raw.employee_count), { min: 0, max: employeesMax })
  const company: CompanyResult = {
    name: name.text,
    legal_name: textOf(firstOf(raw.legal_name), nameCharactersMax),
    domain: site.domain,
    website: site.website,
    industry: textOf(firstOf(raw.industry), textCharactersMax),
    size_range: sizeRangeOf(firstOf(raw.size_range, raw.size)) ?? sizeRangeOfCount(employeeCount),
    employee_count: employeeCount,
    founded_year: yearOf(firstOf(raw.founded_year, raw.founded), defaults.yearMax),
    location: locationOf(isRecord(raw.location) ? raw.location : raw),
    profnet_url: urlOf(firstOf(raw.profnet_url, raw[network.field])),
    logo_url: urlOf(firstOf(raw.logo_url)),
    source: textOf(firstOf(raw.source), textCharactersMax) ?? defaults.source,
    source_updated_at: instantOf(firstOf(raw.source_updated_at)) ?? defaults.sourceUpdatedAt,
  }
  return {
    company,
    preference: preferenceOf(company, { direct: site.direct }),
    tieBreak: `${recordIdOf(firstOf(raw.id))} ${digestOf(company)}`,
  }
}

type Fields = Readonly<Record<string, unknown>>

const isRecord = (value: unknown): value is Fields =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

const recordIdOf = (value: unknown): string =>
  (typeof value === 'number' ? String(value) : textOf(value, recordIdCharactersMax)) ?? ''

/** Makes the order of records total, even if records have no id or the same id. */
const digestOf = (company: CompanyResult): string =>
  hash('sha256', JSON.stringify(company), 'base64url').slice(0, 22)

/**
 * Orders the records about a domain, independently of their order in the file. A website that is the domain itself comes before a page or
 * subdomain, because the page of a shop at a network does not describe the network. Next, a larger company comes before a smaller one, such
 * as a group before its branch. Finally, a record with more data comes first.
 */
const preferenceOf = (company: CompanyResult, { direct }: { direct: boolean }): number => {
  const size = company.size_range === null ? 0 : sizeRanges.indexOf(company.size_range) + 1
  let filled = 0
  for (const part of [company, company.location])
    for (const value of Object.values(part)) if (value !== null) filled++
  return (direct ? 10_000 : 0) + size * 100 + filled
}

/** The first value that is not missing. */
const firstOf = (...values: readonly unknown[]): unknown => values.find((value) => !isEmpty(value))

const isEmpty = (value: unknown): boolean => {
  if (value === null || value === undefined) return true
  if (typeof value !== 'string') return false
  const text = value.trim()
  return text === '' || (text.length === 4 && text.toLowerCase() === 'null')
}

type Site = { readonly domain: string; readonly website: string | null; readonly direct: boolean }

const siteOf = ({
  domain,
  website,
}: Readonly<Record<'domain' | 'website', unknown>>):
  | Site
  | { readonly refused: 'no_domain' | 'website_unusable' } => {
  const given = domain ?? website
  if (given === undefined) return { refused: 'no_domain' }
  const address = webAddressOf(given)
  const registrable = address === null ? null : registrableDomainOf(address.hostname)
  if (address === null || registrable === null) return { refused: 'website_unusable' }
  const page = website === undefined ? address : webAddressOf(website)
  const url = page === null ? null : addressText(page)
  const host = address.hostname.replace(/^www\./, '')
  return {
    domain: registrable,
    website: url === null || url.length > urlCharactersMax ? null : url,
    direct: host === registrable && (page?.pathname ?? '/') === '/',
  }
}

/** Returns the first address of a company's page at the professional network. */
export const profnetUrlAmong = (urls: readonly unknown[]): string | null => {
  for (const url of urls) {
    const address = webAddressOf(url)
    if (address === null || !address.pathname.startsWith('/company/')) continue
    const domain = registrableDomainOf(address.hostname)
    if (network.domains.some((one) => one === domain)) return addressText(address)
  }
  return null
}

const nameOf = (
  value: unknown,
): { readonly text: string } | { readonly refused: 'name_missing' | 'name_too_long' | 'name_not_text' } => {
  if (typeof value === 'string' && value.length > 4 * nameCharactersMax) return { refused: 'name_too_long' }
  const text = cleanText(value)
  if (text === null) return { refused: 'name_missing' }
  if (text.length > nameCharactersMax) return { refused: 'name_too_long' }
  return isText(text) ? { text } : { refused: 'name_not_text' }
}

const wholeNumberOf = (value: unknown, { min, max }: { min: number; max: number }): number | null => {
  const number =
    typeof value === 'number'
      ? value
      : typeof value === 'string' && value.length <= numberCharactersMax
        ? Number(value.replaceAll(/[,\s]/g, '') || 'none')
        : Number.NaN
  return Number.isInteger(number) && number >= min && number <= max ? number : null
}

/** Reads a year, or the year of an ISO 8601 date. */
const yearOf = (value: unknown, yearMax: number): number | null => {
  if (typeof value === 'string' && value.length > numberCharactersMax) return null
  const text = typeof value === 'string' ? value.trim() : value
  const year =
    typeof text === 'string' ? (/^(\d{3,4})(?:-\d\d(?:-\d\d.{0,30})?)?$/.exec(text)?.[1] ?? null) : text
  return wholeNumberOf(year, { min: foundedYearMin, max: yearMax })
}

const instantOf = (value: unknown): string | null => {
  if (typeof value !== 'string' || value.length > numberCharactersMax) return null
  if (!/^\d{4}-\d\d-\d\d(T[\d:.]{5,16}(Z|[+-]\d\d:\d\d))?$/.test(value)) return null
  const ms = Date.parse(value)
  return Number.isNaN(ms) ? null : new Date(ms).toISOString()
}

const locationOf = (place: Fields): CompanyResult['location'] => {
  const written = textOf(firstOf(place.country), textCharactersMax)
  const code = countryCodeOf(firstOf(place.country_code)) ?? countryCodeOf(written)
  const country = (code === null ? null : countryNames.get(code)) ?? written
  return {
    locality: textOf(firstOf(place.locality), textCharactersMax),
    region: textOf(firstOf(place.region), textCharactersMax),
    country,
    country_code: code,
  }
}

/** Returns the text in NFC, without control characters and direction marks, which could make an answer misleading. */
const cleanText = (text: unknown): string | null => {
  if (typeof text !== 'string') return null
  if (/^[!-~](?: ?[!-~])*$/.test(text)) return text
  const clean = text
    .replaceAll(/[\p{Cc}\u2028\u2029]/gu, ' ')
    .replaceAll(/[\u200b\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]/g, '')
    .replaceAll(/\s+/g, ' ')
    .trim()
    .normalize('NFC')
  return clean === '' ? null : clean
}

/** False if the text contains characters that could not be decoded. */
const isText = (text: string): boolean => text.isWellFormed() && !text.includes('\ufffd')

const textOf = (value: unknown, charactersMax: number): string | null => {
  if (typeof value === 'string' && value.length > 4 * charactersMax) return null
  const text = cleanText(value)
  return text === null || text.length > charactersMax || !isText(text) ? null : text
}

const sizeRangeOf = (value: unknown): string | null => {
  if (typeof value !== 'string' || value.length > 40) return null
  const text = value
    .toLowerCase()
    .replaceAll(/[\s,]|employees/g, '')
    .replaceAll(/[\u2013\u2014]|to/g, '-')
  return sizeRanges.find((range) => range === text) ?? null
}

/** Returns the range that contains a number of employees; null if there are none. */
export const sizeRangeOfCount = (count: number | null): string | null => {
  if (count === null || count < 1) return null
  return sizeRanges.find((range) => count <= Number(range.split('-')[1] ?? Number.POSITIVE_INFINITY)) ?? null
}

/** Normalizes a country's name for comparison: lower case, letters without marks, no punctuation, no article. */
const comparedName = (name: string): string =>
  name
    .toLowerCase()
    .normalize('NFD')
    .replaceAll(/\p{M}/gu, '')
    .replaceAll('&', ' and ')
    .replaceAll(/[^\p{L}\p{N}]+/gu, ' ')
    .trim()
    .replace(/^the /, '')

/** Spellings in data sets that neither ISO 3166 nor countries-list contains. */
const otherNames: Readonly<Record<string, string>> = {
  uk: 'GB',
  'great britain': 'GB',
  england: 'GB',
  scotland: 'GB',
  wales: 'GB',
  'northern ireland': 'GB',
  'korea south': 'KR',
  'republic of korea': 'KR',
  'czech republic': 'CZ',
  holland: 'NL',
  turkey: 'TR',
  'cape verde': 'CV',
  swaziland: 'SZ',
  macedonia: 'MK',
  burma: 'MM',
  macau: 'MO',
  'hong kong sar': 'HK',
  'palestinian territory': 'PS',
  'congo kinshasa': 'CD',
  'congo brazzaville': 'CG',
  vatican: 'VA',
  uae: 'AE',
  'us virgin islands': 'VI',
}

const countryNames: ReadonlyMap<string, string> = new Map(
  Object.entries(countries).map(([code, { name }]) => [code, name]),
)

const codesByName: ReadonlyMap<string, string> = new Map([
  // If two countries have the same name, the later entry wins. Native names come first, so that they do not override English names.
  ...Object.entries(countries).map(([code, { native }]) => [comparedName(native), code] as const),
  ...iso31661.map(({ alpha2, alpha3 }) => [alpha3.toLowerCase(), alpha2] as const),
  ...iso31661.map(({ alpha2, name }) => [comparedName(name), alpha2] as const),
  ...Object.entries(countries).map(([code, { name }]) => [comparedName(name), code] as const),
  ...Object.entries(otherNames),
])

/** Finds a country by code, by name in English or its own language, or by ISO 3166-1 alpha-3; null if it is unknown. */
export const countryCodeOf = (value: unknown): string | null => {
  if (typeof value !== 'string' || value.length > textCharactersMax) return null
  const known = codesByName.get(value)
  if (known !== undefined) return known
  const code = value.trim().toUpperCase()
  return countryNames.has(code) ? code : (codesByName.get(comparedName(value)) ?? null)
}
