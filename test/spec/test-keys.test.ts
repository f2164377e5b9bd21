/** With a test key, the input selects the answer. No outside system is asked, and no live ledger changes. */
import { createSocket } from 'node:dgram'
import { once } from 'node:events'
import { readFile } from 'node:fs/promises'
import { afterAll, describe, expect, test } from 'vitest'
import { balance } from '../../src/administration/credits/credits.ts'
import { openTestOrganization } from '../../src/administration/keys/api-keys.ts'
import { errorCatalogue } from '../../src/call/errors.ts'
import { mailboxOutcomes } from '../../src/capabilities/email-validation/evidence.ts'
import { permission } from '../../src/events/capabilities.ts'
import { payingOf, testOrganizationOf } from '../../src/events/test-organization.ts'
import { composeApiKey } from '../../src/keys/api-key.ts'
import { parseTestKey } from '../../src/keys/test-key.ts'
import { openHouse, type Partner } from '../support/house.ts'
import { expectNotAuthenticated } from './wire.ts'

/** A name server that counts queries and never answers. */
const names = createSocket('udp4')
let questions = 0
names.on('message', () => questions++)

names.bind(0, '127.0.0.1')
await once(names, 'listening')
const house = await openHouse({ environment: { DNS_SERVERS: `127.0.0.1:${names.address().port}` } })
const permissions = permission.options
const limits = { email_validations_per_second: 10_000 }
const live = await house.partner({ credits: '10', permissions })
const request = { organizationId: live.organizationId, actor: 'cli' }
const tester = await house.key(await openTestOrganization(house.foundation, request), { permissions, limits })
afterAll(async () => {
  await house.close()
  names.close()
})

const email = (address: string, more: object = {}, headers = {}) =>
  house.post(tester, '/v1/email/validate', { email: address, ...more }, headers)
const profileOf = (id: string, more: object = {}) =>
  house.post(tester, '/v1/profnet/profile', { id, ...more })

describe('a test key', () => {
  test('is distinguished from a live one by its text, and only its exact text works', async () => {
    expect(tester.apiKey).toMatch(/^enl_test_[0-9A-Za-z]{16}_[0-9A-Za-z]{38}$/)
    const { keyId, secret } = parseTestKey(tester.apiKey) ?? { keyId: '', secret: '' }
    const posing = composeApiKey(Uint8Array.from(keyId + secret, (character) => base62.indexOf(character)))
    expect(posing).toMatchObject({ keyId, secret })
    expectNotAuthenticated(
      await house.ask({ ...tester, apiKey: posing.apiKey }, { path: '/v1/balance', method: 'GET' }),
    )
    expect((await house.ask(tester, { path: '/v1/balance', method: 'GET' })).status).toBe(200)
  })

  test('leaves the ledger of its organization unchanged, and charges test credits in another', async () => {
    const before = await house.eventsOf(live.organizationId)
    const { status, headers, events } = await email('accepted@mail.test')
    expect([status, headers.get('credits-charged')]).toEqual([200, '1'])
    expect(events.map(({ type }) => type)).toEqual(['KeyUsed', 'CreditCharged'])
    expect(tester.organizationId).toBe(testOrganizationOf(live.organizationId))
    expect(await house.eventsOf(live.organizationId)).toEqual(before)
    expect((await balance(house.foundation, live.organizationId)).balance).toBe(10_000_000n)
    expect((await house.whoami(tester)).body.organization).toMatch(/ \(test\)$/)
  })

  test('has a test ledger that is opened once, even if requested again, and never for an unknown organization', async () => {
    const before = await house.eventsOf(tester.organizationId)
    const request = { organizationId: live.organizationId, actor: 'cli' }
    const again = [request, request, { ...request, organizationId: tester.organizationId }]
    const opened = await Promise.all(again.map((one) => openTestOrganization(house.foundation, one)))
    expect(opened).toEqual([tester.organizationId, tester.organizationId, tester.organizationId])
    expect(await house.eventsOf(tester.organizationId)).toEqual(before)
    const stranger = { organizationId: 'org_01ARZ3NDEKTSV4RRFFQ69G5FAV', actor: 'cli' }
    await expect(openTestOrganization(house.foundation, stranger)).rejects.toThrow('there is no organization')
  })

  test('contacts no name server, mail server or profile store', async () => {
    questions = 0
    await Promise.all(['jane@example.net', 'timeout@mail.test', 'jane@gmail.com'].map((one) => email(one)))
    await Promise.all([profileOf('test-person'), profileOf('someone-else')])
    expect(questions).toBe(0)
    const profiles = (await house.recorded()).filter(({ stream }) => stream.startsWith('profile-'))
    expect(profiles).toEqual([])
    // This proves that the check works, because a live key does send queries.
    await house.post(live, '/v1/email/validate', { email: 'jane@example.net' })
    expect(questions).toBeGreaterThan(0)
  })
})

const base62 = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz'

test('totals over organizations exclude the test organizations', () => {
  const paying = ['org_01K9ZZZZZZZZZZZZZZZZZZZZZA', 'org_01K9ZZZZZZZZZZZZZZZZZZZZZB']
  expect(payingOf([...paying, ...paying.map(testOrganizationOf)])).toEqual(paying)
})

describe('e-mail addresses for test keys', () => {
  test.each([
    ['no address at all', 'invalid', 'invalid_syntax'],
    ['greylisted@mail.test', 'unknown', 'greylisted'],
    ['Greylisted+17@Mail.Test', 'unknown', 'greylisted'],
    ['accepted@mail.test', 'valid', 'accepted'],
    ['constructor@mail.test', 'valid', 'accepted'],
    ['jane@example.net', 'valid', 'accepted'],
    ['jane@mailinator.com', 'risky', 'disposable'],
    ['jane@localhost', 'invalid', 'domain_not_routable'],
  ])('%s is %s, %s, at its price', async (address, status, sub_status) => {
    const answer = await email(address)
    expect(answer.body.result).toMatchObject({ status, sub_status, did_you_mean: null })
    expect(answer.headers.get('credits-charged')).toBe(status === 'valid' ? '1' : '0')
  })

  test('have a company when it is requested and the verdict allows it', async () => {
    const asked = { include_company_data: true }
    const of = async (address: string) => {
      const { body, headers } = await email(address, asked)
      const { company_status } = body.result as { company_status: string }
      return [company_status, headers.get('credits-charged')]
    }
    expect(await of('accepted@mail.test')).toEqual(['found', '3'])
    expect(await of('company_not_found@mail.test')).toEqual(['not_found', '1'])
    expect(await of('greylisted@mail.test')).toEqual(['not_applicable', '0'])
    expect(await of('jane@example.net')).toEqual(['not_found', '1'])
  })
})

describe('IP addresses for test keys', () => {
  test.each([
    ['2001:db8::1', true, '1'],
    ['8.8.8.8', true, '1'],
    ['2001:db8::404', false, '0'],
    ['10.0.0.1', false, '0'],
  ])('%s is located: %s', async (ip, success, charged) => {
    const { body, headers } = await house.lookup(tester, { ip })
    expect(body.result).toMatchObject({ ip, success, country_code: success ? 'LU' : null })
    expect(headers.get('credits-charged')).toBe(charged)
  })
})

describe('profiles for test keys', () => {
  test('come from the cache or fresh, by name, URL or URN, are sparse, deleted or missing', async () => {
    const cached = await profileOf('test-person')
    expect(cached.body).toMatchObject({ cached: true, cache_age_hours: 5, result: { lid: 'test-person' } })
    expect(cached.headers.get('credits-charged')).toBe('2')
    const fresh = await profileOf('https://www.profnet.com/in/test-person', { cached: false })
    expect(fresh.body).not.toHaveProperty('cached')
    expect(fresh.headers.get('credits-charged')).toBe('5')
    expect((await profileOf('urn:profnet:person:1')).body.result).toEqual(cached.body.result)
    expect((await profileOf('test-uncached')).body).not.toHaveProperty('cached')
    expect((await profileOf('test-minimal')).body.result).toMatchObject({ lastname: null, skills: [] })
    const gone = await profileOf('test-deleted')
    expect(gone.body.result).toMatchObject({ deleted: true, lid: 'test-deleted', firstname: null })
    expect(gone.headers.get('credits-charged')).toBe('0')
    for (const id of ['test-nobody', 'vinaxo-braxstone-001', 'urn:profnet:person:1000007919'])
      expect((await profileOf(id)).body.code).toBe('PROFNET_002')
    const away = await profileOf('test-unavailable')
    expect([away.status, away.headers.get('retry-after')]).toEqual([503, '5'])
  })

  test('a slow profile takes three seconds', async () => {
    const { body } = await profileOf('test-slow')
    expect(body.result).toMatchObject({ lid: 'test-slow' })
    expect(body.processing_time_ms).toBeGreaterThanOrEqual(2_990)
  })
})

describe('errors for test keys', () => {
  const askedFor = ['auth_002', 'auth_003', 'credit_001', 'rate_001', 'idemp_002', 'sys_001', 'sys_002']

  test.each(askedFor)('an input with %s gets that error, recorded and free', async (word) => {
    const code = word.toUpperCase() as keyof typeof errorCatalogue
    const { status, error } = errorCatalogue[code]
    for (const answer of [await email(`${word}@mail.test`), await profileOf(`test-${word}`)]) {
      expect([answer.status, answer.body.code, answer.body.error]).toEqual([status, code, error])
      expect(answer.headers.get('credits-charged')).toBe('0')
      expect(answer.headers.has('retry-after')).toBe(['rate_001', 'idemp_002', 'sys_002'].includes(word))
      expect(answer.events).toMatchObject([{ type: 'KeyUsed', data: { code, facts: { kind: 'refusal' } } }])
    }
  })

  test.each([402, 403, 409, 429, 500, 503])(
    'an IP address that ends with %i gets that status',
    async (status) => {
      expect((await house.lookup(tester, { ip: `2001:db8::${status}` })).status).toBe(status)
      expect((await house.lookup(tester, { ip: `192.0.2.${status - 300}` })).status).toBe(status)
    },
  )

  test('no input of a live key triggers an error', async () => {
    expect((await house.lookup(live, { ip: '192.0.2.102' })).status).toBe(200)
    const { body } = await house.post(live, '/v1/profnet/profile', { id: 'test-person', cached: true })
    expect(body).toMatchObject({ code: 'PROFNET_002' })
  })

  test('an empty test ledger causes a real 402', async () => {
    const { organizationId } = await house.partner({ credits: '1' })
    const request = { organizationId, actor: 'cli' }
    const opened = await openTestOrganization(house.foundation, request)
    const poor = await house.key(opened, { permissions: permission.options })
    const { credits } = await spent(poor)
    expect(credits).toBe('0')
    expect((await house.lookup(poor, { ip: '192.0.2.1' })).body.code).toBe('CREDIT_001')
  })
})

test('the guide names every word that selects an answer', async () => {
  const guide = await readFile(new URL('../../src/guides/testing.md', import.meta.url), 'utf8')
  const row = (name: string): RegExp => new RegExp(`^\\| .*\`${name}\``, 'm')
  for (const outcome of mailboxOutcomes) expect(guide).toMatch(row(`${outcome}@mail\\.test`))
  for (const code of ['auth_002', 'auth_003', 'credit_001', 'rate_001', 'idemp_002', 'sys_001', 'sys_002']) {
    expect(guide).toMatch(row(`${code}@mail\\.test`))
    expect(guide).toMatch(row(`test-${code}`))
  }
  for (const code of Object.keys(errorCatalogue).filter((one) => !one.startsWith('PROFNET_002')))
    expect(guide).toContain(`\`${code}\``)
})

/** Removes all credits from a ledger, as an operator would. */
const spent = async ({ organizationId }: Partner): Promise<{ credits: string }> => {
  const { ledger } = house.foundation
  const { lots } = await ledger.account(organizationId)
  for (const { grantId } of lots) {
    const envelope = { key: `void/${grantId}`, atMs: Date.now(), actor: 'cli' }
    await ledger.submit(organizationId, { ...envelope, kind: 'void', grantId, reason: 'used up' })
  }
  const { balance: left } = await balance(house.foundation, organizationId)
  return { credits: String(left) }
}
