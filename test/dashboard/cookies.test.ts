/** Which connections get cookies, and the attributes of these cookies. */
import type { LightMyRequestResponse } from 'fastify'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { putUser } from '../../src/administration/users/users.ts'
import { trustedProxies } from '../../src/guard/caller-address.ts'
import {
  type Browser,
  type DashboardHost,
  encoded,
  openBrowser,
  openDashboardHost,
  tokenIn,
} from './dashboard-host.ts'

const ada = { name: 'ada', password: 'correct horse battery staple' }
const proxy = '10.9.8.7'
let room: DashboardHost
let insecure: DashboardHost

beforeAll(async () => {
  const reach = { trusts: trustedProxies([proxy, '127.9.0.1']) }
  room = await openDashboardHost({ reach })
  insecure = await openDashboardHost({ reach, insecureCookies: true, beside: room })
  await putUser(room.foundation.pool, ada)
})
afterAll(async () => {
  await insecure?.close()
  await room?.close()
})

/** The number of browsers so far. According to the proxy, the n-th is at 203.0.113.n. */
let people = 0
const proxied = (protocol: string, on = room): Browser =>
  openBrowser(on.host, proxy, {
    host: 'dashboard.example.com',
    'x-forwarded-for': `203.0.113.${++people}`,
    'x-forwarded-proto': protocol,
  })

const cookieLines = (answer: LightMyRequestResponse): string[] => [answer.headers['set-cookie'] ?? []].flat()

describe('over HTTPS', () => {
  test('every cookie is Secure and __Host-, for the whole host and no other host', async () => {
    const browser = proxied('https')
    const form = cookieLines(await browser.get('/login'))
    const signedIn = await browser.submit('/login', ada)
    expect(signedIn.statusCode).toBe(303)
    const lines = [...form, ...cookieLines(signedIn)]
    expect(lines.map((line) => line.split('=')[0]).sort()).toEqual([
      '__Host-dashboard_device',
      '__Host-dashboard_form',
      '__Host-dashboard_session',
    ])
    for (const line of lines) {
      expect(line).toMatch(/; Path=\/(;|$)/)
      expect(line).toMatch(/; Secure(;|$)/)
      expect(line).toMatch(/; HttpOnly(;|$)/)
      expect(line).toMatch(/; SameSite=(Lax|Strict)(;|$)/)
      expect(line).not.toMatch(/Domain/i)
    }
    expect((await browser.get('/')).statusCode).toBe(200)
  })

  test('signing out removes the cookie in a way that the browser accepts', async () => {
    const browser = proxied('https')
    await browser.submit('/login', ada)
    const out = await browser.submit('/', {}, '/logout')
    expect(out.headers.location).toBe('/login')
    const line = cookieLines(out).find((one) => one.startsWith('__Host-dashboard_session=')) ?? ''
    expect(line).toMatch(/^__Host-dashboard_session=;/)
    expect(line).toMatch(/; Secure/)
    expect(line).toMatch(/Expires=Thu, 01 Jan 1970/)
    expect([...browser.cookies.keys()].sort()).toEqual(['__Host-dashboard_device', '__Host-dashboard_form'])
  })

  test('a cookie without the prefix is ignored, valid or not, because a sibling host could have set it', async () => {
    const here = openBrowser(room.host)
    await here.submit('/login', ada)
    const bare = [...here.cookies].map(([name, value]) => `${name}=${value}`).join('; ')
    expect((await openBrowser(room.host).get('/', { cookie: bare })).statusCode).toBe(200)
    const answer = await proxied('https').get('/', { cookie: bare })
    expect(answer.headers.location).toBe('/login')
    const both = proxied('https')
    await both.submit('/login', ada)
    const own = [...both.cookies].map(([name, value]) => `${name}=${value}`).join('; ')
    expect((await both.get('/', { cookie: `dashboard_session=made-up; ${own}` })).statusCode).toBe(200)
  })
})

describe('over plain HTTP', () => {
  const refused = async (browser: Browser, headers: Record<string, string> = {}): Promise<void> => {
    for (const path of ['/login', '/', '/organizations/x']) {
      const answer = await browser.get(path, headers)
      expect([path, answer.statusCode]).toEqual([path, 403])
      expect(answer.body).toContain('HTTPS required')
      expect(cookieLines(answer)).toEqual([])
    }
    const post = await browser.post('/login', encoded({ _csrf: 'x', ...ada }), headers)
    expect(post.statusCode).toBe(403)
    expect(cookieLines(post)).toEqual([])
  }

  test.each<[string, () => Browser, Record<string, string>]>([
    ['another machine', () => openBrowser(room.host, '192.0.2.7'), {}],
    [
      'another machine that claims to be this one',
      () => openBrowser(room.host, '192.0.2.7'),
      { host: 'localhost' },
    ],
    ['another machine over IPv6', () => openBrowser(room.host, '2001:db8::7'), {}],
    ['the browser of somebody behind a trusted proxy', () => proxied('http'), {}],
    ['a trusted proxy that does not report the protocol', () => openBrowser(room.host, proxy), {}],
    [
      'an untrusted proxy on this machine, for any headers',
      () => openBrowser(room.host),
      { 'x-forwarded-for': '203.0.113.7', 'x-forwarded-proto': 'https' },
    ],
    ['a proxy here that is not trusted and only signs', () => openBrowser(room.host), { via: '1.1 proxy' }],
    [
      'a browser here that was sent to another name',
      () => openBrowser(room.host),
      { host: 'rebound.example' },
    ],
    [
      'the caller of a trusted proxy here',
      () => openBrowser(room.host, '127.9.0.1'),
      { 'x-forwarded-for': '203.0.113.9' },
    ],
    [
      'a caller a trusted proxy here does not know',
      () => openBrowser(room.host, '127.9.0.1'),
      { 'x-forwarded-for': 'unknown' },
    ],
  ])('%s gets no page and no cookie', async (_, browser, headers) => {
    await refused(browser(), headers)
  })

  test.each<[string, string, Record<string, string>]>([
    ['this machine', '127.0.0.1', { host: '127.0.0.1:3001' }],
    ['this machine over IPv6', '::1', { host: '[::1]:3001' }],
    ['this machine over a dual-stack socket', '::ffff:127.0.0.1', { host: 'localhost:3001' }],
    ['a trusted proxy here for somebody here', '127.9.0.1', { 'x-forwarded-for': '127.0.0.1' }],
  ])('%s gets both', async (_, address, headers) => {
    const browser = openBrowser(room.host, address, headers)
    const answer = await browser.submit('/login', ada)
    expect(answer.statusCode).toBe(303)
    expect([...browser.cookies.keys()].sort()).toEqual([
      'dashboard_device',
      'dashboard_form',
      'dashboard_session',
    ])
    for (const line of cookieLines(answer)) expect(line).not.toMatch(/Secure/)
  })

  test('with INSECURE_COOKIES everyone gets cookies, over HTTPS as before', async () => {
    const browser = openBrowser(insecure.host, '192.0.2.7', { host: 'dashboard.example.com' })
    expect((await browser.submit('/login', ada)).statusCode).toBe(303)
    expect((await browser.get('/')).statusCode).toBe(200)
    expect([...browser.cookies.keys()].sort()).toEqual([
      'dashboard_device',
      'dashboard_form',
      'dashboard_session',
    ])
    const over = proxied('https', insecure)
    expect((await over.submit('/login', ada)).statusCode).toBe(303)
    expect([...over.cookies.keys()].sort()).toEqual([
      '__Host-dashboard_device',
      '__Host-dashboard_form',
      '__Host-dashboard_session',
    ])
  })

  test('pages that need no cookie are available to everyone', async () => {
    const browser = openBrowser(room.host, '192.0.2.7')
    expect((await browser.get('/whoami')).statusCode).toBe(401)
    const href = /<link rel="stylesheet" href="([^"]+)">/.exec((await browser.get('/login')).body)?.[1]
    expect((await browser.get(href ?? '')).statusCode).toBe(200)
  })
})

test('the sign-in limit applies to the caller, not to the proxy', async () => {
  const bob = { name: 'bob', password: 'bob has a password' }
  await putUser(room.foundation.pool, bob)
  const stranger = proxied('https')
  for (let i = 0; i < 10; i++)
    expect((await stranger.submit('/login', { name: `guess-${i}`, password: 'x' })).statusCode).toBe(401)
  expect((await stranger.submit('/login', bob)).statusCode).toBe(429)
  expect((await proxied('https').submit('/login', bob)).statusCode).toBe(303)
})

test('a caller with an IPv6 network gains nothing from a new address for every attempt', async () => {
  for (let i = 0; i < 11; i++) {
    const browser = openBrowser(room.host, proxy, {
      'x-forwarded-proto': 'https',
      'x-forwarded-for': `2001:db8:5:5::${i.toString(16)}`,
    })
    const page = await browser.get('/login')
    const fields = { _csrf: tokenIn(page.body), name: `somebody-${i}`, password: 'x' }
    expect((await browser.post('/login', encoded(fields))).statusCode).toBe(i < 10 ? 401 : 429)
  }
})
