import { iso31661 } from 'iso-3166'
import { describe, expect, it } from 'vitest'
import { countryByCode } from '../../src/capabilities/ip-lookup/location.ts'

const codes = [
  ...iso31661.filter((country) => country.state === 'assigned').map(({ alpha2 }) => alpha2),
  'XK',
]

describe('countries', () => {
  it('all 250 country codes have a name, a continent and a calling code', () => {
    expect(codes).toHaveLength(250)
    for (const code of codes) {
      const country = countryByCode(code)
      expect(country, code).toEqual({
        name: expect.stringMatching(/\S/),
        continent: expect.stringMatching(
          /^(Africa|Antarctica|Asia|Europe|North America|Oceania|South America)$/,
        ),
        continent_code: expect.stringMatching(/^(AF|AN|AS|EU|NA|OC|SA)$/),
        is_eu: expect.any(Boolean),
        calling_code: expect.stringMatching(/^[1-9]\d{0,2}$/),
      })
      expect(Object.isFrozen(country)).toBe(true)
    }
  })

  it('the 27 members and seven outermost territories are in the EU, and no other', () => {
    const members = 'AT BE BG CY CZ DE DK EE ES FI FR GR HR HU IE IT LT LU LV MT NL PL PT RO SE SI SK'.split(
      ' ',
    )
    const territories = 'AX GF GP MF MQ RE YT'.split(' ')
    expect(members).toHaveLength(27)
    expect(codes.filter((code) => countryByCode(code)?.is_eu).sort()).toEqual(
      [...members, ...territories].sort(),
    )
  })

  it.each([
    ['RU', 'EU'],
    ['CX', 'OC'],
    ['TR', 'AS'],
    ['CY', 'EU'],
    ['XK', 'EU'],
    ['AQ', 'AN'],
  ])('%s is in %s', (code, continent) => {
    expect(countryByCode(code)?.continent_code).toBe(continent)
  })

  it.each([
    ['US', '1'],
    ['DO', '1'],
    ['KZ', '7'],
    ['XK', '383'],
    ['CW', '599'],
    ['AQ', '672'],
    ['UM', '1'],
  ])('%s has the calling code %s', (code, callingCode) => {
    expect(countryByCode(code)?.calling_code).toBe(callingCode)
  })

  it.each(['', 'us', 'ZZ', 'AN', 'EU', '__proto__', 'constructor'])('%j is not a country', (code) => {
    expect(countryByCode(code)).toBeNull()
  })
})
