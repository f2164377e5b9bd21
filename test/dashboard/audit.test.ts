/** The audit in the dashboard: a paged list and its filters. */
import pino from 'pino'
import { afterAll, beforeAll, expect, test, vi } from 'vitest'
import { defaultKeyLimits, issueKey, revoke } from '../../src/administration/keys/api-keys.ts'
import { createOrganization } from '../../src/administration/organizations/organizations.ts'
import { putUser } from '../../src/administration/users/users.ts'
import { createWebhook } from '../../src/administration/webhooks/webhooks.ts'
import { createPixelControls } from '../../src/capabilities/index.ts'
import { type Browser, type DashboardHost, openDashboardHost, signedIn } from './dashboard-host.ts'

let room: DashboardHost
let ada: Browser
const organizations = 130

beforeAll(async () => {
  room = await openDashboardHost()
  const user = { name: 'ada', password: 'correct horse battery staple' }
  await putUser(room.foundation.pool, user)
  ada = await signedIn(room, user)
  const organization = (n: number) => ({ name: `<b>Org</b> ${n}`, overdraftLimit: 0n, actor: 'user:bob' })
  const create = (n: number) => createOrganization(room.foundation, organization(n))
  await Promise.all(Array.from({ length: organizations - 1 }, (_, n) => create(n)))
  await create(organizations - 1)
  await room.caughtUp()
})
afterAll(() => room?.close())

const rowsIn = (body: string): number => body.split('<tr').length - 2

test('lists changes with their actors, the newest first, one page at a time', async () => {
  const { statusCode, body } = await ada.get('/commands/audit/list?actor=bob')
  expect(statusCode).toBe(200)
  expect(rowsIn(body)).toBe(100)
  expect(body).toMatch(/<a href="\/organizations\/org_\w+">&lt;b&gt;Org&lt;\/b&gt; \d+<\/a>/)
  expect(body).toContain(`&lt;b&gt;Org&lt;/b&gt; ${organizations - 1}`)
  expect(body).not.toContain('<b>Org')
  const more =
    /href="(\/commands\/audit\/list\?[^"]*cursor=\d+)"/.exec(body)?.[1]?.replaceAll('&amp;', '&') ?? ''
  const second = await ada.get(more)
  expect(rowsIn(second.body)).toBe(organizations - 100)
  expect(second.body).toContain('First page')
})

test('shows the error in a filter next to it, and in a cursor that is no position', async () => {
  const filters = ['since=yesterday', 'type=CreditGrante', 'about=%00', `actor=${'x'.repeat(300)}`]
  for (const query of [...filters, 'cursor=x', `cursor=${2n ** 63n}`, 'cursor=9999999999999999999']) {
    const { statusCode, body } = await ada.get(`/commands/audit/list?${query}`)
    expect({ query, statusCode }).toEqual({ query, statusCode: 422 })
    expect(body).toContain('role="alert"')
  }
})

test('reads no more of the log than a page shows', async () => {
  const at = vi.spyOn(room.foundation.eventLog, 'at')
  try {
    expect(rowsIn((await ada.get('/commands/audit/list')).body)).toBe(100)
    expect(at.mock.calls.length).toBe(101)
  } finally {
    at.mockRestore()
  }
})

test('reports that events are missing which this release cannot read', async () => {
  const { pool } = room.foundation
  const says = /1 event is missing here/
  await pool.query(
    `insert into parked_events (projection, position, stream, error, parked_at) values ('audit', 1, 'x', 'a test', now())`,
  )
  try {
    expect((await ada.get('/commands/audit/list')).body).toMatch(says)
  } finally {
    await pool.query(`delete from parked_events where projection = 'audit'`)
  }
  expect((await ada.get('/commands/audit/list')).body).not.toMatch(says)
})

test('names the organization of keys, webhooks and pixel rules', async () => {
  const { organizationId } = await createOrganization(room.foundation, {
    ...{ name: 'Adventure Works', overdraftLimit: 0n, actor: 'user:carol' },
  })
  const actor = 'user:carol'
  const { keyId } = await issueKey(room.foundation, {
    ...{ organizationId, name: 'one', actor, permissions: ['ip_lookup'], limits: defaultKeyLimits },
    ...{ allowedCidrs: [], expiresAt: null },
  })
  await revoke(room.foundation, { keyId, reason: 'lost', actor })
  const url = new URL('https://[::1]/inside')
  await createWebhook(room.foundation, { organizationId, url, events: ['checkpoint'], actor })
  const pixel = createPixelControls({ ...room.foundation, logger: pino({ level: 'silent' }) })
  const block = { kind: 'block' as const, text: () => 'blocked.example.org' }
  await pixel.change(organizationId, block, { actor, once: 'one', atMs: Date.now() })
  await pixel.close()
  await room.caughtUp()
  const { body } = await ada.get('/commands/audit/list?actor=carol')
  expect([rowsIn(body), body.split(`href="/organizations/${organizationId}"`).length - 1]).toEqual([5, 5])
})
