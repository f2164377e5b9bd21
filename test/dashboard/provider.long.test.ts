/** Signing in with a real identity provider on loopback. */
import { createServer, type ServerResponse } from 'node:http'
import { Secret, TOTP } from 'otpauth'
import { afterAll, describe, expect, test } from 'vitest'
import { setSecondFactor } from '../../src/administration/users/second-factors.ts'
import { freshTotpSecret } from '../../src/administration/users/totp.ts'
import { createUser, setDisabled } from '../../src/administration/users/user-changes.ts'
import { createIdentityProvider, ProviderAway } from '../../src/dashboard/identity-provider.ts'
import { until } from '../support/house.ts'
import { type Claims, client, closed, listening, openTestProvider } from '../support/identity-provider.ts'
import { type Browser, openBrowser, openDashboardHost, signInEvents } from './dashboard-host.ts'

const redirectUri = 'http://localhost/login/provider/callback'
const actor = 'cli:setup'
const claims = new Map<string, Claims>()
const claimsOf = (account: string): Claims => claims.get(account) ?? { email: account, email_verified: true }

const provider = await openTestProvider({ redirectUri, claimsOf })
const room = await openDashboardHost({ provider: { issuer: provider.issuer, ...client, nameClaim: 'email' } })
afterAll(async () => {
  await room.close()
  await provider.close()
})

let people = 0
const person = async (): Promise<{ name: string; password: string }> => {
  const name = `ada-${++people}@example.com`
  const { password } = await createUser(room.foundation, {
    name,
    role: 'viewer',
    organizationId: null,
    actor,
  })
  return { name, password }
}
/** Goes to the provider, and returns the URL to which it redirects the browser. */
const there = async (browser: Browser, account: string, query = ''): Promise<string> => {
  const { statusCode, headers } = await browser.get(`/login/provider${query}`)
  expect(statusCode).toBe(303)
  const { pathname, search } = await provider.signIn(String(headers.location), account)
  return `${pathname}${search}`
}
describe('the person whom the provider names', () => {
  test('is signed in as the user with that name, and redirected to the requested page; the event records the method', async () => {
    const { name } = await person()
    const browser = openBrowser(room.host)
    const page = (await browser.get('/login?next=/commands/audit/list')).body
    expect(page).toContain(`Sign in with ${new URL(provider.issuer).host}`)
    expect(page).toContain('href="/login/provider?next=%2Fcommands%2Faudit%2Flist"')
    const answer = await browser.get(await there(browser, name, '?next=%2Fcommands%2Faudit%2Flist'))
    expect([answer.statusCode, answer.headers.location]).toEqual([303, '/commands/audit/list'])
    expect((await signInEvents(room)).filter((event) => event.type === 'UserSignedIn')).toMatchObject([
      { user: name, way: 'identity_provider', known_device: false, by: `user:${name}` },
    ])
    expect((await browser.get('/me')).statusCode).toBe(200)
    // The person signs in on a device that this person has used before.
    await browser.submit('/me', {}, '/logout')
    await browser.get(await there(browser, name))
    expect((await signInEvents(room)).at(-1)).toMatchObject({ user: name, known_device: true })
  })

  test('cannot sign in if no user has that name, or if the user is disabled; the page shows no details', async () => {
    const { name } = await person()
    await setDisabled(room.foundation, { name, disabled: true, reason: 'left', actor })
    const before = (await signInEvents(room)).length
    const pages = []
    for (const account of [name, 'stranger@example.com']) {
      const browser = openBrowser(room.host)
      const answer = await browser.get(await there(browser, account))
      expect(answer.statusCode).toBe(401)
      expect(answer.body).toContain('Your account at the provider has no access here.')
      expect(answer.body).not.toContain(account)
      expect((await browser.get('/')).headers.location).toBe('/login')
      pages.push(answer.body.replaceAll(/value="[^"]+"/g, ''))
    }
    expect(pages[0]).toBe(pages[1])
    await until('both are recorded', async () => (await signInEvents(room)).length === before + 2)
    expect((await signInEvents(room)).slice(before)).toMatchObject([
      { type: 'SignInsRefused', user: name, reason: 'disabled', way: 'identity_provider' },
      { type: 'SignInsRefused', user: null, reason: 'wrong', way: 'identity_provider' },
    ])
    expect(JSON.stringify(await signInEvents(room))).not.toContain('stranger')
  })

  test('starts over if another release wrote the cookie of the sign-in', async () => {
    const { name } = await person()
    const browser = openBrowser(room.host)
    const back = await there(browser, name)
    const sealer = room.foundation.secrets.sealer('dashboard provider errand')
    const cookie = `dashboard_provider=${sealer.seal(JSON.stringify({ state: 'only this' }), 'errand')}`
    const answer = await room.host.inject({ url: back, headers: { cookie, host: 'localhost' } })
    expect(answer.statusCode).toBe(400)
    expect(answer.body).toContain('Start again.')
  })

  test('has not used a generated password, and need not replace it', async () => {
    const { name } = await person()
    const browser = openBrowser(room.host)
    await browser.get(await there(browser, name))
    expect((await browser.get('/operations')).statusCode).toBe(200)
    expect((await browser.get('/me')).body).not.toContain('password was generated')
  })

  test('must enter the code of a second factor like any user', async () => {
    const { name } = await person()
    const secret = freshTotpSecret()
    const app = new TOTP({ secret: Secret.fromBase32(secret) })
    const asked = { user: name, secret, typed: app.generate(), actor: `user:${name}` }
    const { codes } = await setSecondFactor(room.foundation, asked, Date.now())
    const browser = openBrowser(room.host)
    const answer = await browser.get(await there(browser, name, '?next=%2Foperations'))
    expect([answer.statusCode, answer.headers.location]).toEqual([303, '/login/code'])
    expect((await browser.get('/operations')).headers.location).toBe('/login?next=%2Foperations')
    const entered = await browser.submit('/login/code', { code: codes[0] ?? '' })
    expect([entered.statusCode, entered.headers.location]).toEqual([303, '/operations'])
    expect((await browser.get('/operations')).statusCode).toBe(200)
    expect((await signInEvents(room)).at(-1)).toMatchObject({ user: name, way: 'identity_provider' })
  })

  test.each([
    ['an address that was not verified', { email_verified: false }],
    ['an address whose verification is no', { email_verified: 'false' }],
    ['no claim of that name', { email: '' }],
  ])('is refused with %s', async (_, changed: Claims) => {
    const { name } = await person()
    claims.set(name, { email: name, ...changed })
    const browser = openBrowser(room.host)
    const answer = await browser.get(await there(browser, name))
    expect(answer.statusCode).toBe(401)
    expect(answer.body).toContain('The provider did not confirm your identity.')
    expect((await browser.get('/')).headers.location).toBe('/login')
  })
})

describe("the provider's answer", () => {
  test('signs no one in if it is in another browser, used a second time, or has another state', async () => {
    const { name } = await person()
    const browser = openBrowser(room.host)
    const back = await there(browser, name)
    const other = openBrowser(room.host)
    expect((await other.get(back)).statusCode).toBe(400)
    // The second browser has begun its own sign-in.
    await other.get('/login/provider')
    expect((await other.get(back)).statusCode).toBe(401)
    expect((await other.get('/')).headers.location).toBe('/login')
    expect((await browser.get(back)).statusCode).toBe(303)
    expect((await browser.get(back)).statusCode).toBe(400)
  })

  test("with a refusal leads to the sign-in page, without the provider's text", async () => {
    const browser = openBrowser(room.host)
    const { headers } = await browser.get('/login/provider')
    const state = new URL(String(headers.location)).searchParams.get('state')
    const query = new URLSearchParams({
      error: 'access_denied',
      error_description: '<b>hello',
      iss: provider.issuer,
      state: String(state),
    })
    const answer = await browser.get(`/login/provider/callback?${query}`)
    expect(answer.statusCode).toBe(401)
    expect(answer.body).not.toContain('hello')
  })

  test('never leads to another site', async () => {
    const { name } = await person()
    const browser = openBrowser(room.host)
    const answer = await browser.get(await there(browser, name, '?next=https%3A%2F%2Fevil.example'))
    expect(answer.headers.location).toBe('/')
  })

  test('must have the nonce and the verifier of its request', async () => {
    const { name } = await person()
    const own = createIdentityProvider({ issuer: provider.issuer, ...client, nameClaim: 'email' })
    for (const [changed, kind] of [
      [{ nonce: 'of another sign-in' }, 'refused'],
      [{ verifier: 'x'.repeat(43) }, 'refused'],
      [{}, 'named'],
    ] as const) {
      const { url, errand } = await own.begin(redirectUri)
      const { search } = await provider.signIn(url, name)
      expect(await own.finish(search, { ...errand, ...changed })).toMatchObject({ kind })
      // An authorization code works only once.
      if (kind === 'named') expect(await own.finish(search, errand)).toMatchObject({ kind: 'refused' })
    }
  })
})

test('another claim can be the name, and a provider can require the secret in the body', async () => {
  const own = await openTestProvider({
    redirectUri,
    claimsOf: () => ({ preferred_username: 'ada', email: 'x@example.com', email_verified: false }),
    authMethod: 'client_secret_post',
  })
  try {
    const identity = createIdentityProvider({
      issuer: own.issuer,
      ...client,
      nameClaim: 'preferred_username',
    })
    const { url, errand } = await identity.begin(redirectUri)
    const { search } = await own.signIn(url, 'anyone')
    expect(await identity.finish(search, errand)).toEqual({ kind: 'named', name: 'ada' })
  } finally {
    await own.close()
  }
})

describe('while the provider is down', () => {
  const errorAt = (issuer: string) =>
    createIdentityProvider({ issuer, ...client, nameClaim: 'email' })
      .begin(redirectUri)
      .catch((error: unknown) => error)

  test.each<[string, (response: ServerResponse) => void]>([
    ['it answers with an error', (response) => response.writeHead(503).end()],
    ['it is not a provider', (response) => response.end('<h1>Hello')],
    [
      'its answer is endless',
      (response) => {
        response.writeHead(200, { 'content-type': 'application/json' })
        const more = (): void => {
          while (!response.destroyed && response.write(' '.repeat(65_536)));
          response.once('drain', more)
        }
        more()
      },
    ],
    ['it never answers', () => undefined],
  ])('%s: no sign-in begins', async (_, answer) => {
    const server = createServer((_request, response) => answer(response))
    try {
      expect(await errorAt(await listening(server))).toBeInstanceOf(ProviderAway)
    } finally {
      await closed(server)
    }
  })

  test('the sign-in page reports this, and a password works', async () => {
    const server = createServer()
    const issuer = await listening(server)
    await closed(server)
    expect(await errorAt(issuer)).toBeInstanceOf(ProviderAway)
    const own = await openDashboardHost({
      beside: room,
      provider: { issuer, ...client, nameClaim: 'email' },
    })
    try {
      const user = await person()
      const browser = openBrowser(own.host)
      const answer = await browser.get('/login/provider')
      expect(answer.statusCode).toBe(503)
      expect(answer.body).toContain('The identity provider cannot be reached.')
      expect(answer.body).toContain('name="password"')
      expect((await browser.submit('/login', user)).statusCode).toBe(303)
    } finally {
      await own.close()
    }
  })

  test('a sign-in that has already begun is refused', async () => {
    const own = await openTestProvider({ redirectUri, claimsOf })
    const identity = createIdentityProvider({ issuer: own.issuer, ...client, nameClaim: 'email' })
    const { url, errand } = await identity.begin(redirectUri)
    const { search } = await own.signIn(url, 'ada@example.com')
    await own.close()
    await expect(identity.finish(search, errand)).rejects.toThrow(ProviderAway)
  })
})

test('without a provider there is neither a button nor a URL', async () => {
  const own = await openDashboardHost({ beside: room })
  try {
    const browser = openBrowser(own.host)
    expect((await browser.get('/login')).body).not.toContain('/login/provider')
    expect((await browser.get('/login/provider')).statusCode).toBe(404)
  } finally {
    await own.close()
  }
})

test('attempts from one address are limited', async () => {
  const browser = openBrowser(room.host)
  const codes = []
  for (let i = 0; i < 22; i++) codes.push((await browser.get('/login/provider')).statusCode)
  expect(codes.slice(0, 20)).toEqual(Array(20).fill(303))
  expect(codes.at(-1)).toBe(429)
})
