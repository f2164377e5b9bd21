/**
 * The local demo: its printed password opens the dashboard, and the overview leads to the first call. In production, the overview
 * does not do this.
 */
import Fastify from 'fastify'
import { afterAll, describe, expect, test } from 'vitest'
import { seedDemo, writeDemo } from '../../src/administration/seed.ts'
import { createUser } from '../../src/administration/users/user-changes.ts'
import { insertUser } from '../../src/administration/users/users.ts'
import { parseConfig } from '../../src/config.ts'
import { isLocalDemo } from '../../src/dashboard/given-password.ts'
import { directoryForFile } from '../support/directory.ts'
import { type Browser, openBrowser, openDashboardHost, signedIn } from './dashboard-host.ts'

test.each([
  ['the defaults', {}, true],
  ['another loopback address', { HOST: '127.0.0.5' }, true],
  ['its IPv6 form', { HOST: '::1' }, true],
  ['its name', { HOST: 'localhost' }, true],
  ['all addresses of the machine', { HOST: '0.0.0.0' }, false],
  ['all IPv6 addresses', { HOST: '::' }, false],
  ['an address of the network', { HOST: '10.0.0.4' }, false],
  ['any other name', { HOST: 'localhost.example.com' }, false],
  ['a database of its own', { DATABASE_URL: 'postgres://u:p@db/x' }, false],
  ['an event log of its own', { EVENT_LOG_URL: 'esdb://log:2113' }, false],
  ['a public address', { DASHBOARD_URL: 'https://staff.example.com' }, false],
  ['a proxy', { TRUSTED_PROXIES: '10.0.0.0/8' }, false],
  ['plain HTTP from other machines', { INSECURE_COOKIES: '1' }, false],
] as const)('with %s local demo or not', (_, environment, expected) => {
  expect(isLocalDemo(parseConfig(environment))).toBe(expected)
})

const asked: { headers: Record<string, unknown>; body: unknown }[] = []

const dataDir = await directoryForFile()
const room = await openDashboardHost({ localDemoIn: dataDir, findings: async () => [] })
// An HTTP server that takes the place of the API.
const api = Fastify()
api.post('/v1/ip/lookup', async ({ headers, body }, reply) => {
  asked.push({ headers, body })
  return reply.header('credits-charged', '1').send({ result: { country_code: '<US>' } })
})
const apiUrl = await api.listen({ host: '127.0.0.1', port: 0 })
const demo = await seedDemo(room.foundation, { apiUrl, dashboardUrl: 'http://localhost', actor: 'system' })
await writeDemo(dataDir, demo)
await room.caughtUp()
/** Another process of the same installation, configured with its own database. */
const production = await openDashboardHost({ beside: room, apiUrl: 'https://api.example.org' })
afterAll(async () => {
  await api.close()
  await production.close()
  await room.close()
})

const asDemo = async (): Promise<Browser> => {
  const browser = openBrowser(room.host)
  const person = { name: demo.dashboard_user, password: demo.dashboard_password }
  expect((await browser.submit('/login', person)).statusCode).toBe(303)
  return browser
}

describe('the printed password', () => {
  test('opens every page of the local demo, and can be changed', async () => {
    const browser = await asDemo()
    expect((await browser.get('/')).statusCode).toBe(200)
    expect((await browser.get('/operations')).statusCode).toBe(200)
    expect((await browser.get('/me')).body).not.toContain('Your current password was generated')
  })

  test('must be replaced first over HTTPS with a host name of another machine, and the key is not shown', async () => {
    const proxied = await openDashboardHost({
      beside: room,
      localDemoIn: dataDir,
      reach: { trusts: () => true },
    })
    try {
      const headers = { host: 'staff.example.com', 'x-forwarded-proto': 'https' }
      const browser = openBrowser(proxied.host, undefined, headers)
      await browser.submit('/login', { name: demo.dashboard_user, password: demo.dashboard_password })
      expect((await browser.get('/')).headers.location).toBe('/me')
      const eve = { name: 'mallory', password: 'correct horse battery staple' }
      await insertUser(room.foundation.pool, { ...eve, role: 'admin' })
      const other = openBrowser(proxied.host, undefined, headers)
      await other.submit('/login', eve)
      const { statusCode, body } = await other.get('/')
      expect([statusCode, body.includes('YOUR_KEY'), body.includes(demo.api_key)]).toEqual([200, true, false])
    } finally {
      await proxied.close()
    }
  })

  test('must be replaced first if the user is not the demo user', async () => {
    const eve = { name: 'eve', role: 'admin', organizationId: null, actor: 'cli:setup' } as const
    const { password } = await createUser(room.foundation, eve)
    const browser = openBrowser(room.host)
    await browser.submit('/login', { name: 'eve', password })
    expect((await browser.get('/')).headers.location).toBe('/me')
  })

  test('must be replaced first if the process is configured with its own database', async () => {
    const browser = openBrowser(production.host)
    await browser.submit('/login', { name: demo.dashboard_user, password: demo.dashboard_password })
    expect((await browser.get('/')).headers.location).toBe('/me')
  })
})

describe('the first steps', () => {
  test('have a button that makes one call with that key, and shows its answer and price', async () => {
    const browser = await asDemo()
    const { statusCode, body } = await browser.submit('/', {}, '/first-call')
    expect(statusCode).toBe(200)
    expect(body).toContain('Status 200, 1 credit charged.')
    expect(body).toContain('&quot;country_code&quot;: &quot;&lt;US&gt;&quot;')
    expect(asked).toHaveLength(1)
    expect(asked[0]).toMatchObject({ headers: { 'x-api-key': demo.api_key }, body: { ip: '8.8.8.8' } })
  })

  test('if a form is sent again, it is the same call, with the same Idempotency-Key', async () => {
    const browser = await asDemo()
    asked.length = 0
    const once = '01J8ZQ5V7N3K2M4P6R8T0W1X2Y'
    for (const _ of [1, 2]) await browser.submit('/', { once }, '/first-call')
    expect(asked.map(({ headers }) => headers['idempotency-key'])).toEqual([once, once])
  })

  test('for an admin in production, the command has a placeholder and there is no button', async () => {
    const ada = { name: 'ada', role: 'admin', organizationId: null, actor: 'cli:setup' } as const
    const browser = await signedIn(production, { name: 'ada', ...(await createUser(room.foundation, ada)) })
    const { body } = await browser.get('/')
    expect(body).toContain(
      `curl -i &#39;https://api.example.org/v1/ip/lookup&#39; -H &#39;x-api-key: YOUR_KEY`,
    )
    expect([body.includes(demo.api_key), body.includes('action="/first-call"')]).toEqual([false, false])
    asked.length = 0
    expect((await browser.submit('/', {}, '/first-call')).statusCode).toBe(404)
    expect(asked).toEqual([])
  })
})
