import { countries } from 'countries-list'
import { iso31661 } from 'iso-3166'

/** Parses country names as data sets write them. */

const textCharactersMax = 120

/** A country's name in the form used for comparison: lower case, letters without marks, no punctuation, no article. */
const comparedName = (name: string): string =>
  name
    .toLowerCase()
    .normalize('NFD')
    .replaceAll(/\p{M}/gu, '')
    .replaceAll('&', ' and ')
    .replaceAll(/[^\p{L}\p{N}]+/gu, ' ')
    .trim()
    .replace(/^the /, '')

/** Spellings in data sets that neither ISO 3166 nor countries-list has. */
const otherNames: Readonly<Record<string, string>> = {
  usa: 'US',
  'united states of america': 'US',
  uk: 'GB',
  'great britain': 'GB',
  england: 'GB',
  scotland: 'GB',
  wales: 'GB',
  'northern ireland': 'GB',
  'south korea': 'KR',
  'korea south': 'KR',
  'republic of korea': 'KR',
  'north korea': 'KP',
  russia: 'RU',
  'czech republic': 'CZ',
  holland: 'NL',
  turkey: 'TR',
  turkiye: 'TR',
  vietnam: 'VN',
  'viet nam': 'VN',
  'ivory coast': 'CI',
  'cape verde': 'CV',
  swaziland: 'SZ',
  macedonia: 'MK',
  burma: 'MM',
  macau: 'MO',
  macao: 'MO',
  'hong kong sar': 'HK',
  palestine: 'PS',
  'palestinian territory': 'PS',
  syria: 'SY',
  laos: 'LA',
  moldova: 'MD',
  tanzania: 'TZ',
  bolivia: 'BO',
  venezuela: 'VE',
  iran: 'IR',
  brunei: 'BN',
  'democratic republic of the congo': 'CD',
  'congo kinshasa': 'CD',
  'republic of the congo': 'CG',
  'congo brazzaville': 'CG',
  gambia: 'GM',
  bahamas: 'BS',
  vatican: 'VA',
  kosovo: 'XK',
  uae: 'AE',
  'saint martin': 'MF',
  'sint maarten': 'SX',
  'us virgin islands': 'VI',
  'u s virgin islands': 'VI',
}

/** Names in English by ISO 3166-1 alpha-2 code. */
export const countryNames: ReadonlyMap<string, string> = new Map(
  Object.entries(countries).map(([code, { name }]) => [code, name]),
)

const codesByName: ReadonlyMap<string, string> = new Map([
  // Later entries win. Today no country's own name is another country's English name, but that may change.
  ...Object.entries(countries).map(([code, { native }]) => [comparedName(native), code] as const),
  ...iso31661.map(({ alpha2, alpha3 }) => [alpha3.toLowerCase(), alpha2] as const),
  ...iso31661.map(({ alpha2, name }) => [comparedName(name), alpha2] as const),
  ...Object.entries(countries).map(([code, { name }]) => [comparedName(name), code] as const),
  ...Object.entries(otherNames),
])

/** By code, by name in English or its own language, or by ISO 3166-1 alpha-3; null for an unknown country. */
export const countryCodeOf = (value: unknown): string | null => {
  if (typeof value !== 'string' || value.length > textCharactersMax) return null
  // Most names are already written in the compared form.
  const known = codesByName.get(value)
  if (known !== undefined) return known
  const code = value.trim().toUpperCase()
  return countryNames.has(code) ? code : (codesByName.get(comparedName(value)) ?? null)
}
