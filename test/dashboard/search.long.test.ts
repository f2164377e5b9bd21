/** The search on every page finds items by id or name if the person can open them, and explains when it finds nothing. */
import { beforeAll, describe, expect, test } from 'vitest'
import { grantOnce } from '../../src/administration/credits/credits.ts'
import { refund } from '../../src/administration/credits/refunds.ts'
import { openTestOrganization } from '../../src/administration/keys/api-keys.ts'
import { roles } from '../../src/administration/roles.ts'
import { ledgerStream } from '../../src/events/streams.ts'
import type { UserRole } from '../../src/events/users.ts'
import { anotherKey, openOrganization } from '../support/partners.ts'
import { browserForEachRole, encoded, roomForFile, tokenIn, unescaped } from './dashboard-host.ts'
import { openScene, type Scene } from './scene.ts'

const actor = 'cli:setup'

const room = await roomForFile()
const scene = await openScene(room, { nowMs: Date.now(), days: 2, name: 'Northwind <Traders>' })
const other = await openScene(room, { nowMs: Date.now(), days: 2, name: 'Contoso Unlimited' })
for (let i = 0; i < 25; i++) await openOrganization(room.foundation, 'Twins Ltd')
const as = await browserForEachRole(room, scene.organizationId)
await room.caughtUp()

const post = async (role: UserRole, q: string, path = '/search') => {
  const page = (await as(role).get('/search')).body
  return as(role).post(path, encoded({ _csrf: tokenIn(page), q }))
}
const search = (role: UserRole, text: string) => post(role, text)

/** The URL to which the search leads, or the headings of the groups that it shows. */
const found = async (role: UserRole, text: string): Promise<string | string[]> => {
  const { statusCode, headers, body } = await search(role, text)
  if (statusCode === 303) return String(headers.location)
  return [...body.matchAll(/<h2 id="group-\d">([^<]+)</g)].map(([, title = '']) => title)
}

const eventOf = async (stream: string) => {
  const [event] = await room.foundation.eventLog.read(stream, { from: 0, max: 1 })
  if (event === undefined) throw new Error(`${stream} is empty`)
  return event
}

const callEvent = async (of: Scene) => {
  const events = await room.foundation.eventLog.read(ledgerStream(of.organizationId), { max: 500 })
  const event = events.find(({ type, metadata }) => type === 'KeyUsed' && metadata.includes(of.requestId))
  if (event === undefined) throw new Error('the scene has no such call')
  return event
}

describe('the search opens the page of the one thing whose id or name is exactly this text:', () => {
  const base = () => `/organizations/${scene.organizationId}`
  test.each([
    ['a request id', () => scene.requestId, () => `${base()}/calls/${scene.requestId}`],
    [
      'a request id in lower case, with spaces',
      () => ` ${scene.requestId.toLowerCase()} `,
      () => `${base()}/calls/${scene.requestId}`,
    ],
    ['the id of an organization', () => scene.organizationId, base],
    ['the name of an organization', () => 'northwind <TRADERS>', base],
    ['what the field suggests', () => `Northwind <Traders> (${scene.organizationId})`, base],
    ['the id of a key', () => scene.keyId, () => `${base()}/keys/${scene.keyId}`],
    ['a whole key', () => `enl_live_${scene.keyId}_secret`, () => `${base()}/keys/${scene.keyId}`],
    [
      'a stream',
      () => ledgerStream(scene.organizationId),
      () => `/commands/event-log/list?stream=${ledgerStream(scene.organizationId)}`,
    ],
    ['a user', () => 'the.partner', () => '/commands/user/list?name=the.partner'],
    ['a page', () => 'reconciliation', () => '/commands/ledger/reconcile'],
    ['a command', () => 'Credits Grant', () => '/commands/credits/grant'],
  ])('%s', async (_, text, path) => {
    expect(await found('admin', text())).toBe(path())
    expect((await as('admin').get(path())).statusCode).toBe(200)
  })

  test('the id of an event', async () => {
    const event = await callEvent(scene)
    const path = `/commands/event-log/show?stream=${event.stream}&revision=${event.revision}`
    expect([await found('viewer', event.id), await found('viewer', event.id.toUpperCase())]).toEqual([
      path,
      path,
    ])
  })

  test('the user list that it opens contains only that user', async () => {
    const { body } = await as('admin').get('/commands/user/list?name=the.partner')
    expect([body.includes('the.finance'), body.includes('the.partner')]).toEqual([false, true])
  })
})

test('several things are shown in groups, with at most twenty in each', async () => {
  const { statusCode, body } = await search('admin', 'twins')
  expect([statusCode, body.match(/>Twins Ltd</g)?.length]).toEqual([200, 20])
  expect(body).toContain('There are more results. Type more of the name.')
  expect(await found('admin', 'product')).toEqual(['API keys'])
  expect(await found('admin', 'the')).toEqual(['Users', 'Pages and commands'])
  expect(await found('admin', `enl_live_${scene.keyId.slice(0, 8)}`)).toEqual(['API keys'])
  expect(await found('admin', 'price')).toEqual(['Pages and commands'])
})

describe('a reference', () => {
  const dear = { amount: 1_000_000n, priority: 100, expiresAt: null, reason: 'goodwill' }
  const refunded = { reason: 'wrong country', actor, dryRun: false }
  const firstLine = async (path: string): Promise<string> =>
    /<tbody>.*?<\/tr>/s.exec((await as('viewer').get(path)).body)?.[0] ?? ''

  beforeAll(async () => {
    const { foundation } = room
    const [organizationId, theirs] = [scene.organizationId, other.organizationId]
    await grantOnce(foundation, { ...dear, organizationId, actor, reference: 'ticket-4711' })
    await refund(foundation, { ...refunded, requestId: scene.requestId, reference: 'ticket-4712' })
    await grantOnce(foundation, { ...dear, organizationId, actor, reference: 'shared' })
    await grantOnce(foundation, { ...dear, organizationId: theirs, actor, reference: 'shared' })
    await grantOnce(foundation, { ...dear, organizationId: theirs, actor, reference: 'theirs' })
    const leaked = `leak/${other.requestId}`
    await refund(foundation, { ...refunded, requestId: other.requestId, reference: leaked })
    await room.caughtUp()
  })

  test.each([
    ['ticket-4711', 'grant', 'goodwill'],
    ['ticket-4712', 'Correction: refund', 'wrong country'],
  ])('%s opens the line of the statement, for operators and the partner', async (reference, kind, reason) => {
    const path = await found('viewer', ` ${reference} `)
    expect(path).toMatch(new RegExp(`^/organizations/${scene.organizationId}/ledger/lines\\?cursor=\\d+$`))
    expect(await found('partner', reference)).toBe(path)
    const line = await firstLine(String(path))
    for (const said of [kind, reason, reference]) expect(line).toContain(said)
  })

  test('is listed for each organization that has it, and a partner finds only its own', async () => {
    const { body } = await search('finance', 'shared')
    expect(await found('finance', 'shared')).toEqual(['Grants and corrections'])
    for (const one of [scene, other])
      expect(body).toContain(`/organizations/${one.organizationId}/ledger/lines`)
    expect(body).toContain('granted 1 credit: goodwill (shared)')
    expect(await found('partner', 'shared')).toContain(`/organizations/${scene.organizationId}/`)
    expect(await found('partner', 'theirs')).toEqual([])
  })

  test('that many refunds have in common finds each of them', async () => {
    expect(await found('admin', 'leak')).toEqual(['Grants and corrections', 'Pages and commands'])
    expect((await search('admin', 'leak')).body).toContain(`leak/${other.requestId}`)
    expect(await found('admin', `leak/${other.requestId}`)).toContain(other.organizationId)
  })
})

test('the field is on every page, contains the text, and suggests what the search would find', async () => {
  const page = (await search('viewer', 'twins')).body
  expect(page).toMatch(/<input id="q" name="q" type="search" value="twins"/)
  expect((await as('partner').get('/me')).body).toContain('action="/search" role="search"')
  const suggested = async (role: UserRole, text: string) => {
    const { body } = await post(role, text, '/search/choices?field=q')
    return [...body.matchAll(/<option value="([^"]*)"/g)].map(([, value = '']) => unescaped(value))
  }
  expect(await suggested('viewer', 'northw')).toEqual([`Northwind <Traders> (${scene.organizationId})`])
  expect(await suggested('viewer', 'twins')).toHaveLength(20)
  expect(await suggested('partner', 'contoso')).toEqual([])
  expect(await suggested('viewer', 'a\u0000')).toEqual([])
})

describe('a partner', () => {
  test('finds its own calls, keys, events, pages and commands', async () => {
    const base = `/organizations/${scene.organizationId}`
    expect(await found('partner', scene.requestId)).toBe(`${base}/calls/${scene.requestId}`)
    expect(await found('partner', 'northwind <traders>')).toBe(base)
    expect(await found('partner', scene.keyId)).toBe(`${base}/keys/${scene.keyId}`)
    expect(await found('partner', (await callEvent(scene)).id)).toBe(`${base}/calls/${scene.requestId}`)
    expect(await found('partner', 'usage')).toBe(`${base}/usage`)
    expect(await found('partner', 'key issue')).toBe(`${base}/key/issue`)
  })

  test("finds its test organization's keys", async () => {
    const organizationId = await openTestOrganization(room.foundation, {
      organizationId: scene.organizationId,
      actor,
    })
    const { keyId } = await anotherKey(room.foundation, organizationId, { name: 'rehearsal' })
    await room.caughtUp()
    const path = `/organizations/${organizationId}/keys/${keyId}`
    expect(await found('partner', 'rehearsal')).toBe(path)
    expect((await as('partner').get(path)).statusCode).toBe(200)
  })

  test('gets the same answer for a thing of another organization as for one that does not exist', async () => {
    const own = await eventOf(ledgerStream(scene.organizationId))
    const theirs: readonly (readonly [string, string])[] = [
      [other.requestId, '01J8ZQ5V7N3K2M4P6R8T0W1X2Y'],
      [other.organizationId, 'org_01J8ZQ5V7N3K2M4P6R8T0W1X2Y'],
      ['Contoso Unlimited', 'Fabrikam Unlimited'],
      [other.keyId, '0123456789abcdef'],
      [`enl_live_${other.keyId}`, 'enl_live_0123456789abcdef'],
      [(await callEvent(other)).id, '00000000-0000-0000-0000-000000000000'],
      [own.id, '00000000-0000-0000-0000-000000000000'],
      [ledgerStream(other.organizationId), 'ledger-org_01J8ZQ5V7N3K2M4P6R8T0W1X2Y'],
      [ledgerStream(scene.organizationId), 'ledger-org_01J8ZQ5V7N3K2M4P6R8T0W1X2Y'],
      ['the.admin', 'the.nobody'],
      ['Reconciliation', 'Reconstruction'],
    ]
    const said = async (text: string) => {
      const { statusCode, body } = await search('partner', text)
      return [
        statusCode,
        body.slice(body.indexOf('<main')).replaceAll(text, 'TEXT').replaceAll(tokenIn(body), ''),
      ]
    }
    for (const [theirText, none] of theirs) {
      expect([theirText, ...(await said(theirText))]).toEqual([theirText, ...(await said(none))])
      expect([theirText, await found('partner', theirText)]).toEqual([theirText, []])
    }
  })
})

// The role `admin` is left out, because an admin can open every page.
const restricted = roles.filter((role) => role !== 'admin')

test.each(restricted)('no hit leads to a page that the role %s cannot open', async (role) => {
  const texts = ['', 'the', 'price', 'user', 'key', 'ledger', 'webhook', scene.requestId, scene.keyId]
  const events = [(await callEvent(scene)).id, ledgerStream(scene.organizationId), 'pricebook', 'operator']
  const hrefs = new Set<string>()
  for (const text of [...texts, ...events]) {
    const { statusCode, headers, body } = await search(role, text)
    const main = body.slice(body.indexOf('<main'), body.indexOf('</main>'))
    if (statusCode === 303) hrefs.add(String(headers.location))
    for (const [, href = ''] of main.matchAll(/href="(\/[^"]+)"/g)) hrefs.add(unescaped(href))
  }
  expect(hrefs.size).toBeGreaterThan(10)
  for (const href of hrefs) expect([href, (await as(role).get(href)).statusCode]).toEqual([href, 200])
})

describe('any other text gets a clear answer', () => {
  test.each([
    ['U+0000', 'a\u0000b', 'Control characters are not allowed.'],
    ['a text that is too long', 'x'.repeat(201), 'At most 200 characters; it has 201.'],
  ])('%s', async (_, text, says) => {
    const { statusCode, body } = await search('admin', text)
    expect([statusCode, body]).toEqual([422, expect.stringContaining(says)])
    expect(body).toContain('<li>the request id of a call</li>')
  })

  test.each(["' or 1=1 --", '%', '"><script>alert(1)</script>', 'ledger-../..'])(
    '%s finds nothing, and the page says what can be searched',
    async (text) => {
      const { statusCode, body } = await search('admin', text)
      expect(statusCode).toBe(200)
      expect(body).not.toContain('<script>')
      expect(body).toContain('No results with this id or name.')
      expect(body).toContain('<li>the request id of a call</li>')
    },
  )

  test('the secret of a key, even of one that does not exist, is not shown again', async () => {
    const { statusCode, body } = await search('admin', 'enl_live_0123456789abcdef_verysecret')
    expect([statusCode, body.includes('verysecret'), body.includes('enl_live_0123456789abcdef')]).toEqual([
      200,
      false,
      true,
    ])
  })
})
