import { afterAll, beforeAll, expect, test } from 'vitest'
import { until } from '../support/house.ts'
import { client, openTestProvider, type TestProvider } from '../support/identity-provider.ts'
import { type TestDatabase, testDatabase } from '../support/postgres.ts'
import { cli, type Service, startService } from '../support/service.ts'

/**
 * A service on your own empty database prints commands to type, and these commands work. Then a person signs in with the identity
 * provider from the environment.
 */

const address = 'https://staff.example.com'

let database: TestDatabase
let provider: TestProvider
let environment: Record<string, string>
let service: Service | undefined

beforeAll(async () => {
  database = await testDatabase()
  provider = await openTestProvider({
    redirectUri: `${address}/login/provider/callback`,
    claimsOf: (account) => ({ email: account, email_verified: true }),
  })
  environment = { DATABASE_URL: database.url, SECRET_KEY: 'a secret of the test, long enough to be one' }
}, 60_000)

afterAll(async () => {
  await service?.end('SIGTERM')
  await provider?.close()
  await database.drop()
})

const started = async (): Promise<string> => {
  await service?.end('SIGTERM')
  service = await startService(environment)
  const { output } = service
  // The commands are printed after the addresses, and the tests must not make calls before they are printed.
  await until('it has said it', async () => /Docker Compose:\n\n(docker .*\n)+\n/.test(output()))
  return output()
}

const typed = (output: string): string[] =>
  [...output.matchAll(/^npm run -s cli -- (.*?) +#/gm)].map(([, command = '']) => command)

test('the terminal shows the commands that make a user and an organization, and they work', async () => {
  const output = await started()
  expect(output).toContain('No one can sign in yet, and there is no organization yet. Type,')
  expect(typed(output)).toEqual(['user create ada', 'org create "Acme"'])
  expect(output).toContain('\ndocker compose run --rm --no-deps migrate user create ada\n')
  expect((await cli(['user', 'create', 'ada'], environment)).code).toBe(0)
  const next = await started()
  expect(next).toContain('There is no organization yet. Type,')
  expect(typed(next)).toEqual(['org create "Acme"'])
  expect((await cli(['org', 'create', 'Acme'], environment)).code).toBe(0)
}, 180_000)

test('after that, the terminal shows no commands, and a user signs in with the identity provider from the environment', async () => {
  expect((await cli(['user', 'create', 'ada@example.com', '--role', 'viewer'], environment)).code).toBe(0)
  await service?.end('SIGTERM')
  service = await startService({
    ...environment,
    DASHBOARD_URL: address,
    OIDC_ISSUER: provider.issuer,
    OIDC_CLIENT_ID: client.clientId,
    OIDC_CLIENT_SECRET: client.clientSecret,
  })
  const at = (path: string, cookies: string[] = []): Promise<Response> =>
    fetch(`${service?.dashboardUrl}${path}`, { redirect: 'manual', headers: { cookie: cookies.join('; ') } })
  const cookiesOf = (response: Response): string[] =>
    response.headers.getSetCookie().map((cookie) => cookie.split(';')[0] ?? '')
  expect(await (await at('/login')).text()).not.toContain('user create')
  const begun = await at('/login/provider')
  expect(begun.status).toBe(303)
  const back = await provider.signIn(String(begun.headers.get('location')), 'ada@example.com')
  expect(back.origin).toBe(address)
  const answer = await at(`${back.pathname}${back.search}`, cookiesOf(begun))
  expect([answer.status, answer.headers.get('location')]).toEqual([303, '/'])
  const page = await at('/me', cookiesOf(answer))
  expect([page.status, await page.text()]).toEqual([200, expect.stringContaining('ada@example.com')])
  expect((await cli(['audit', 'list', '--json'], environment)).out).toContain(
    'signed in to the dashboard with the identity provider on a new device',
  )
  await service.end('SIGTERM')
  expect(service.output()).not.toContain('Type, with')
}, 120_000)
