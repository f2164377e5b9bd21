/** An organization's pixel on the dashboard: its rules, their usage, and its hits by day. */

import { describe, expect, test } from 'vitest'
import { openPixelCounters } from '../../src/capabilities/pixel/counters.ts'
import { createPixelRules } from '../../src/capabilities/pixel/rules.ts'
import { matchRules } from '../../src/capabilities/pixel/rules-state.ts'
import { decodeEvent } from '../../src/event-log/stored-event.ts'
import { pixelStream } from '../../src/events/streams.ts'
import { logger } from '../support/logger.ts'
import { openOrganization } from '../support/partners.ts'
import { type Browser, browserOf, roomForFile } from './dashboard-host.ts'
import { recordCall } from './scene.ts'

const actor = 'cli:setup'
const keyId = '0123456789abcdef'

const room = await roomForFile()
const ours = await openOrganization(room.foundation, 'Ours')
const theirs = await openOrganization(room.foundation, 'Theirs')
const base = `/organizations/${ours}/pixel`
const rulesPage = `${base}/rules`
await room.caughtUp()
const viewer = await browserOf(room, { name: 'vic', role: 'viewer' })
const partner = await browserOf(room, { name: 'pia', role: 'partner', organizationId: ours })

const sent = (browser: Browser, act: string, typed: Record<string, string>) =>
  browser.submit(`${base}/${act}`, { ...typed, confirmed: 'yes' })

const recorded = async (organizationId = ours) =>
  (await room.foundation.eventLog.read(pixelStream(organizationId), { from: 0, max: 1_000 }).catch(() => []))
    .map(decodeEvent)
    .map(({ type, data, metadata }) => ({ type, data, by: metadata.actor }))

const decided = (domain: string | null, fire: boolean, atMs = Date.now(), organizationId = ours) => {
  const facts = { kind: 'pixel', action: 'decided', domain, fire } as const
  return recordCall(
    room,
    organizationId,
    { keyId, capability: 'pixel', outcome: 'answered', facts },
    { atMs },
  )
}

describe('the rules', () => {
  test('are set and removed with forms, recorded as events with the actor, and apply to hits in another process', async () => {
    expect((await partner.get(rulesPage)).body).toContain('No rules: the pixel fires everywhere.')
    const limit = { domain: 'Shop.Example.com.', number: '2', period: 'day' }
    expect((await sent(partner, 'limit', limit)).statusCode).toBe(200)
    await sent(partner, 'block', { domain: 'bad.example.org' })
    // The domain is blocked already, so nothing is recorded.
    await sent(partner, 'block', { domain: 'bad.example.org' })
    const of = { organization_id: ours }
    expect(await recorded()).toEqual([
      {
        type: 'PixelLimitSet',
        data: { ...of, domain: 'shop.example.com', period: 'day', number: 2 },
        by: 'user:pia',
      },
      { type: 'PixelBlocked', data: { ...of, domain: 'bad.example.org' }, by: 'user:pia' },
    ])
    const body = (await partner.get(rulesPage)).body
    expect(body).toContain('<div>limit</div></td><td data-head="Per"><div>day</div>')
    expect(body).toContain('<div>block</div>')
    expect(body).toContain('user:pia')

    const rules = createPixelRules(room.foundation.eventLog)
    const counters = openPixelCounters({ url: room.url, logger })
    try {
      const atMs = Date.now()
      const known = await rules.certain(ours)
      expect(matchRules(known, 'www.bad.example.org', atMs).blockedBy).toBe('bad.example.org')
      for (let i = 0; i < 3; i++)
        await counters.take({
          organizationId: ours,
          host: 'shop.example.com',
          hitId: null,
          atMs,
          rules: matchRules(known, 'shop.example.com', atMs),
        })
      const { body } = await partner.get(rulesPage)
      expect(body).toContain('2 <span class="mark bad">used up</span>')
      expect(body).toMatch(/<meter min="0" max="2" value="2" aria-label="Used now: 2 of 2">2 of 2<\/meter>/)
      // A call has changed the rule in the meantime. The next page and its forms start from the changed rule.
      await rules.change(
        ours,
        { kind: 'limit', domain: 'shop.example.com', period: 'day', number: 7 },
        { actor: `key:${keyId}`, once: 'x', requestId: 'x', atMs },
      )
      const after = (await partner.get(rulesPage)).body
      expect(after).toContain('max="7"')
      expect(after).toContain(`key:${keyId}`)
      expect(after).toContain(`href="${base}/unblock?domain=bad.example.org"`)
      await sent(partner, 'unlimit', { domain: 'shop.example.com', period: 'day' })
      await sent(partner, 'unblock', { domain: 'bad.example.org' })
      expect((await partner.get(rulesPage)).body).toContain('No rules: the pixel fires everywhere.')
    } finally {
      await counters.close()
    }
  })

  test.each([
    ['limit', { domain: 'example.com', number: '0', period: 'day' }, 'whole number from 1'],
    ['limit', { domain: 'example.com', number: '5', period: 'year' }, 'not one of day, month'],
    ['block', { domain: 'exa\u0000mple.com' }, 'U+0000'],
    ['unblock', { domain: '<b>' }, 'registrable domain'],
  ])('refuse input that a call would refuse: %s %o', async (act, fields, said) => {
    const before = await recorded()
    const { statusCode, body } = await sent(partner, act, fields)
    expect(statusCode).toBe(422)
    expect(body).toContain('role="alert"')
    expect(body).toContain(said)
    expect(await recorded()).toEqual(before)
  })

  test('are found by a part of their domain, up to the requested number, for any input', async () => {
    const rules = createPixelRules(room.foundation.eventLog)
    const many = Array.from({ length: 60 }, (_, i) => `d${String(i).padStart(2, '0')}.example.net`)
    await Promise.all(
      many.map((domain) =>
        rules.change(ours, { kind: 'block', domain }, { actor, once: domain, atMs: Date.now() }),
      ),
    )
    const shownIn = (body: string) =>
      [...body.matchAll(/data-head="Domain">(d\d\d)\./g)].map(([, name]) => name)
    const first = (await partner.get(`${rulesPage}?max=50`)).body
    expect(shownIn(first)).toEqual(many.slice(0, 50).map((name) => name.slice(0, 3)))
    expect(first).toContain('The pixel has 60 rules in total.')
    expect(shownIn((await partner.get(rulesPage)).body)).toHaveLength(60)
    expect(shownIn((await partner.get(`${rulesPage}?domain=D17`)).body)).toEqual(['d17'])
    for (const query of ['domain=%F0%9F%98%80', `domain=${'x'.repeat(300)}`, 'domain=a&domain=b'])
      expect([query, (await partner.get(`${rulesPage}?${query}`)).statusCode]).toEqual([query, 200])
    expect((await partner.get(`${rulesPage}?domain=%00`)).statusCode).toBe(422)
  })

  test('with an unreadable event are shown as allowing no hit to fire', async () => {
    const { eventLog } = room.foundation
    await eventLog.append(pixelStream(theirs), 'none', [
      {
        id: '00000000-0000-4000-8000-000000000001',
        type: 'PixelForbidden',
        data: '{}',
        metadata: JSON.stringify({ actor, effective_at: new Date().toISOString(), schema_version: 1 }),
      },
    ])
    const page = await viewer.get(`/organizations/${theirs}/pixel/rules`)
    expect(page.statusCode).toBe(200)
    expect(page.body).toContain('Event 0 of its rules cannot be read, so the pixel does not fire.')
  })
})

describe('hits', () => {
  test('are shown by day and domain, newest first, up to the requested number', async () => {
    const dayMs = 86_400_000
    await Promise.all(
      Array.from({ length: 70 }, (_, i) =>
        decided('a.example.com', i % 2 === 1, Date.now() - (i + 1) * dayMs),
      ),
    )
    await decided(null, false)
    await decided('b.example.com', true)
    await decided('b.example.com', true)
    await decided('c.example.com', true, Date.now(), theirs)
    await room.caughtUp()
    const hits = async (query: string) => (await partner.get(`${base}/hits?${query}`)).body
    const body = await hits('max=50')
    const today = new Date().toISOString().slice(0, 10)
    const rows = (page: string) =>
      [...page.matchAll(/data-head="Day \(UTC\)">(\d{4}-\d\d-\d\d)</g)].map(([, day]) => day)
    expect(rows(body)).toHaveLength(50)
    expect(rows(body).slice(0, 2)).toEqual([today, today])
    expect(body).toContain('data-head="Domain of the rule"><div></div>')
    expect(body).not.toContain('c.example.com')
    // Thirty days including today: two hits today, and one on every second of the 29 days before.
    expect(body).toContain('<dt>Fired</dt><dd>16</dd>')
    expect(body).toContain('<dt>Refused</dt><dd>16</dd>')
    expect(body).toContain('<dt>More</dt><dd>yes</dd>')
    expect(rows(await hits(''))).toHaveLength(72)
    expect(rows(await hits('domain=b.example.com'))).toEqual([today])
    expect(rows(await hits('domain=b.example.co'))).toEqual([])
  })
})
