import { describe, expect, test } from 'vitest'
import {
  aliasTexts,
  canonicalLid,
  createIdentifiers,
  idCharactersMax,
  numericIdOf,
} from '../../src/capabilities/profile/identifier.ts'
import { seededRandom } from '../ip-lookup/seeded-random.ts'
import { randomCases } from '../support/exhaustive.ts'

const anywhere = createIdentifiers({ domain: null, urnPrefix: null })
const configured = createIdentifiers({ domain: 'people.example.org', urnPrefix: 'urn:acme' })

const lid = (value: string) => ({ kind: 'lid', value })
const urn = (value: string) => ({ kind: 'urn', value })

describe('4.3 a profile id', () => {
  test.each([
    ['talvora-quill', 'talvora-quill'],
    ['Talvora-QUILL', 'talvora-quill'],
    ['a_b-9', 'a_b-9'],
    ['J%C3%BCrgen', 'jürgen'],
    ['Ju\u0308rgen', 'jürgen'],
    ['ÅNGSTRÖM', 'ångström'],
    ['\u212bngstr\u00f6m', 'ångström'],
    ['दीपक', 'दीपक'],
    ['star★man', 'star★man'],
    ['x'.repeat(100), 'x'.repeat(100)],
    ['😀😀😀', '😀😀😀'],
    // This capital letter has no composed form, but its small letter has one.
    ['J\u030cab', '\u01f0ab'],
    // Turkish rules would make this a dotless i.
    ['ISTANBUL', 'istanbul'],
  ])('%j is %j', (id, value) => {
    expect(anywhere.parse(id)).toEqual(lid(value))
  })

  test.each([
    '',
    'ab',
    '😀😀',
    'x'.repeat(101),
    'with space',
    'talvora\n',
    'tal\u200bvora',
    'a.b.c',
    'a\\b\\c',
    'a%zzb',
    '%41%2fb',
    'a%252Db',
    '%C3%28abc',
    '\ud800abc',
    ...Array.from("!@#$+.&'=<>?\\[]^{}", (character) => `ab${character}cd`),
  ])('%j is not one', (id) => {
    expect(anywhere.parse(id)).toBeNull()
  })
})

describe('4.3 a profile URL', () => {
  test.each([
    'https://www.profnet.com/in/talvora-quill',
    'www.profnet.com/in/talvora-quill',
    'profnet.com/in/talvora-quill/',
    'https://profnet.co.uk/in/talvora-quill',
    'https://www.profnet.com:443/in/talvora-quill',
    'https://www.profnet.com/comm/in/talvora-quill',
    'https://www.profnet.com/in/talvora-quill/pt-br/',
    'https://www.profnet.com/in/talvora-quill#/in/other',
  ])('%s leads to its id', (id) => {
    expect(anywhere.parse(id)).toEqual(lid('talvora-quill'))
  })

  test.each([
    'https://www.profnet.com/in/',
    'https://www.profnet.com/IN/talvora-quill',
    'https://www.profnet.com/pub/talvora/quill/1/2',
    'https://www.profnet.com/in/talvora-quill/recent-activity',
    'https://www.profnet.com/in/talvora-quill/details/../../other',
    'https://www.profnet.com/in/other/%2e%2e/talvora-quill',
    'https://www.profnet.com\\in\\talvora-quill',
    'https://www.profnet.com/in/talvora%2fquill',
    'https://www.profnet.com/in/tal\nvora',
    'https://www.profnet.com/in/talvora?a=b\n',
    'https:/www.profnet.com/in/talvora-quill',
    'ftp://www.profnet.com/in/talvora-quill',
    'https://user@www.profnet.com/in/talvora-quill',
    'https://www.profnet.com@evil.example/in/talvora-quill',
    'https://evil.example\\@www.profnet.com/in/talvora-quill',
    'https://www.profnet.com:8443/in/talvora-quill',
    'https://www.profnet.com.evil.example/in/talvora-quill',
    'https://notprofnet.com/in/talvora-quill',
    'https://profnet.github.io/in/talvora-quill',
    'https://ｗｗｗ.profnet.com/in/talvora-quill',
    'https://www.profnet.com./in/talvora-quill',
  ])('%j leads to no id', (id) => {
    expect(anywhere.parse(id)).toBeNull()
  })

  test('a configured domain replaces the default, and allows one label below it', () => {
    for (const host of ['people.example.org', 'www.people.example.org', 'de.people.example.org'])
      expect(configured.parse(`https://${host}/in/talvora`)).toEqual(lid('talvora'))
    for (const host of ['www.profnet.com', 'example.org', 'a.b.people.example.org', '-.people.example.org'])
      expect(configured.parse(`https://${host}/in/talvora`)).toBeNull()
  })

  test("the URL we print is the network's, encoded, and leads back to the id", () => {
    expect(anywhere.urlOf('talvora')).toBe('https://www.profnet.com/in/talvora')
    expect(anywhere.urlOf('jürgen')).toBe('https://www.profnet.com/in/j%C3%BCrgen')
    expect(createIdentifiers({ domain: 'example.org', urnPrefix: null }).urlOf('abc')).toBe(
      'https://www.example.org/in/abc',
    )
    expect(configured.urlOf('abc')).toBe('https://people.example.org/in/abc')
    expect(anywhere.urlOf('\ud800')).toBe('https://www.profnet.com/in/%EF%BF%BD')
  })
})

describe('4.3 a person URN', () => {
  test.each([
    ['urn:profnet:person:123', '123'],
    ['profnet:person:1', '1'],
    ['urn:li:person:9223372036854775807', '9223372036854775807'],
    ['URN:Profnet:person:123', '123'],
  ])('%s is number %s, as text', (id, value) => {
    expect(anywhere.parse(id)).toEqual(urn(value))
  })

  test.each([
    'urn:profnet:person:0',
    'urn:profnet:person:012',
    'urn:profnet:person:12345678901234567890',
    'urn:profnet:person:',
    'urn:profnet:person:12 ',
    'urn:profnet:Person:12',
    'urn:profnet:company:12',
    ':person:12',
    'urn:profnet:person:１２',
  ])('%j is not one', (id) => {
    expect(anywhere.parse(id)).toBeNull()
  })

  test('a configured prefix replaces the default', () => {
    expect(configured.parse('urn:acme:person:7')).toEqual(urn('7'))
    expect(configured.parse('acme:person:7')).toBeNull()
    expect(configured.parse('urn:profnet:person:7')).toBeNull()
  })
})

describe('any input', () => {
  test('text over the length limit is not an identifier, however it begins', () => {
    const query = `https://www.profnet.com/in/talvora?${'q'.repeat(idCharactersMax)}`
    expect(anywhere.parse(query.slice(0, idCharactersMax))).toEqual(lid('talvora'))
    expect(anywhere.parse(query)).toBeNull()
  })

  test('nothing throws, and accepted ids are canonical and survive a round trip through their own URL', () => {
    // These characters matter to the parser, so many texts get past its first steps.
    const pieces = [
      ...'abzÄßİǅ0-_~%/\\?#@:.☆\u0301\u200d\ud83d\ude00\n ',

      'https://',
      'www.',
      'profnet',
      '.com',
      '/in/',
      'urn:',
      ':person:',
      '%2e',
      '%C3%BC',
      '12',
      '/comm',
      'details/',
    ]
    const random = seededRandom(20_261_121)
    let accepted = 0
    for (let count = 0; count < randomCases(40_000); count++) {
      let id = ''
      for (let length = 1 + random.integer(8); length > 0; length--) id += random.pick(pieces)
      const ref = anywhere.parse(id)
      if (ref === null) continue
      accepted++
      if (ref.kind === 'urn') continue
      if (canonicalLid(ref.value) !== ref.value) throw new Error(`${JSON.stringify(id)} is not canonical`)
      if (anywhere.parse(anywhere.urlOf(ref.value))?.value !== ref.value)
        throw new Error(`${JSON.stringify(id)} does not survive the round trip`)
    }
    expect(accepted).toBeGreaterThan(randomCases(800))
  })
})

describe('formats that sources use', () => {
  test.each([
    [12, '12'],
    ['12', '12'],
    ['urn:any:person:12', '12'],
    ['urn:any:member:12', '12'],
    [2 ** 53, null],
    [1.5, null],
    [-1, null],
    ['urn:any:company:12', null],
    ['012', null],
    ['', null],
    [null, null],
    [{}, null],
  ])('the number in %j is %j', (value, expected) => {
    expect(numericIdOf(value)).toBe(expected)
  })

  test('aliases are texts with their kind', () => {
    expect(aliasTexts({ lid: 'abc', urn: '5' })).toEqual(['lid:abc', 'urn:5'])
    expect(aliasTexts({ lid: 'abc', urn: null })).toEqual(['lid:abc'])
  })
})
