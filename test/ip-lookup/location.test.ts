import { describe, expect, it } from 'vitest'
import { recordShape, toLocation } from '../../src/capabilities/ip-lookup/location.ts'
import { london, nowhere } from './locations.ts'

const nested = {
  city: { geoname_id: 2643743, names: { de: 'London', en: 'London' } },
  continent: { code: 'EU', names: { en: 'Europe' } },
  country: { iso_code: 'GB', names: { en: 'United Kingdom' } },
  location: { accuracy_radius: 10, latitude: 51.5142, longitude: -0.0931, time_zone: 'Europe/London' },
  postal: { code: 'EC4N' },
  registered_country: { iso_code: 'US', names: { en: 'United States' } },
  subdivisions: [
    { iso_code: 'ENG', names: { en: 'England' } },
    { iso_code: 'LND', names: { en: 'London' } },
  ],
}

const flat = {
  city: 'Mountain View',
  country_code: 'US',
  latitude: 37.42200088500977,
  longitude: -122.08499908447266,
  postcode: '94043',
  state1: 'California',
  state2: '',
  timezone: '',
}

const countryOnly = {
  as_domain: 'example.net',
  asn: 'AS64500',
  continent: 'Oceania',
  continent_code: 'OC',
  country: 'Australia',
  country_code: 'AU',
}

describe('the three record formats give one location', () => {
  it('nested: the names, codes and flags of the record', () => {
    expect(recordShape(nested)).toBe('nested')
    expect(toLocation(nested)).toEqual(london)
  })

  it('nested without a subdivision code: the code by name', () => {
    expect(toLocation({ ...nested, subdivisions: [{ names: { en: 'Scotland' } }] })).toMatchObject({
      region: 'Scotland',
      region_code: 'SCT',
    })
  })

  it('nested: the flag of the file takes precedence over our list', () => {
    const country = { iso_code: 'GB', is_in_european_union: true, names: { en: 'United Kingdom' } }
    expect(toLocation({ ...nested, country })?.is_eu).toBe(true)
    const denied = { iso_code: 'FR', is_in_european_union: false, names: { en: 'France' } }
    expect(toLocation({ ...nested, country: denied })?.is_eu).toBe(false)
    expect(toLocation({ country: { iso_code: 'FR' } })?.is_eu).toBe(true)
  })

  it('nested with only a country code: the rest from the country table', () => {
    expect(toLocation({ country: { iso_code: 'FR' } })).toEqual({
      ...nowhere,
      continent: 'Europe',
      continent_code: 'EU',
      country: 'France',
      country_code: 'FR',
      is_eu: true,
      calling_code: '33',
    })
  })

  it('flat: names by code, coordinates at four decimals', () => {
    expect(recordShape(flat)).toBe('flat')
    expect(toLocation(flat)).toEqual({
      continent: 'North America',
      continent_code: 'NA',
      country: 'United States',
      country_code: 'US',
      region: 'California',
      region_code: 'CA',
      city: 'Mountain View',
      latitude: 37.422,
      longitude: -122.085,
      postal: '94043',
      is_eu: false,
      calling_code: '1',
    })
  })

  it('flat with empty texts: null, never ""', () => {
    const empty = {
      city: '',
      country_code: 'DE',
      latitude: '',
      longitude: '',
      postcode: '',
      state1: '',
      state2: '',
    }
    expect(toLocation(empty)).toMatchObject({
      city: null,
      region: null,
      region_code: null,
      postal: null,
      latitude: null,
      longitude: null,
    })
  })

  it('flat with coordinates as texts: numbers', () => {
    expect(toLocation({ ...flat, latitude: '52.51961', longitude: '-0.00001' })).toMatchObject({
      latitude: 52.5196,
      longitude: 0,
    })
  })

  it('country only: no city', () => {
    expect(recordShape(countryOnly)).toBe('country')
    expect(toLocation(countryOnly)).toEqual({
      ...nowhere,
      continent: 'Oceania',
      continent_code: 'OC',
      country: 'Australia',
      country_code: 'AU',
      calling_code: '61',
    })
  })

  it('an unknown country code is returned alone', () => {
    expect(toLocation({ ...flat, country_code: 'ZZ' })).toMatchObject({
      country: null,
      country_code: 'ZZ',
      continent: null,
      region: 'California',
      region_code: null,
      calling_code: null,
      is_eu: false,
    })
  })
})

describe('a record without a country is not a location', () => {
  it.each([
    ['null', null],
    ['a text', 'US'],
    ['a list', [flat]],
    ['empty', {}],
    ['nested, only a registered country', { registered_country: { iso_code: 'US' } }],
    ['nested, only a continent', { continent: { code: 'EU', names: { en: 'Europe' } } }],
    ['nested, a country without a code', { country: { names: { en: 'France' } } }],
    ['flat, an empty code', { ...flat, country_code: '' }],
    ['flat, a lower-case code', { ...flat, country_code: 'us' }],
    ['flat, a code of other bytes', { ...flat, country_code: '\0\0' }],
    ['an AS number file', { autonomous_system_number: 64500, autonomous_system_organization: 'Example' }],
  ])('%s', (_, record) => {
    expect(toLocation(record)).toBeNull()
  })
})

describe('values of the wrong type or range become null', () => {
  it.each([
    ['latitude', 90.0001],
    ['latitude', Number.NaN],
    ['latitude', Number.POSITIVE_INFINITY],
    ['latitude', true],
    ['latitude', 'north'],
    ['longitude', -180.0001],
    ['city', 7],
    ['postcode', ['94043']],
    ['state1', { en: 'California' }],
  ])('%s %j', (field, value) => {
    const wire = { postcode: 'postal', state1: 'region' }[field] ?? field
    expect(toLocation({ ...flat, [field]: value })).toMatchObject({ [wire]: null })
  })

  it('nested parts of the wrong type', () => {
    const broken = {
      ...nested,
      city: 'London',
      subdivisions: 'England',
      location: [1, 2],
      postal: null,
      continent: 1,
    }
    expect(toLocation(broken)).toMatchObject({
      city: null,
      region: null,
      latitude: null,
      postal: null,
      continent: 'Europe',
    })
  })

  it('a text with a NUL, as a hole in the file leaves it, makes the record invalid', () => {
    expect(() => toLocation({ ...flat, city: 'Mount\0\0\0\0View' })).toThrow('damaged')
  })
})
