import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import {
  companyOf,
  countryCodeOf,
  profnetUrlAmong,
  sizeRangeOfCount,
} from '../../src/capabilities/email-validation/company/record.ts'
import { registrableDomainOf } from '../../src/capabilities/email-validation/company/web-address.ts'
import { type CompanyResult, companyResult } from '../../src/capabilities/email-validation/contract.ts'
import { randomCases } from '../support/exhaustive.ts'

/** A record in a data set becomes a company, or is refused with a reason. */

const defaults = { source: 'pdl', sourceUpdatedAt: '2026-10-01T00:00:00.000Z', yearMax: 2026 }

const taken = (raw: unknown): CompanyResult => {
  const read = companyOf(raw, defaults)
  if ('refused' in read) throw new Error(`refused: ${read.refused}`)
  return read.company
}
const refusal = (raw: unknown): string | null => {
  const read = companyOf(raw, defaults)
  return 'refused' in read ? read.refused : null
}
const preferred = (...raws: object[]): string => {
  const ranked = raws.map((raw) => companyOf(raw, defaults)).flatMap((one) => ('refused' in one ? [] : [one]))
  ranked.sort((a, b) => b.preference - a.preference || (a.tieBreak < b.tieBreak ? -1 : 1))
  return ranked[0]?.company.name ?? ''
}

const pdl = {
  id: 'acme-anvils',
  name: 'acme anvils',
  website: 'acme-anvils.com',
  founded: '1949',
  size: '201-500',
  industry: 'mining & metals',
  locality: 'graz',
  region: 'styria',
  country: 'austria',
  linkedin_url: 'linkedin.com/company/acme-anvils',
}

const acme: CompanyResult = {
  name: 'acme anvils',
  legal_name: null,
  domain: 'acme-anvils.com',
  website: 'https://acme-anvils.com',
  industry: 'mining & metals',
  size_range: '201-500',
  employee_count: null,
  founded_year: 1949,
  location: { locality: 'graz', region: 'styria', country: 'Austria', country_code: 'AT' },
  profnet_url: 'https://linkedin.com/company/acme-anvils',
  logo_url: null,
  source: 'pdl',
  source_updated_at: '2026-10-01T00:00:00.000Z',
}

describe('shapes', () => {
  test("a record of the free company data set becomes a company in the answer's shape", () => {
    expect(taken(pdl)).toEqual(acme)
    expect(companyResult.parse(taken(pdl))).toEqual(acme)
  })

  test('our own shape is taken unchanged, including source and edition', () => {
    const own = {
      ...acme,
      legal_name: 'Acme Anvils GmbH',
      source: 'crm',
      source_updated_at: '2025-01-02T03:04:05.000Z',
    }
    expect(taken(own)).toEqual(own)
  })

  test.each([[null], ['text'], [7], [[pdl]]])('%j is not a record', (raw) => {
    expect(refusal(raw)).toBe('not_an_object')
  })
})

describe('domains', () => {
  test.each([
    ['https://WWW.Example.co.uk:8443/a/b?c#d', 'example.co.uk', 'https://www.example.co.uk:8443/a/b'],
    ['http://example.com', 'example.com', 'http://example.com'],
    ['//shop.example.com/', 'example.com', 'https://shop.example.com'],
    ['example.com:8080', 'example.com', 'https://example.com:8080'],
    ['münchen-test.de', 'xn--mnchen-test-thb.de', 'https://xn--mnchen-test-thb.de'],
    ['http://user:secret@example.com/', 'example.com', 'http://example.com'],
  ])('%s is found in %s', (website, domain, shown) => {
    expect(taken({ name: 'a', website })).toMatchObject({ domain, website: shown })
  })

  test.each([['http://192.0.2.1/'], ['com'], ['localhost'], ['mailto:someone@example.com']])(
    '%j contains no domain',
    (website) => {
      expect(refusal({ name: 'a', website })).toBe('website_unusable')
    },
  )

  test.each([[undefined], [null], [''], ['  '], ['null']])(
    'a missing website (%j) is not an error',
    (website) => {
      expect(refusal({ name: 'a', website })).toBe('no_domain')
    },
  )

  test('a domain takes precedence over the website; an unreadable website is then left out', () => {
    expect(taken({ name: 'a', domain: 'Example.com', website: 'ftp://x' })).toMatchObject({
      domain: 'example.com',
      website: null,
    })
  })

  test('the registrable domain of a host is used', () => {
    expect(registrableDomainOf('a.b.example.co.uk')).toBe('example.co.uk')
    expect(registrableDomainOf('MÜNCHEN-test.de')).toBe('xn--mnchen-test-thb.de')
    expect(registrableDomainOf('blogspot.com')).toBeNull()
    expect(registrableDomainOf('')).toBeNull()
  })
})

describe('values', () => {
  test.each([
    ['1-10', '1-10'],
    ['51–200 employees', '51-200'],
    ['10001+', '10001+'],
    ['10,001+', '10001+'],
    ['many', null],
  ])('size %j is %j', (size, range) => {
    expect(taken({ ...pdl, size }).size_range).toBe(range)
  })

  test.each([
    [0, null],
    [1, '1-10'],
    [10, '1-10'],
    [11, '11-50'],
    [200, '51-200'],
    [5_000, '1001-5000'],
    [10_000, '5001-10000'],
    [10_001, '10001+'],
  ])('%d employees are %j', (count, range) => {
    expect(sizeRangeOfCount(count)).toBe(range)
    expect(taken({ ...pdl, size: null, employee_count: count })).toMatchObject({
      employee_count: count,
      size_range: range,
    })
  })

  test.each([
    [1949, 1949],
    ['1949-04-01', 1949],
    [578, 578],
    [2027, null],
    [-1949, null],
    ['nineteen', null],
  ])('founded %j is %j', (founded, year) => {
    expect(taken({ ...pdl, founded }).founded_year).toBe(year)
  })

  test.each([
    ['united states', 'US'],
    ['United Kingdom of Great Britain and Northern Ireland', 'GB'],
    ['Deutschland', 'DE'],
    ['türkiye', 'TR'],
    ['aut', 'AT'],
  ])('country %j has the code %j', (country, code) => {
    expect(countryCodeOf(country)).toBe(code)
  })

  test('an unknown country keeps its name and has no code', () => {
    expect(taken({ ...pdl, country: 'atlantis' }).location).toMatchObject({
      country: 'atlantis',
      country_code: null,
    })
  })

  test('control characters and direction marks are removed from text, which is then composed', () => {
    expect(taken({ ...pdl, name: ' A\u0000b\tc \u202eevil\u202c  Mu\u0308ller\u200b ' }).name).toBe(
      'A b c evil Müller',
    )
  })

  test.each([
    [{ name: '' }, 'name_missing'],
    [{ name: '\u0000\u0001' }, 'name_missing'],
    [{ name: 'x'.repeat(201) }, 'name_too_long'],
    [{ name: 'lone \ud800' }, 'name_not_text'],
  ])('a record with %j is refused: %s', (members, reason) => {
    expect(refusal({ ...pdl, ...members })).toBe(reason)
  })

  test('other texts that are too long, or not text, are unknown', () => {
    expect(
      taken({
        ...pdl,
        industry: 'x'.repeat(121),
        locality: '\ud800',
        logo_url: `https://example.com/${'x'.repeat(600)}`,
      }),
    ).toMatchObject({ industry: null, logo_url: null, location: { locality: null } })
  })

  test("of a page's links only the company's page at the network is taken, not similar pages", () => {
    expect(
      profnetUrlAmong([
        7,
        'https://example.com/company/acme',
        'https://linkedin.com.example.com/company/acme',
        'https://www.linkedin.com/in/someone',
        'https://at.linkedin.com/company/acme?x=1',
      ]),
    ).toBe('https://at.linkedin.com/company/acme')
    expect(profnetUrlAmong([])).toBeNull()
  })
})

describe('which of several records represents a domain', () => {
  const base = { website: 'example.com', size: '11-50', industry: 'x' }

  test('the one whose website is the domain itself, before a larger one on a page or subdomain of it', () => {
    const direct = { ...base, name: 'direct', website: 'www.example.com/', size: '1-10' }
    const page = { ...base, name: 'page', website: 'example.com/stores/page', size: '10001+' }
    const subdomain = { ...base, name: 'subdomain', website: 'shop.example.com', size: '10001+' }
    expect(preferred(page, direct, subdomain)).toBe('direct')
    expect(preferred(direct, subdomain, page)).toBe('direct')
  })

  test('then the larger one, then the one with more data, then the lower id', () => {
    expect(
      preferred(
        { ...base, name: 'small', founded: 1990, region: 'y' },
        { ...base, name: 'large', size: '51-200' },
      ),
    ).toBe('large')
    expect(preferred({ ...base, name: 'terse' }, { ...base, name: 'full', founded: 1990 })).toBe('full')
    expect(preferred({ ...base, name: 'b', id: '2' }, { ...base, name: 'a', id: '1' })).toBe('a')
  })
})

test('parsing a record with any content never throws, and the result fits the answer', () => {
  const names = [
    'id',
    'name',
    'website',
    'domain',
    'founded',
    'size',
    'industry',
    'country',
    'location',
    'linkedin_url',
    'logo_url',
    'source',
  ]
  const value = fc.oneof(fc.jsonValue(), fc.webUrl(), fc.string({ unit: 'binary' }), fc.domain())
  const raw = fc.oneof(
    fc.dictionary(fc.constantFrom(...names), value),
    fc.jsonValue(),
    fc.record({
      name: fc.string({ unit: 'binary', minLength: 1 }),
      website: fc.oneof(fc.webUrl(), fc.domain()),
    }),
  )
  fc.assert(
    fc.property(raw, (record) => {
      const read = companyOf(record, defaults)
      if ('refused' in read) return
      companyResult.parse(read.company)
      expect(JSON.stringify(read.company)).not.toMatch(/\\u0000|\\ud[89a-f]/)
      expect(registrableDomainOf(read.company.domain)).toBe(read.company.domain)
    }),
    { numRuns: randomCases(1_000) },
  )
})
