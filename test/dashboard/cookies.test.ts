/** Which connections get cookies, and the attributes of these cookies. Pages and calls share a host without affecting each other. */
import type { LightMyRequestResponse } from 'fastify'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { insertUser } from '../../src/administration/users/users.ts'
import { trustedProxies } from '../../src/guard/caller-address.ts'
import { openPartner } from '../support/partners.ts'
import {
  type Browser,
  encoded,
  openBrowser,
  openDashboardHost,
  signedIn,
  tokenIn,
  withoutOwnScripts,
} from './dashboard-host.ts'

const ada = { name: 'ada', password: 'correct horse battery staple' }
const proxy = '10.9.8.7'

const reach = { trusts: trustedProxies([proxy, '127.9.0.1']) }
const room = await openDashboardHost({ reach })
const insecure = await openDashboardHost({ reach, insecureCookies: true, beside: room })
await insertUser(room.foundation.pool, { ...ada, role: 'admin' })
afterAll(async () => {
  await insecure.close()
  await room.close()
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
  test('every cookie is Secure and has the prefix __Host-, for the whole host and no other host', async () => {
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

  test.each<[string, string, Record<string, string>, string]>([
    ['this machine', '127.0.0.1', { host: '127.0.0.1:3001' }, '3001-'],
    ['this machine over IPv6', '::1', { host: '[::1]:3001' }, '3001-'],
    ['this machine over a dual-stack socket', '::ffff:127.0.0.1', { host: 'localhost:3002' }, '3002-'],
    ['a trusted proxy here for somebody here', '127.9.0.1', { 'x-forwarded-for': '127.0.0.1' }, ''],
  ])('%s gets both', async (_, address, headers, prefix) => {
    const browser = openBrowser(room.host, address, headers)
    const answer = await browser.submit('/login', ada)
    expect(answer.statusCode).toBe(303)
    expect([...browser.cookies.keys()].sort()).toEqual([
      `${prefix}dashboard_device`,
      `${prefix}dashboard_form`,
      `${prefix}dashboard_session`,
    ])
    for (const line of cookieLines(answer)) expect(line).not.toMatch(/Secure/)
  })

  test('a session at one port of a host does not affect a dashboard at another port', async () => {
    const carol = { name: 'carol', password: 'carol has a password' }
    await insertUser(room.foundation.pool, { ...carol, role: 'admin' })
    const browser = openBrowser(room.host, '127.0.0.1')
    const at = async (port: number): Promise<string | undefined> =>
      (await browser.get('/', { host: `localhost:${port}` })).headers.location
    const signIn = async (port: number): Promise<void> => {
      const headers = { host: `localhost:${port}` }
      const fields = { _csrf: tokenIn((await browser.get('/login', headers)).body), ...carol }
      expect((await browser.post('/login', encoded(fields), headers)).statusCode).toBe(303)
    }
    await signIn(3001)
    expect([await at(3001), await at(4001)]).toEqual([undefined, '/login'])
    await signIn(4001)
    expect([await at(3001), await at(4001)]).toEqual([undefined, undefined])
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
  await insertUser(room.foundation.pool, { ...bob, role: 'admin' })
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

describe('pages and calls on one host', () => {
  let apiKey = ''
  // The attempts of the other user are counted by now.
  const vera = { name: 'vera', password: 'correct horse battery staple' }
  beforeAll(async () => {
    await insertUser(room.foundation.pool, { ...vera, role: 'admin' })
    ;({ apiKey } = await openPartner(room.foundation, { credits: '10', permissions: [] }))
    await room.caughtUp()
  })

  test('whoami answers in JSON and sets no cookie, even for a signed-in browser', async () => {
    const browser = await signedIn(room, vera)
    const answer = await browser.get('/whoami', { 'x-api-key': apiKey })
    expect(answer.statusCode).toBe(200)
    expect(answer.json()).toMatchObject({ organization: 'Partner' })
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
    const browser = await signedIn(room, vera)
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
    const browser = await signedIn(room, vera)
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
      expect(file.headers['content-type']).toMatch(
        /^(text\/(css|javascript); charset=utf-8|image\/svg\+xml)$/,
      )
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
})
