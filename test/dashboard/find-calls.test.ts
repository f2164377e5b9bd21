/** People with permission can find the calls about a person by e-mail address or profile id. The text they search for is not stored. */

import { Readable } from 'node:stream'
import { expect, test, vi } from 'vitest'
import { declarationNamed } from '../../src/administration/declarations.ts'
import { callsAbout } from '../../src/administration/ledgers/find-calls.ts'
import { issueOperatorToken } from '../../src/administration/users/operator-tokens.ts'
import { eraseProfile } from '../../src/capabilities/profile/record/erase.ts'
import { erasureParts } from '../../src/capabilities/profile/storage.ts'
import { appendNext } from '../../src/event-log/append-next.ts'
import { encodeEvent, eventIdOf } from '../../src/event-log/stored-event.ts'
import type { CallFacts } from '../../src/events/calls.ts'
import { ledgerStream, profileStream } from '../../src/events/streams.ts'
import type { UserRole } from '../../src/events/users.ts'
import type { CallToRecord } from '../../src/ledger/command.ts'
import { onCommandLine } from '../declared/interfaces.ts'
import { holdCalls } from '../support/held-calls.ts'
import { until } from '../support/house.ts'
import { call, command, grantOf, located, openLedger, org } from '../support/ledger-commands.ts'
import { createMemoryEventLog } from '../support/memory-event-log.ts'
import { memoryProcess } from '../support/memory-process.ts'
import { openOrganization } from '../support/partners.ts'
import { browserForEachRole, encoded, hiddenIn, roomForFile, tokenIn } from './dashboard-host.ts'
import { openScene, recordCall, type Scene } from './scene.ts'

const actor = 'cli:setup'
const email = 'Ada.Lovelace@example.com'
const about = { email: ['', ''], profile: '' }

const subject = 'sub_01J8ZQ5V7N3K2M4P6R8T0W1X2A'

const recorded = (call: CallToRecord): Promise<string> => recordCall(room, scene.organizationId, call)

const personKnownAs = async (lid: string): Promise<void> => {
  const at = new Date().toISOString()
  const hmac = room.foundation.secrets.identifierHmac(`lid:${lid}`)
  const data = { subject_id: subject, provider: 'http', reason: 'not_found', observed_at: at } as const
  await appendNext(room.foundation.eventLog, profileStream(subject), [
    encodeEvent(
      { type: 'ProfileMissed', data: { ...data, aliases: [{ kind: 'lid', hmac }] } },
      { id: eventIdOf(subject, 'missed', 0), actor: 'system', effectiveAt: at },
    ),
  ])
}

const room = await roomForFile()
const scene = await openScene(room, { nowMs: Date.now(), days: 1 })
const as = await browserForEachRole(room, scene.organizationId)
const token = (await issueOperatorToken(room.foundation, { user: 'the.finance', actor })).token
for (const [i, status] of (['invalid', 'valid'] as const).entries())
  about.email[i] = await recorded({
    keyId: scene.keyId,
    capability: 'email_validation',
    outcome: 'answered',
    facts: {
      kind: 'email_validation',
      status,
      sub_status: 'accepted',
      decision_row: 17,
      company_status: 'not_requested',
      domain: 'example.com',
      address_hmac: room.foundation.secrets.addressHmac(email.toLowerCase()),
    },
  })
await personKnownAs('ada-lovelace')
about.profile = await recorded({
  keyId: scene.keyId,
  capability: 'profile',
  outcome: 'answered',
  facts: { kind: 'profile', source: 'cached', age_seconds: 1, subject_id: subject },
})
await room.caughtUp()

const overApi = async (given: object, headers: Readonly<Record<string, string>> = {}) => {
  const answer = await room.host.inject({
    method: 'POST',
    url: '/admin/v1/ledger/find-calls',
    headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json', ...headers },
    payload: JSON.stringify({ organization: scene.organizationId, ...given }),
  })
  return answer.json()
}

const pathIn = ({ organizationId }: Pick<Scene, 'organizationId'>): string =>
  `/organizations/${organizationId}/ledger/find-calls`
const find = (role: UserRole, input: string, of: Pick<Scene, 'organizationId'> = scene) =>
  as(role).submit(pathIn(of), { input })

test('an e-mail address in any spelling finds its calls, newest first, with their cost', async () => {
  for (const input of [email, ' ADA.lovelace@example.com. ']) {
    const { calls, cannot_be_told, next_before } = await overApi({ input })
    expect([cannot_be_told, next_before]).toEqual([0, null])
    expect(calls).toMatchObject([
      { request_id: about.email[1], capability: 'email_validation', outcome: 'answered', charged: '1' },
      { request_id: about.email[0], charged: '0' },
    ])
  }
  expect((await overApi({ input: 'ada@example.org' })).calls).toEqual([])
  expect((await overApi({ input: '8.8.8.8' })).calls.length).toBeGreaterThan(2)
})

test('a partner has a limited number of searches under way, and others search meanwhile', async () => {
  const { eventLog } = room.foundation
  const other = { organizationId: await openOrganization(room.foundation, 'Contoso') }
  await room.caughtUp()
  const own = ledgerStream(scene.organizationId)
  using searches = holdCalls(eventLog, 'lastRevision', (stream) => stream === own)
  const held = Array.from({ length: 8 }, () => find('partner', email))
  await until('eight are under way', async () => searches.count() === 8)
  const ninth = await find('partner', email)
  expect([ninth.statusCode, ninth.body]).toEqual([
    422,
    expect.stringContaining('Too many requests of your organization are in progress'),
  ])
  expect((await find('finance', email, other)).statusCode).toBe(200)
  searches.release()
  expect((await Promise.all(held)).map(({ statusCode }) => statusCode)).toEqual(Array(8).fill(200))
  expect((await find('partner', email)).statusCode).toBe(200)
})

test('no hash of the text is stored, even for a request with an Idempotency-Key', async () => {
  const { calls } = await overApi({ input: email }, { 'idempotency-key': 'find-1' })
  expect(calls).toHaveLength(2)
  expect((await room.foundation.pool.query('select 1 from admin_requests')).rowCount).toBe(0)
})

test('the command line reads the text from standard input, so that it is in no history', async () => {
  const stdin = vi.spyOn(process, 'stdin', 'get')
  stdin.mockReturnValue(Readable.from([`${email}\n`]) as unknown as typeof process.stdin)
  const given = { organization: scene.organizationId, input: '-' }
  const person = { user: 'the.finance', role: 'finance', browser: as('finance'), token } as const
  const answer = await onCommandLine(room, person, declarationNamed('ledger find-calls'), given)
  stdin.mockRestore()
  expect(answer).toMatchObject({ calls: [{ request_id: about.email[1] }, { request_id: about.email[0] }] })
})

test('only calls in the range are found; an invalid range or an unknown organization is refused', async () => {
  const [from, to] = ['2020-01-01T00:00:00Z', '2020-02-01T00:00:00Z']
  expect((await overApi({ input: email, from, to })).calls).toEqual([])
  expect((await overApi({ input: email, from })).calls).toHaveLength(2)
  expect(await overApi({ input: email, from: to, to: from })).toMatchObject({ details: { field: 'from' } })
  const organization = scene.organizationId.replace(/.$/, (last) => (last === '0' ? '1' : '0'))
  expect((await overApi({ input: email, organization })).message).toContain('there is no ledger')
})

test('the pages link each call, and their URLs do not contain the text', async () => {
  const base = `/organizations/${scene.organizationId}`
  const { statusCode, body } = await find('partner', email)
  expect(statusCode).toBe(200)
  for (const id of about.email) expect(body).toContain(`href="${base}/calls/${id}"`)
  expect(body).toContain(`<form class="fields" method="post" action="${pathIn(scene)}">`)
  expect([...body.matchAll(/(?:href|action)="([^"]*)"/g)].filter(([, at = '']) => /ada/i.test(at))).toEqual(
    [],
  )
  const opened = await as('partner').get(`${pathIn(scene)}?input=${encodeURIComponent(email)}`)
  expect(opened.body).not.toContain(about.email[0])
})

test('a search is in the audit with its organization, and neither the text nor its hash is in the event log or a row', async () => {
  await find('operations', email)
  await room.caughtUp()
  const { body } = await as('admin').get('/commands/audit/list?actor=the.operations&type=CallsSearched')
  expect(body).toContain(`searched the calls of ${scene.organizationId} from `)
  const events = await room.foundation.eventLog.read('operator', { max: 1_000 })
  const searches = events.filter(({ type }) => type === 'CallsSearched')
  expect(Object.keys(JSON.parse(searches[0]?.data ?? ''))).toEqual(['organization_id', 'from', 'to'])
  expect(searches.filter(({ data, metadata }) => /lovelace/i.test(data + metadata))).toEqual([])
})

test('a profile id finds the calls about the person until the person is erased', async () => {
  const input = 'https://www.profnet.com/in/Ada-Lovelace'
  expect(await overApi({ input })).toMatchObject({
    calls: [{ request_id: about.profile }],
    cannot_be_told: 0,
  })
  await eraseProfile(
    erasureParts(room.foundation),
    { kind: 'lid', value: 'ada-lovelace' },
    { actor, note: null },
  )
  expect(await overApi({ input })).toMatchObject({ calls: [], cannot_be_told: 1 })
  expect((await find('admin', input)).body).not.toContain(about.profile)
})

test('for an address, the search field offers this search as a form, not as a link', async () => {
  const search = async (role: UserRole, q: string) => {
    const page = (await as(role).get('/me')).body
    return as(role).post('/search', encoded({ _csrf: tokenIn(page), q }))
  }
  const offered = async (role: UserRole, q: string) => {
    const { body } = await search(role, q)
    return body.slice(body.indexOf('<main')).match(/action="([^"]*ledger\/find-calls)"/)?.[1]
  }
  expect(await offered('partner', email)).toBe(pathIn(scene))
  expect(await offered('admin', '10.0.0.1')).toBe('/commands/ledger/find-calls')
  expect(await offered('admin', 'ada-lovelace')).toBe('/commands/ledger/find-calls')
  expect(await offered('admin', 'price')).toBeUndefined()
  expect(await offered('viewer', email)).toBeUndefined()
  const { body } = await search('finance', email)
  const { input = '' } = hiddenIn(body)
  const found = await as('finance').post(
    '/commands/ledger/find-calls',
    encoded({ _csrf: tokenIn(body), input, org: 'northwind traders' }),
  )
  expect(found.body).toContain(`href="/organizations/${scene.organizationId}/calls/${about.email[0]}"`)
  expect(await as('finance').get(`/search?q=${encodeURIComponent(email)}`)).toMatchObject({
    statusCode: 200,
    body: expect.not.stringContaining(email),
  })
})

test('a long ledger is searched in parts, each with the place to continue, and no charge between two parts is lost', async () => {
  const { eventLog, ledger } = memoryProcess(createMemoryEventLog(), 'one')
  await openLedger(ledger, '5000')
  const ids = Array.from({ length: 3_000 }, (_, i) => `call-${i}`)
  // The grant at the end shifts the pages, so that a page of 4,000 events ends between this call and its charge.
  const facts = (id: string) => (id === 'call-1000' ? { ...located, address_hmac: 'B'.repeat(43) } : located)
  await Promise.all(ids.map((id) => ledger.submit(org, call(id, {}, facts(id)))))
  await ledger.submit(org, command('grant 2', grantOf('1')))
  const [from, to] = ['2026-03-01T00:00:00.000Z', '2099-01-01T00:00:00.000Z']
  const found: string[] = []
  const parts: number[] = []
  for (let before: number | null = null; ; ) {
    const range = { organizationId: org, from, to, before }
    const part = await callsAbout({ eventLog }, range, async () => ({ verdict: 'yes' }), {
      actor: 'cli',
      role: null,
    })
    expect(part.calls.filter(({ charged }) => charged !== '1')).toEqual([])
    found.push(...part.calls.map(({ request_id }) => request_id))
    parts.push(part.calls.length)
    before = part.next_before
    if (before === null) break
  }
  expect([found.length, found]).toEqual([3_000, ids.toReversed()])
  expect(parts.length).toBe(2)
  const all = { organizationId: org, from, to, before: null }
  const one = async (of: CallFacts) =>
    ({ verdict: 'address_hmac' in of && of.address_hmac.startsWith('B') ? 'yes' : 'no' }) as const
  expect(await callsAbout({ eventLog }, all, one, { actor: 'cli', role: null })).toMatchObject({
    calls: [{ request_id: 'call-1000', charged: '1' }],
    events_looked_at: 6_003,
    next_before: null,
  })
})
