/** The audit in the dashboard: every change by anyone, with filters. */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { createOrganization } from '../../src/administration/organizations/organizations.ts'
import { putUser } from '../../src/administration/users/users.ts'
import { type Browser, type DashboardHost, openDashboardHost, signedIn } from './dashboard-host.ts'

let room: DashboardHost
let ada: Browser
const organizations = 130

beforeAll(async () => {
  room = await openDashboardHost()
  const user = { name: 'ada', password: 'correct horse battery staple' }
  await putUser(room.foundation.pool, user)
  ada = await signedIn(room, user)
  for (let n = 0; n < organizations; n++)
    await createOrganization(room.foundation, {
      name: `<b>Org</b> ${n}`,
      overdraftLimit: 0n,
      actor: 'user:bob',
    })
  await room.caughtUp()
})
afterAll(() => room?.close())

const rowsIn = (body: string): number => body.split('<tr').length - 2

test('tells who did what, the newest first, a page at a time', async () => {
  const { statusCode, body } = await ada.get('/audit?actor=bob')
  expect(statusCode).toBe(200)
  expect(rowsIn(body)).toBe(100)
  expect(body).toMatch(/<a href="\/organizations\/org_\w+">&lt;b&gt;Org&lt;\/b&gt; \d+<\/a>/)
  expect(body).toContain(`&lt;b&gt;Org&lt;/b&gt; ${organizations - 1}`)
  expect(body).not.toContain('<b>Org')
  const more = /href="(\/audit\?[^"]*after=\d+)"/.exec(body)?.[1]?.replaceAll('&amp;', '&') ?? ''
  const second = await ada.get(more)
  expect(rowsIn(second.body)).toBe(organizations - 100)
  expect(second.body).toContain('From the beginning')
})

test('is filtered by who, what and when, and the form keeps what was typed', async () => {
  expect((await ada.get('/audit?type=OrganizationRegistered&order=oldest')).body).toContain('Org&lt;/b&gt; 0')
  expect((await ada.get('/audit?actor=nobody')).body).toContain('Nothing was found')
  expect((await ada.get('/audit?since=2999-01-01')).body).toContain('Nothing was found')
  expect((await ada.get('/audit?actor=user%3Aada')).body).toContain('value="user:ada"')
  expect((await ada.get('/')).body).toContain('href="/audit"')
})

test('says what is wrong with a filter', async () => {
  for (const query of ['since=yesterday', 'type=CreditGrante', 'about=%00', `actor=${'x'.repeat(300)}`]) {
    const { statusCode, body } = await ada.get(`/audit?${query}`)
    expect({ query, statusCode }).toEqual({ query, statusCode: 422 })
    expect(body).toContain('role="alert"')
  }
})
