import { describe, expect, test } from 'vitest'
import { profileResult, resultOf } from '../../src/capabilities/profile/contract.ts'
import { inventedPeople } from '../../src/capabilities/profile/dataset/invented-people.ts'
import { createIdentifiers } from '../../src/capabilities/profile/identifier.ts'
import { declaredMapping } from '../../src/capabilities/profile/mapping/declared.ts'
import { memberOf } from '../../src/capabilities/profile/mapping/fields.ts'
import { languageCode } from '../../src/capabilities/profile/mapping/languages.ts'
import {
  endOf,
  isEmptyProfile,
  mapProfile,
  partialDate,
  profileCharactersMax,
  profileDataOf,
} from '../../src/capabilities/profile/mapping/mapping.ts'
import { textBytesMax } from '../../src/capabilities/profile/sources/provider.ts'
import { everyNth } from '../support/exhaustive.ts'

const identifiers = createIdentifiers({ domain: null, urnPrefix: null })
const nothing = profileDataOf({})

describe('dates keep the precision that is known', () => {
  test.each([
    ['2019', '2019'],
    [' 2019-05 ', '2019-05'],
    ['2019-05-17T23:59:59-11:00', '2019-05-17'],
    ['2020-02-29', '2020-02-29'],
    [{ year: 2019 }, '2019'],
    [{ year: 2019, month: 5, day: 17 }, '2019-05-17'],
  ])('%j is %j', (value, expected) => {
    expect(partialDate(value)).toBe(expected)
  })

  test.each([
    '',
    '19',
    '2019-5',
    '2019-13',
    '2019-00',
    '2019-02-30',
    '2019-02-29',
    '2019-05-00',
    '20190517',
    'May 2019',
    '05/2019',
    '2019-05-17x',
    '0001-01-01',
    '9999-12-31',
    'Present',
    '２０１９',

    19,
    2019.5,
    Number.NaN,
    null,
    undefined,
    true,
    [],
    [2019],
    {},
    { year: '2019' },
    { year: 2019, day: 3 },
  ])('%j is not a date', (value) => {
    expect(partialDate(value)).toBeNull()
  })

  test.each([
    [null, undefined, null, true],
    ['', undefined, null, true],
    ['current', undefined, null, true],
    [null, false, null, false],
    ['2019-05', false, '2019-05', false],
    ['whenever', undefined, null, false],
  ])('an end of %j, current given as %j: %j, current %j', (value, told, endDate, isCurrent) => {
    expect(endOf(value, told)).toEqual({ endDate, isCurrent })
  })
})

describe('languages get their ISO 639-1 code, or else their ISO 639-3 code', () => {
  test.each([
    ['German', 'de'],
    ['de-AT', 'de'],
    ['Chinese (Simplified)', 'zh'],
    ['English - native', 'en'],
    ['yue-HK', 'yue'],
    ['Filipino', 'fil'],
  ])('%s is %s', (text, code) => {
    expect(languageCode(text)).toBe(code)
  })

  test.each(['', ' ', '-', 'xx', 'xxx', 'und', 'mul', 'Elvish', 'native', 'constructor', 'a'.repeat(10_000)])(
    '%j is not a language',
    (text) => {
      expect(languageCode(text)).toBeNull()
    },
  )
})

describe('our own members', () => {
  const full = {
    lid: 'Talvora-Quill',
    urn: 'urn:profnet:person:12',
    firstname: ' Talvora ',
    lastname: 'Quill',
    numOfConnections: '500+',
    headline: 'Engineer',
    about: 'Line one\nline two',
    skills: ['SQL', 'SQL', { name: 'Welding' }, '', null, '***'],
    languages: [{ value: 'German' }, 'Klingon', { value: 'Speech', norm: 'en-GB' }, { value: '' }, 7],
    address: { city: 'Leipzig', country_code: 'de', postal_code: 4103 },
    educations: [{ name: 'A school', startDate: '2001', endDate: 'present' }, {}, 'text'],
    employment_history: [
      {
        title: 'Lead',
        startDate: '2019-05',
        endDate: null,
        company: { company_name: 'Nimbrel', lid: 'nimbrel' },
      },
      { title: 'Clerk', endDate: '2019', is_current: true, company: 'Plumbline' },
      {},
    ],
    emails: [
      'a@example.com',
      { value: 'mailto:b@example.org', sub_type: 'personal' },
      'a@example.com',
      'none',
    ],
    phone_numbers: [
      { value: '+1 (202) 555-0143', sub_type: 'mobile phone' },
      'tel:+44-7700-900123',
      '+1 2',
      '+1 555-0100',
      'x',
    ],
    observed_at: '2026-11-20T10:00:00Z',
  }

  test('each value is checked and normalized; invalid values are null or left out', () => {
    expect(mapProfile(full, identifiers)).toEqual({
      lid: 'talvora-quill',
      urn: '12',
      observedAtMs: Date.UTC(2026, 10, 20, 10),
      formerLids: [],
      deleted: false,
      data: {
        firstname: 'Talvora',
        lastname: 'Quill',
        numOfConnections: 500,
        headline: 'Engineer',
        about: 'Line one\nline two',
        skills: ['SQL', 'Welding'],
        languages: [
          { value: 'German', norm: 'de' },
          { value: 'Klingon', norm: 'tlh' },
          { value: 'Speech', norm: 'en' },
          { value: '7', norm: null },
        ],
        address: {
          street: null,
          city: 'Leipzig',
          state: null,
          postal_code: '4103',
          country: 'Germany',
          country_code: 'DE',
        },
        educations: [{ urn: null, name: 'A school', degree: null, startDate: '2001', endDate: null }],
        employment_history: [
          {
            title: 'Lead',
            description: null,
            startDate: '2019-05',
            endDate: null,
            location: null,
            is_current: true,
            company: { lid: 'nimbrel', company_name: 'Nimbrel', urn: null },
          },
          {
            title: 'Clerk',
            description: null,
            startDate: null,
            endDate: null,
            location: null,
            is_current: true,
            company: { lid: null, company_name: 'Plumbline', urn: null },
          },
        ],
        emails: [
          { value: 'a@example.com', sub_type: null },
          { value: 'b@example.org', sub_type: 'PERSONAL' },
        ],
        phone_numbers: [
          { value: '+12025550143', sub_type: 'MOBILE_PHONE' },
          { value: '+447700900123', sub_type: null },
        ],
      },
    })
  })

  test('mapping a mapped profile changes nothing', () => {
    const mapped = mapProfile(full, identifiers)
    expect(profileDataOf(JSON.parse(JSON.stringify(mapped?.data)))).toEqual(mapped?.data)
  })

  test("a number without a country code belongs to the person's country", () => {
    const phone_numbers = ['(202) 555-0143']
    expect(profileDataOf({ phone_numbers, address: { country_code: 'US' } }).phone_numbers).toEqual([
      { value: '+12025550143', sub_type: null },
    ])
    expect(profileDataOf({ phone_numbers }).phone_numbers).toEqual([])
  })

  test.each([
    ['Germany', undefined, 'Germany', null],
    [undefined, 'FR', 'France', 'FR'],
    [undefined, 'ZZ', null, null],
    [undefined, 'FRA', null, null],
  ])('country %j with code %j is %j, %j', (country, country_code, expected, code) => {
    const { address } = profileDataOf({ address: { city: 'Somewhere', country, country_code } })
    expect(address).toMatchObject({ country: expected, country_code: code })
  })

  test('nothing throws and no data is invented, for any members', () => {
    const values = [null, 0, -1, Number.NaN, '', '\0', [], {}, [[]], [null], { value: {} }, true, '__proto__']
    for (const value of values) {
      const record = Object.fromEntries(
        Object.keys({ ...nothing, lid: 0, urn: 0, url: 0 }).map((name) => [name, value]),
      )
      const mapped = mapProfile(record, identifiers)
      const data = mapped?.data ?? nothing
      expect(profileResult.parse(resultOf(data, { lid: 'abc', url: 'u', deleted: false }))).toBeDefined()
    }
    for (const value of ['text', 7, null, undefined, [], [{}]])
      expect(mapProfile(value, identifiers)).toBeNull()
    expect(
      mapProfile(JSON.parse('{"__proto__": {"lid": "abc", "firstname": "Eve"}}'), identifiers),
    ).toMatchObject({
      lid: null,
      data: nothing,
    })
    expect(isEmptyProfile(nothing)).toBe(true)
    expect(isEmptyProfile({ ...nothing, skills: ['SQL'] })).toBe(false)
  })

  test('texts, lists and the whole answer are truncated to their limits, at whole characters', () => {
    const data = profileDataOf({
      firstname: '€'.repeat(50_000),
      about: `x${'€'.repeat(50_000)}`,
      skills: Array.from({ length: 5_000 }, (_, index) => `skill ${index}`),
    })
    expect(data.firstname).toBe('€'.repeat(333))
    expect(Buffer.byteLength(data.about ?? '')).toBe(textBytesMax)
    expect(data.about?.endsWith('€')).toBe(true)
    expect(data.skills).toHaveLength(200)
    const huge = profileDataOf({
      employment_history: Array.from({ length: 300 }, () => ({
        title: 'x',
        description: 'y'.repeat(20_000),
      })),
      emails: Array.from({ length: 300 }, (_, index) => `a${index}@example.com`),
    })
    expect(JSON.stringify(huge).length).toBeLessThanOrEqual(profileCharactersMax)
    expect(huge.employment_history.length).toBeGreaterThan(5)
  })

  test('control characters and lone surrogates are removed', () => {
    expect(profileDataOf({ headline: 'a\0b\u0007c\ud800' }).headline).toBe('a b c\ufffd')
  })
})

describe('a declared mapping', () => {
  const body = {
    meta: { seen: '2026-11-20T10:00:00Z', gone: false },
    people: [
      {
        slug: 'talvora-quill',
        number: 12,
        names: { first: 'Talvora' },
        tags: ['SQL'],
        home: { town: 'Leipzig', land: 'DE' },
        jobs: [{ role: 'Lead', at: { name: 'Nimbrel' }, since: 2019 }],
        mails: ['talvora@example.com'],
      },
    ],
  }
  const declared = {
    lid: 'people.0.slug',
    urn: 'people.0.number',
    observed_at: 'meta.seen',
    deleted: 'meta.gone',
    firstname: 'people.0.names.first',
    skills: 'people.0.tags',
    address: { path: 'people.0.home', fields: { city: 'town', country_code: 'land' } },
    employment_history: {
      path: 'people.0.jobs',
      fields: { title: 'role', 'company.company_name': 'at.name', startDate: 'since' },
    },
    emails: { path: 'people.0.mails', fields: { value: '.' } },
  }

  test('finds our members in any shape', () => {
    const mapped = mapProfile(declaredMapping(declared)(body), identifiers)
    expect(mapped).toMatchObject({
      lid: 'talvora-quill',
      urn: '12',
      observedAtMs: Date.UTC(2026, 10, 20, 10),
      data: {
        firstname: 'Talvora',
        skills: ['SQL'],
        address: { city: 'Leipzig', country: 'Germany' },
        employment_history: [{ title: 'Lead', startDate: '2019', company: { company_name: 'Nimbrel' } }],
        emails: [{ value: 'talvora@example.com' }],
      },
    })
  })

  test('may start below the top level', () => {
    const rewrite = declaredMapping({ root: 'people.0', lid: 'slug', firstname: 'names.first' })
    expect(mapProfile(rewrite(body), identifiers)).toMatchObject({
      lid: 'talvora-quill',
      data: { firstname: 'Talvora' },
    })
  })

  test('finds nothing in any other shape, and no inherited properties', () => {
    const rewrite = declaredMapping({
      ...declared,
      firstname: 'constructor.name',
      lastname: '__proto__.toString',
    })
    expect(memberOf(Object.create({ firstname: 'Eve' }), 'firstname')).toBeUndefined()
    for (const other of [null, 7, 'text', [], {}, { people: null }, { people: [{ jobs: 'x', home: [] }] }])
      expect(mapProfile(rewrite(other), identifiers)?.data).toEqual(nothing)
  })

  test.each([
    [{}, /lid or url/],
    [{ lid: 'a', nickname: 'b' }, /nickname/],
    [{ lid: '' }, /lid/],
    [{ lid: 'a..b' }, /lid/],
    [{ lid: 'a', emails: { path: 'b', fields: { address: 'c' } } }, /emails/],
    [7, /object/],
  ])('%j is refused by name', (declaration, message) => {
    expect(() => declaredMapping(declaration)).toThrow(message)
  })
})

describe('the sample people', () => {
  const people = [...inventedPeople()]

  test('cannot be contacted: their addresses and numbers are reserved for examples', () => {
    const data = people.map((person) => profileDataOf(person))
    for (const { value } of data.flatMap(({ emails }) => emails))
      expect(value).toMatch(/@example\.(com|org)$/)
    for (const { value } of data.flatMap((one) => one.phone_numbers))
      expect(value).toMatch(/^(\+120255501\d\d|\+447700900\d{3})$/)
    expect(data.flatMap(({ emails }) => emails).length).toBeGreaterThan(200)
  })
})

describe('a record made to slow us down', () => {
  test.each(everyNth(2, [' ', ' (', '/company/', 'a:person:1', '\u0301', 'a@']))(
    'with %j repeated in every member is read quickly',
    (piece) => {
      const text = `${piece.repeat(Math.ceil(500_000 / piece.length))}!`
      const members =
        'lid url urn firstname numOfConnections headline about skills languages address emails observed_at'
      const before = process.threadCpuUsage()
      const record = Object.fromEntries(members.split(' ').map((member) => [member, text]))
      mapProfile(
        {
          ...record,
          employment_history: [{ title: text, startDate: text, endDate: text, company: text }],
        },
        identifiers,
      )
      expect(process.threadCpuUsage(before).user / 1_000).toBeLessThan(300)
    },
  )
})
