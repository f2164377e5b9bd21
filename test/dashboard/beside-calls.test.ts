/** Pages and calls share a host without affecting each other. */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { grant } from '../../src/administration/credits/credits.ts'
import { defaultKeyLimits, issueKey } from '../../src/administration/keys/api-keys.ts'
import { createOrganization } from '../../src/administration/organizations/organizations.ts'
import { putUser } from '../../src/administration/users/users.ts'
import { parseCredits } from '../../src/billing/money.ts'
import {
  type DashboardHost,
  openBrowser,
  openDashboardHost,
  signedIn,
  withoutOwnScripts,
} from './dashboard-host.ts'

let room: DashboardHost
let apiKey = ''
const ada = { name: 'ada', password: 'correct horse battery staple' }

beforeAll(async () => {
  room = await openDashboardHost()
  await putUser(room.foundation.pool, ada)
  const actor = 'cli'
  const { organizationId } = await createOrganization(room.foundation, {
    name: 'Acme',
    overdraftLimit: 0n,
    actor,
  })
  await grant(room.foundation, {
    organizationId,
    amount: parseCredits('10'),
    priority: 1,
    expiresAt: null,
    reason: 'test',
    actor,
  })
  ;({ apiKey } = await issueKey(room.foundation, {
    organizationId,
    name: 'production',
    permissions: [],
    limits: defaultKeyLimits,
    allowedCidrs: [],
    expiresAt: null,
    actor,
  }))
  await room.caughtUp()
})
afterAll(() => room?.close())

test('whoami answers in JSON and sets no cookie, even for a signed-in browser', async () => {
  const browser = await signedIn(room, ada)
  const answer = await browser.get('/whoami', { 'x-api-key': apiKey })
  expect(answer.statusCode).toBe(200)
  expect(answer.json()).toMatchObject({ organization: 'Acme' })
  expect(answer.headers['content-type']).toBe('application/json; charset=utf-8')
  expect(answer.headers['set-cookie']).toBeUndefined()
  expect(answer.headers['content-security-policy']).toBeUndefined()
})

test('whoami refuses with the words of the error catalogue', async () => {
  const browser = openBrowser(room.host)
  const unknown = await browser.get('/whoami')
  expect(unknown.statusCode).toBe(401)
  expect(unknown.json()).toMatchObject({ code: 'AUTH_001' })
  expect(unknown.headers['set-cookie']).toBeUndefined()
  for (const type of ['application/json', 'application/x-www-form-urlencoded', 'text/plain']) {
    const wrong = await browser.post('/whoami', 'a=b', { 'content-type': type })
    expect(wrong.statusCode).toBe(405)
    expect(wrong.headers.allow).toBe('GET')
    expect(wrong.headers['content-type']).toBe('application/json; charset=utf-8')
    expect(wrong.headers['set-cookie']).toBeUndefined()
  }
})

test('an unknown address is a page for a person and JSON for a program', async () => {
  const browser = openBrowser(room.host)
  const page = await browser.get('/nothing/here')
  expect(page.statusCode).toBe(404)
  expect(page.headers['content-type']).toBe('text/html; charset=utf-8')
  expect(page.body).toContain('Page not found')
  for (const answer of [
    await browser.get('/nothing', { accept: '*/*' }),
    await browser.post('/nothing', '{}', { 'content-type': 'application/json' }),
    await room.host.inject({ method: 'DELETE', url: '/nothing' }),
  ]) {
    expect(answer.statusCode).toBe(404)
    expect(answer.headers['content-type']).toBe('application/json; charset=utf-8')
    expect(answer.json()).toHaveProperty('code')
    expect(answer.headers['set-cookie']).toBeUndefined()
  }
  const wrongMethod = await room.host.inject({ method: 'DELETE', url: '/' })
  expect(wrongMethod.json()).toMatchObject({ code: 'REQ_005', details: { allowed: ['GET'] } })
  expect(wrongMethod.headers.allow).toBe('GET')
})

test('every page has the security headers and must not be cached', async () => {
  const browser = await signedIn(room, ada)
  for (const path of ['/', '/login', '/nothing', '/organizations/x']) {
    const { headers } = await browser.get(path)
    expect(headers['content-security-policy']).toBe(
      "default-src 'none';script-src 'self';style-src 'self';img-src 'self';connect-src 'self';form-action 'self';base-uri 'none';frame-ancestors 'none'",
    )
    expect(headers).toMatchObject({
      'x-content-type-options': 'nosniff',
      'x-frame-options': 'DENY',
      'referrer-policy': 'no-referrer',
    })
    if (path !== '/login') expect(headers['cache-control']).toBe('no-store')
  }
})

test('pages have no scripts except our files, and no inline styles; the files can be cached and set no cookie', async () => {
  const browser = await signedIn(room, ada)
  const { body } = await browser.get('/')
  expect(withoutOwnScripts(body)).not.toMatch(/<script|<style|\sstyle=|\son[a-z]+=|javascript:/i)
  const files = [...body.matchAll(/(?:href|src)="(\/assets\/[^"]+)"/g)].map(([, href = '']) => href)
  expect(files.map((href) => href.slice(href.lastIndexOf('/')))).toEqual([
    '/mark.svg',
    '/style.css',
    '/page.js',
    '/more.js',
    '/plots.js',
  ])
  for (const href of files) {
    const file = await browser.get(href)
    expect(file.statusCode).toBe(200)
    expect(file.headers['content-type']).toMatch(/^(text\/(css|javascript); charset=utf-8|image\/svg\+xml)$/)
    expect(file.headers['cache-control']).toContain('immutable')
    expect(file.headers['set-cookie']).toBeUndefined()
    expect(file.body).not.toMatch(/url\(|@import/)
  }
})

test('files of another release are served but must not be cached; other files do not exist', async () => {
  const stranger = openBrowser(room.host)
  expect((await stranger.get('/assets/000000000000/style.css')).headers['cache-control']).toBe('no-cache')
  for (const path of ['/assets/x/nothing.js', '/assets/x/..%2F..%2Fpage.ts', '/assets/x/%00'])
    expect((await stranger.get(path)).statusCode).toBe(404)
})

test('every page names the source of the locations', async () => {
  const { body } = await openBrowser(room.host).get('/login')
  expect(body).toContain('<a href="https://db-ip.com">IP geolocation by DB-IP</a>')
})
