import { describe, expect, test } from 'vitest'
import {
  noData,
  parseProfileRequest,
  profileNotFound,
  profileResult,
  resultOf,
} from '../../src/capabilities/profile/contract.ts'
import { createIdentifiers } from '../../src/capabilities/profile/identifier.ts'
import { profileDataOf } from '../../src/capabilities/profile/mapping/mapping.ts'

const identifiers = createIdentifiers({ domain: null, urnPrefix: null })
const parse = (body: Record<string, unknown>) => parseProfileRequest(body, identifiers)

describe('4.3 the request', () => {
  test.each([
    [{ id: 'Talvora' }, { kind: 'lid', value: 'talvora' }, true],
    [{ id: 'https://www.profnet.com/in/talvora', cached: true }, { kind: 'lid', value: 'talvora' }, true],
    [{ id: 'urn:profnet:person:12', cached: false }, { kind: 'urn', value: '12' }, false],
    [{ id: 'talvora', cached: null, more: 1 }, { kind: 'lid', value: 'talvora' }, true],
  ])('%j is valid', (body, ref, cached) => {
    expect(parse(body)).toEqual({ input: { ref, id: body.id, cached } })
  })

  test.each([{}, { id: null }, { id: undefined, cached: 'no' }])('4.3.3 %j: the id is missing', (body) => {
    expect(parse(body)).toMatchObject({
      refusal: { code: 'REQ_002', details: { missing_parameter: 'id', parameter_type: 'string' } },
    })
  })

  test.each([
    ['', ''],
    ['a b', 'a b'],
    ['https://www.profnet.com/company/talvora', 'https://www.profnet.com/company/talvora'],
    ['y'.repeat(5_000), 'y'.repeat(1_024)],
  ])('4.3.1 an id of %j is not a supported format', (id, echoed) => {
    expect(parse({ id })).toEqual({
      refusal: {
        code: 'PROFNET_001',
        message: expect.any(String),
        details: { id: echoed, supported_formats: ['ID', 'URL', 'URN'] },
      },
    })
  })

  test.each([12, true, [], ['talvora'], { lid: 'talvora' }])('decision 3: an id of %j is refused', (id) => {
    expect(parse({ id })).toMatchObject({
      refusal: { code: 'REQ_003', details: { parameter: 'id', expected: 'a string' } },
    })
  })

  test.each(['true', 1, 0, 'no', [], {}])('cached of %j is refused', (cached) => {
    expect(parse({ id: 'talvora', cached })).toMatchObject({
      refusal: { code: 'REQ_003', details: { parameter: 'cached', expected: 'a boolean' } },
    })
  })

  test('4.3.2 an unknown profile is refused with the id as written, truncated', () => {
    expect(profileNotFound(`z${'y'.repeat(2_000)}`)).toMatchObject({
      code: 'PROFNET_002',
      details: { id: `z${'y'.repeat(1_023)}` },
    })
  })
})

describe('2.4 the result', () => {
  const ids = { lid: 'talvora', urn: '12' }
  const members = [
    'firstname',
    'lastname',
    'numOfConnections',
    'headline',
    'url',
    'lid',
    'about',
    'skills',
    'languages',
    'address',
    'educations',
    'employment_history',
    'emails',
    'phone_numbers',
    'deleted',
  ]

  test('has every member of the specification, in its order, even if no value is known', () => {
    const result = resultOf(profileDataOf({ firstname: 'Talvora' }), {
      lid: ids.lid,
      url: identifiers.urlOf(ids.lid),
      deleted: false,
    })
    expect(Object.keys(result)).toEqual(members)
    expect(profileResult.parse(result)).toEqual(result)
    expect(result).toMatchObject({
      firstname: 'Talvora',
      url: 'https://www.profnet.com/in/talvora',
      lid: 'talvora',
      skills: [],
      address: null,
      deleted: false,
    })
  })

  test('of a deleted person has the identifiers and nothing more', () => {
    const result = resultOf(noData, { lid: ids.lid, url: identifiers.urlOf(ids.lid), deleted: true })
    expect(Object.keys(result)).toEqual(members)
    expect(profileResult.parse(result)).toEqual(result)
    const told = Object.entries(result).filter(
      ([, value]) => value !== null && !(Array.isArray(value) && value.length === 0),
    )
    expect(Object.fromEntries(told)).toEqual({
      lid: 'talvora',
      url: 'https://www.profnet.com/in/talvora',
      deleted: true,
    })
  })
})
