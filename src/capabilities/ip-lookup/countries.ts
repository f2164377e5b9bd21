/**
 * What follows from a country code alone: names, continent, membership of the EU, calling code.
 *
 * Names and continents come from countries-list 3.4.1, calling codes from libphonenumber-js; both are corrected
 * here where they are wrong, so that every source of locations gives the same answer for the same country.
 */
import { continents, countries } from 'countries-list'
import { getCountryCallingCode, isSupportedCountry } from 'libphonenumber-js/min'

type Country = Readonly<{
  name: string
  continent: string
  continent_code: string
  is_eu: boolean
  /** Digits only, without `+`: "1" for every country of the North American plan. */
  calling_code: string
}>

/**
 * The 27 members and the seven outermost territories that have codes of their own. It equals the list MaxMind
 * flags; XK, GB and the French territories outside the Union (NC, PF, BL, PM, WF, TF) are not on it.
 */
const euCodes = new Set(
  (
    'AT BE BG CY CZ DE DK EE ES FI FR GR HR HU IE IT LT LU LV MT NL PL PT RO SE SI SK ' +
    'AX GF GP MF MQ RE YT'
  ).split(' '),
)

/** countries-list puts these in Asia; GeoNames and MaxMind do not. */
const continentCorrections: Readonly<Record<string, 'EU' | 'OC'>> = { RU: 'EU', CX: 'OC' }

/** libphonenumber has no numbering plan for these; the code is that of the administering country. */
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
    if (callingCode === undefined) throw new Error(`countries.ts has no calling code for ${code}`)
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

/**
 * The country of an ISO 3166-1 alpha-2 code (upper case), XK included; null for a code we do not know, which a
 * database may hold. Covers all 249 assigned codes.
 */
export const countryByCode = (code: string): Country | null => {
  return table.get(code) ?? null
}
