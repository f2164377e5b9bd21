import { afterAll, beforeAll, expect, test } from 'vitest'
import { client, openTestProvider, type TestProvider } from '../support/identity-provider.ts'
import { type TestDatabase, testDatabase } from '../support/postgres.ts'
import { cli, type Service, startService } from '../support/service.ts'

/** The service with an identity provider in its environment, and a person who signs in with it. */

const address = 'https://staff.example.com'
const redirectUri = `${address}/login/provider/callback`

let database: TestDatabase
let provider: TestProvider
let service: Service | undefined

beforeAll(async () => {
  database = await testDatabase()
  provider = await openTestProvider({
    redirectUri,
    claimsOf: (account) => ({ email: account, email_verified: true }),
  })
}, 60_000)

afterAll(async () => {
  await service?.end('SIGTERM')
  await provider?.close()
  await database.drop()
})

test('a user signs in with the identity provider named in the environment', async () => {
  const environment = {
    DATABASE_URL: database.url,
    SECRET_KEY: 'a secret of the test, long enough to be one',
    DASHBOARD_URL: address,
    OIDC_ISSUER: provider.issuer,
    OIDC_CLIENT_ID: client.clientId,
    OIDC_CLIENT_SECRET: client.clientSecret,
  }
  service = await startService(environment)
  expect((await cli(['user', 'create', 'ada@example.com'], environment)).code).toBe(0)
  const at = (path: string, headers: Record<string, string> = {}): Promise<Response> =>
    fetch(`${service?.dashboardUrl}${path}`, { redirect: 'manual', headers })
  const begun = await at('/login/provider')
  expect(begun.status).toBe(303)
  const sent = begun.headers.getSetCookie().map((cookie) => cookie.split(';')[0])
  const back = await provider.signIn(String(begun.headers.get('location')), 'ada@example.com')
  expect(back.origin).toBe(address)
  const answer = await at(`${back.pathname}${back.search}`, { cookie: sent.join('; ') })
  expect([answer.status, answer.headers.get('location')]).toEqual([303, '/'])
  const session = answer.headers.getSetCookie().map((cookie) => cookie.split(';')[0])
  const page = await at('/me', { cookie: session.join('; ') })
  expect(await page.text()).toContain('ada@example.com')
  expect(page.status).toBe(200)
  expect((await cli(['audit', 'list', '--json'], environment)).out).toContain(
    'signed in to the dashboard by the identity provider on a new device',
  )
}, 120_000)
