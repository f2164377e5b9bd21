/** What people see about an organization, and what they can do with its keys. */
import { beforeAll, describe, expect, test } from 'vitest'
import { adjust } from '../../src/administration/credits/corrections.ts'
import { grant } from '../../src/administration/credits/credits.ts'
import { refund } from '../../src/administration/credits/refunds.ts'
import { revoke } from '../../src/administration/keys/api-keys.ts'
import { parseCredits } from '../../src/billing/money.ts'
import { defaultPriceBook, priceBookOf } from '../../src/billing/price-book.ts'
import { decodeEvent, eventIdOf } from '../../src/event-log/stored-event.ts'
import { ledgerStream } from '../../src/events/streams.ts'
import { parseApiKey } from '../../src/keys/api-key.ts'
import { reversalCommand } from '../../src/ledger/write/reversals.ts'
import { anotherKey, grantTo, openOrganization } from '../support/partners.ts'
import { browserOfAda, give, openBrowser, roomForFile, withoutOwnScripts } from './dashboard-host.ts'
import { lookedUp, recordCall } from './scene.ts'

const actor = 'cli'

const room = await roomForFile()
const browser = await browserOfAda(room)

const organization = async (name: string, credits?: string): Promise<string> => {
  const organizationId = await openOrganization(room.foundation, name)
  if (credits !== undefined) await grantTo(room.foundation, organizationId, credits, 'test')
  await room.caughtUp()
  return organizationId
}

const key = (organizationId: string, name = 'production') =>
  anotherKey(room.foundation, organizationId, { name })

/** A charged lookup with a location, at the given time. */
const call = (
  organizationId: string,
  keyId: string,
  atMs: number,
  { idempotencyKey: key }: { idempotencyKey?: string } = {},
): Promise<string> => {
  const made = { ...lookedUp(room, keyId), ...(key !== undefined && { idempotent: true }) }
  return recordCall(room, organizationId, made, { atMs, key })
}

/** The text that a person reads on a page, without tags and with collapsed white space. */
const textOf = (page: string): string =>
  page
    .replaceAll(/<[^>]+>/g, ' ')
    .replaceAll(/\s+/g, ' ')
    .trim()

describe('after a command, Back leads to the page of what was changed:', () => {
  const linkIn = (page: string, name: string): string =>
    new RegExp(`<a (?:class="button" )?href="([^"]+)">${name}</a>`).exec(page)?.[1] ?? ''

  test.each([
    ['the organization after a grant', 'credits/grant', { amount: '5' }, ''],
    ['the keys after a new key', 'key/issue', { name: 'new', permissions: 'ip_lookup' }, '#keys'],
    ['the organization after a threshold', 'credits/threshold', { amount: '7' }, ''],
  ] as const)('%s, from both forms', async (_, command, fields, below) => {
    const id = await organization('Back Ltd')
    for (const path of [`/organizations/${id}/${command}`, `/commands/${command}`]) {
      const { body } = await give(browser, path, { ...fields, org: id })
      expect([path, linkIn(body, 'Back')]).toEqual([path, `/organizations/${id}${below}`])
    }
  })

  test('the key, the call or the user', async () => {
    const id = await organization('Back Keys Ltd', '100')
    const { keyId } = await key(id)
    const requestId = await call(id, keyId, Date.now())
    await room.caughtUp()
    const [base, reason] = [`/organizations/${id}`, 'no longer used']
    const form = await browser.get(`${base}/key/limits?key=${keyId}`)
    expect(linkIn(form.body, 'Cancel')).toBe(`${base}/keys/${keyId}`)
    const refunded = await give(browser, '/commands/credits/refund', { request: requestId, reason })
    expect(linkIn(refunded.body, 'Back')).toBe(`${base}/calls/${requestId}`)
    const revoked = await give(browser, `${base}/key/revoke`, { key: keyId, reason })
    expect(linkIn(revoked.body, 'Back')).toBe(`${base}/keys/${keyId}`)
    const created = await give(browser, '/commands/user/create', { name: 'back.user', role: 'viewer' })
    expect(linkIn(created.body, 'Back')).toBe('/commands/user/list?name=back.user')
  })
})

describe('the overview', () => {
  test("the list of organizations shows every organization's balance, charges, keys and last call", async () => {
    const id = await organization('Overview Ltd', '1234567.000001')
    const { keyId } = await key(id)
    await call(id, keyId, Date.parse('2026-10-01T12:34:56.789Z'))
    await room.caughtUp()
    const { body } = await browser.get('/commands/org/list')
    expect(textOf(body)).toContain(`Overview Ltd ${id} 1,234,566.000001 1 1 2026-10-01 12:34:56`)
  })

  test("shows the findings of the process's checks, with remedies", async () => {
    await room.caughtUp()
    expect(textOf((await browser.get('/')).body)).toContain(
      'warning Jobs : no job has been scheduled. Start a process with the role &quot;jobs&quot;. Open jobs',
    )
  })

  test('leads to the last signed checkpoint, which is shown unchanged', async () => {
    const path = '/commands/event-log/checkpoints'
    expect((await browser.get('/operations')).body).toContain(`href="${path}"`)
    expect(textOf((await browser.get(path)).body)).toContain('No entries.')
    const { note, root } = await room.foundation.checkpoints.make()
    const { body } = await browser.get(path)
    expect(body).toContain(note)
    expect(textOf(body)).toContain(root)
  })

  test('escapes names that partners and operators have entered', async () => {
    const name = `<script>alert(1)</script> "quoted" 'single' & more`
    const id = await organization(name)
    await key(id, '<img src=x onerror=alert(1)>')
    await room.caughtUp()
    for (const path of [
      '/commands/org/list',
      `/organizations/${id}`,
      `/organizations/${id}/calls`,
      `/organizations/${id}/key/issue`,
    ]) {
      const { body } = await browser.get(path)
      expect(body).toContain(
        '&lt;script&gt;alert(1)&lt;/script&gt; &quot;quoted&quot; &#39;single&#39; &amp; more',
      )
      expect(withoutOwnScripts(body)).not.toContain('<script')
      expect(body).not.toContain('<img')
    }
    const typed = await browser.submit(`/organizations/${id}/key/issue`, {
      name: '"><script>alert(2)</script>',
    })
    expect(typed.statusCode).toBe(422)
    expect(withoutOwnScripts(typed.body)).not.toContain('<script')
  })

  test('has a next page after a hundred organizations', async () => {
    await Promise.all(Array.from({ length: 101 }, (_, i) => openOrganization(room.foundation, `Many ${i}`)))
    await room.caughtUp()
    const first = await browser.get('/commands/org/list')
    const next = /href="(\/commands\/org\/list\?cursor=[^"]+)"/.exec(first.body)?.[1] ?? ''
    const second = await browser.get(next)
    const names = [first, second].flatMap(({ body }) => body.match(/Many \d+/g) ?? [])
    expect(new Set(names).size).toBe(101)
    expect(names.length).toBe(101)
    expect(second.body).not.toContain('cursor=')
  })
})

describe('a text that PostgreSQL does not accept', () => {
  test.each(['/?after=%00', '/?after=%ED%A0%80', '/?after=org_x%00'])('causes no error: %s', async (path) => {
    expect((await browser.get(path)).statusCode).toBe(200)
  })

  test("in a key's URL gives a missing page", async () => {
    const id = await organization('Zero Ltd')
    expect((await browser.get(`/organizations/${id}/keys/%00`)).statusCode).toBe(404)
  })

  test('in a user name or a password is refused like any other', async () => {
    const visitor = openBrowser(room.host)
    expect((await visitor.submit('/login', { name: 'ada\0', password: 'x' })).statusCode).toBe(401)
    expect((await visitor.submit('/login', { name: 'ada', password: 'x\0' })).statusCode).toBe(401)
  })
})

describe('an organization', () => {
  test('shows its lots in the order in which they are used', async () => {
    const id = await organization('Lots Ltd')
    for (const [credits, priority, expiresAt] of [
      ['1.5', 200, null],
      ['20', 100, '2097-06-01T00:00:00.000Z'],
      ['300', 100, '2097-02-01T00:00:00.000Z'],
    ] as const) {
      const lot = { amount: parseCredits(credits), priority, expiresAt, reason: 'test', actor }
      await grant(room.foundation, { organizationId: id, ...lot })
    }
    await room.caughtUp()
    const text = textOf((await browser.get(`/organizations/${id}/credits/lots`)).body)
    const places = ['300 300 100 2097-02-01 00:00:00', '20 20 100 2097-06-01 00:00:00', '1.5 1.5 200'].map(
      (lot) => text.indexOf(lot),
    )
    expect(places).not.toContain(-1)
    expect(places).toEqual(places.toSorted((a, b) => a - b))
    expect(textOf((await browser.get(`/organizations/${id}`)).body)).toContain('Balance, credits 321.5')
  })

  test.each([
    '/organizations/org_01J8ZQ5V7N3K2M4P6R8T0W1X2Y',
    '/organizations/x',
    '/organizations/x/key/issue',
    '/organizations/%00',
    '/organizations/org_01J8ZQ5V7N3K2M4P6R8T0W1X2%00',
    '/organizations/%00/key/revoke',
  ])('that does not exist has an error page: %s', async (path) => {
    const answer = await browser.get(path)
    expect(answer.statusCode).toBe(404)
    expect(answer.body).toContain('Page not found')
  })
})

describe('keys', () => {
  test('are listed with their last characters, permissions and limits, without their secrets', async () => {
    const id = await organization('Issue Ltd')
    const { keyId, apiKey } = await anotherKey(room.foundation, id, {
      name: 'checkout',
      permissions: ['ip_lookup', 'pixel_control'],
      limits: { requests_per_minute: 12, requests_per_day: 3_456, email_validations_per_second: 12 },
    })
    await room.caughtUp()
    const { body } = await browser.get(`/organizations/${id}`)
    expect(body).not.toContain(parseApiKey(apiKey)?.secret)
    expect(textOf(body)).toContain(
      `checkout ${keyId} …${apiKey.slice(-4)} ip lookup, pixel control 12/min 3,456/day 12 e-mails/s`,
    )
  })

  test('a key without a selected permission is refused, and gets no default permissions', async () => {
    const id = await organization('Refuse Ltd')
    const before = await room.foundation.eventLog.head()
    const answer = await browser.submit(`/organizations/${id}/key/issue`, { name: 'checkout' })
    expect(answer.statusCode).toBe(422)
    expect(answer.body).toContain('Give at least one of email_validation')
    expect(answer.body).toMatch(/<fieldset id="permissions" aria-invalid="true"/)
    expect(await room.foundation.eventLog.head()).toBe(before)
  })

  test('a revoked key shows the reason, and offers no more changes', async () => {
    const id = await organization('Revoke Ltd')
    const { keyId } = await key(id)
    await revoke(room.foundation, { keyId, reason: 'leaked <b>', actor })
    await room.caughtUp()
    const { body } = await browser.get(`/organizations/${id}`)
    expect(body).toContain('leaked &lt;b&gt;')
    expect(body).not.toContain(`?key=${keyId}`)
  })
})

describe('the statement', () => {
  const calls = 250
  const hourMs = 3_600_000
  const startMs = Date.now()
  const requestIds: string[] = []
  let id = ''

  beforeAll(async () => {
    id = await organization('Statement Ltd', '100000')
    const { keyId } = await key(id, 'statement')
    for (let i = 0; i < calls; i++) {
      // Every fourth call is recorded after a call that began four minutes later.
      const late = i % 4 === 3 ? hourMs + 4 * 60_000 : 0
      requestIds.push(await call(id, keyId, startMs + (i + 1) * hourMs - late))
    }
    await room.caughtUp()
  })

  test('shows the subject, time, cost and rule of every line', async () => {
    const { body } = await browser.get(`/organizations/${id}`)
    const at = new Date(startMs + calls * hourMs).toISOString()
    expect(textOf(body)).toContain('Time (UTC) Kind Capability Key Request id Outcome Calls Credits Rule')
    expect(textOf(body)).toContain(
      `${at.slice(0, 10)} ${at.slice(11, 19)} call ip lookup statement ${requestIds.at(-1)} answered 1 -1 ip_lookup.located Version: 1 Price book: 1`,
    )
    const first = await browser.get(`/organizations/${id}/ledger/lines?cursor=3`)
    expect(textOf(first.body)).toContain('grant +100,000')
  })

  test('shows how many refused calls were recorded together, and the reason', async () => {
    const own = await organization('Knocking')
    const { keyId } = await key(own)
    const atMs = Date.parse('2026-10-01T12:35:00.000Z')
    const refused = {
      key_id: keyId,
      code: 'AUTH_003',
      outcome: 'refused' as const,
      window: '2026-10-01T12:34:00.000Z',
      counts: [
        { capability: 'ip_lookup' as const, count: 5_911 },
        { capability: 'whoami' as const, count: 29 },
      ],
    }
    await room.foundation.ledger.submit(own, {
      key: 'refused',
      atMs,
      actor: `key:${keyId}`,
      kind: 'count_refused',
      refused,
      book: priceBookOf(defaultPriceBook),
    })
    await room.caughtUp()
    const { body } = await browser.get(`/organizations/${own}`)
    expect(textOf(body)).toContain('refused production refused AUTH_003 5,940 0 refusal Version: 1')
  })

  test('shows the kind, reason, author and call of every correction', async () => {
    const own = await organization('Corrected Ltd', '100')
    const { keyId } = await key(own)
    const [plain, repeatable, unknown] = [
      await call(own, keyId, Date.now() - 60_000),
      await call(own, keyId, Date.now() - 50_000, { idempotencyKey: 'order-1' }),
      await call(own, keyId, Date.now()),
    ]
    await room.caughtUp()
    const by = { actor: 'user:ada', dryRun: false }
    await refund(room.foundation, { requestId: plain, reason: 'wrong country', ...by })
    const second = { requestId: repeatable, reason: 'sent twice', reference: 'CRN-11' }
    await refund(room.foundation, { ...second, ...by })
    const charges = await room.foundation.eventLog.read(ledgerStream(own), { max: 100 })
    const charge = charges.map(decodeEvent).find(({ metadata }) => metadata.request_id === unknown)
    const { recorded, metadata } = charge ?? expect.unreachable()
    await room.foundation.ledger.submit(
      own,
      reversalCommand(
        {
          firstEventId: recorded.id,
          chargeId: eventIdOf(own, unknown, 1),
          amount: parseCredits('1'),
          revision: recorded.revision + 1,
          calledMs: Date.parse(metadata.effective_at),
          into: [],
        },
        Date.now(),
      ),
    )
    const gift = { organizationId: own, amount: parseCredits('2.5'), reason: 'after <b>the outage' }
    await adjust(room.foundation, { ...gift, ...by })
    await room.caughtUp()

    const { body } = await browser.get(`/organizations/${own}`)
    const text = textOf(body)
    const corrected = (kind: string, requestId: string) =>
      `adjustment Correction: ${kind} Corrected call: ${requestId} +1`
    expect(text).toContain(`${corrected('refund', plain)} wrong country By: user:ada`)
    expect(text).toContain(`${corrected('refund', repeatable)} sent twice Reference: CRN-11 By: user:ada`)
    expect(text).toContain(
      `${corrected('automatic reversal', unknown)} the outcome of the call was not known in time By: system`,
    )
    expect(text).toContain(
      'adjustment Correction: balance corrected +2.5 after &lt;b&gt;the outage By: user:ada',
    )
    expect(text).toContain('grant +100 test By: cli')
    expect(body).toContain(`<a class="id whole" href="/organizations/${own}/calls/${unknown}">${unknown}`)

    const listed = textOf((await browser.get(`/organizations/${own}/ledger/lines?kind=adjustment`)).body)
    for (const [requestId, reason] of [
      [plain, 'wrong country'],
      [repeatable, 'sent twice Reference: CRN-11'],
    ])
      expect(listed).toContain(
        `adjustment Correction: refund Corrected call: ${requestId} +1 ${reason} By: user:ada`,
      )
    expect(listed).toContain(
      'adjustment Correction: balance corrected +2.5 after &lt;b&gt;the outage By: user:ada',
    )
  })

  test('links from a line to the call, with its explanation', async () => {
    const path = `/organizations/${id}/calls/${requestIds[5]}`
    const answer = await browser.get(path)
    const at = /<a href="([^"]+cursor=[^"]+)">statement<\/a>/.exec(answer.body)?.[1] ?? ''
    const lines = await browser.get(at)
    expect(textOf(/<tbody>\s*<tr.*/.exec(lines.body)?.[0] ?? '')).toContain(requestIds[5])
    expect(answer.statusCode).toBe(200)
    const text = textOf(answer.body)
    for (const part of [
      requestIds[5],
      'Price book 1, digest',
      'Facts and events',
      'KeyUsed',
      'As of ledger revision',
    ])
      expect(text).toContain(part)
  })
})
