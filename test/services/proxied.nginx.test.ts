/** The service behind a real nginx that terminates TLS: the callers' addresses, the permitted sign-ins, and the cookies. */
import pg from 'pg'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { putUser } from '../../src/administration/users/users.ts'
import { type TestDatabase, testDatabase } from '../support/postgres.ts'
import { cliJson, createPartner, eventually, type Service, startService } from '../support/service.ts'
import { type Answer, ask } from './ask.ts'
import { farProxy, type Nginx, nearProxy, startNginx } from './nginx.ts'

const client = '127.0.0.2'
const stranger = '127.0.0.3'
const secretKey = 'a secret of the test, long enough to be one'
const user = 'ada'
const password = 'chosen by the person itself'
let database: TestDatabase
let service: Service
let api: Nginx
let pages: Nginx
/** A key that only the client's address can use. */
let boundKey = ''

beforeAll(async () => {
  database = await testDatabase()
  const environment = { DATABASE_URL: database.url, SECRET_KEY: secretKey }
  service = await startService({ ...environment, TRUSTED_PROXIES: `${nearProxy},${farProxy}` })
  ;[api, pages] = [await startNginx(service.apiUrl), await startNginx(service.dashboardUrl)]
  const { organizationId } = await createPartner('1000', environment)
  const key = await cliJson<{ api_key: string }>(
    ['key', 'issue', organizationId, '--permissions', 'ip_lookup', '--allow', `${client}/32`],
    environment,
  )
  boundKey = key.api_key
  await cliJson(['user', 'create', user], environment)
  // Simulates that the person has replaced the initial password.
  const pool = new pg.Pool({ connectionString: database.url, max: 1 })
  await putUser(pool, { name: user, password })
  await pool.end()
}, 120_000)
afterAll(async () => {
  await api?.close()
  await pages?.close()
  await service?.end('SIGTERM')
  await database?.drop()
})

const lookUp = async (base: string, from: string, headers: object = {}) => {
  const { status, text } = await ask(`${base}/v1/ip/lookup`, from, {
    method: 'POST',
    headers: { 'content-type': 'application/json', 'x-api-key': boundKey, ...headers },
    body: '{"ip":"8.8.8.8"}',
  })
  const { code, details } = JSON.parse(text) as { code?: string; details?: { address?: string } }
  return { status, code, address: details?.address }
}

const letIn = { status: 200, code: undefined, address: undefined }
const refusedAs = (address: string) => ({ status: 403, code: 'AUTH_003', address })

describe('an allow-list applies to the client', () => {
  test('through one nginx and through two, with and without TLS', async () => {
    await eventually(async () => ((await lookUp(api.secure, client)).status === 200 ? true : undefined))
    for (const base of [api.secure, api.plain, api.twoHops]) {
      expect(await lookUp(base, client)).toEqual(letIn)
      expect(await lookUp(base, stranger)).toEqual(refusedAs(stranger))
    }
  })

  test('even if a stranger claims another address', async () => {
    const claims = {
      'x-forwarded-for': `${client}, ${nearProxy}`,
      forwarded: `for=${client}`,
      'x-real-ip': client,
    }
    for (const base of [api.secure, api.plain, api.twoHops])
      expect(await lookUp(base, stranger, claims)).toEqual(refusedAs(stranger))
    // On a direct connection, the service trusts no header.
    expect(await lookUp(service.apiUrl, stranger, claims)).toEqual(refusedAs(stranger))
  })
})

/** Opens the sign-in page and submits it. `jar` contains the browser's cookies. */
const signIn = async (
  base: string,
  from: string,
  fields: { name: string; password: string },
  jar = new Map<string, string>(),
): Promise<Answer & { page: Answer; jar: Map<string, string> }> => {
  const keep = ({ cookies }: Answer): void => {
    for (const [name = '', value = ''] of cookies.map((line) => line.split(';')[0]?.split('=') ?? []))
      jar.set(name, value)
  }
  const cookie = (): string => [...jar].map(([name, value]) => `${name}=${value}`).join('; ')
  const page = await ask(`${base}/login`, from, { headers: { cookie: cookie() } })
  keep(page)
  const token = /name="_csrf" value="([^"]+)"/.exec(page.text)?.[1] ?? ''
  const answer = await ask(`${base}/login`, from, {
    method: 'POST',
    headers: { 'content-type': 'application/x-www-form-urlencoded', cookie: cookie() },
    body: new URLSearchParams({ _csrf: token, ...fields }).toString(),
  })
  keep(answer)
  return { ...answer, page, jar }
}

describe('the dashboard', () => {
  test.each(['secure', 'twoHops'] as const)(
    'over TLS (%s): every cookie is Secure and __Host-',
    async (way) => {
      const base = pages[way]
      const { status, location, cookies, page, jar } = await signIn(base, client, { name: user, password })
      expect({ status, location }).toEqual({ status: 303, location: '/' })
      const lines = [...page.cookies, ...cookies]
      expect(lines.map((line) => line.split('=')[0]).sort()).toEqual([
        '__Host-dashboard_device',
        '__Host-dashboard_form',
        '__Host-dashboard_session',
      ])
      for (const line of lines) expect(line).toMatch(/; Path=\/;.* HttpOnly; Secure; SameSite=/)
      const cookie = [...jar].map(([name, value]) => `${name}=${value}`).join('; ')
      const overview = await ask(`${base}/`, client, { headers: { cookie } })
      expect(overview.status).toBe(200)
      expect(overview.text).toContain(`Signed in as </span><a href="/me"><strong>${user}</strong></a>`)
    },
  )

  test('without TLS shows no page and sets no cookie, even if the client claims HTTPS', async () => {
    // All requests come from this machine. The host name makes this request look as if it were for a remote machine.
    const host = 'dashboard.example.com'
    for (const headers of [{ host }, { host, 'x-forwarded-proto': 'https' }]) {
      const answer = await ask(`${pages.plain}/login`, client, { headers })
      expect({ status: answer.status, cookies: answer.cookies }).toEqual({ status: 403, cookies: [] })
      expect(answer.text).toContain('HTTPS required')
    }
  })

  test('with its sign-in limit stops a stranger, but no other client behind the same nginx', async () => {
    const statuses: number[] = []
    for (let i = 0; i < 11; i++)
      statuses.push((await signIn(pages.secure, stranger, { name: `guess-${i}`, password: 'x' })).status)
    expect(statuses).toEqual([...Array.from({ length: 10 }, () => 401), 429])
    expect((await signIn(pages.twoHops, stranger, { name: user, password })).status).toBe(429)
    expect((await signIn(pages.secure, client, { name: user, password })).status).toBe(303)
  })

  test('lets the owner’s own device sign in despite guesses from many addresses', async () => {
    const { jar } = await signIn(pages.secure, client, { name: user, password })
    jar.delete('__Host-dashboard_session')
    const statuses: number[] = []
    for (let i = 0; i < 11 && !statuses.includes(429); i++)
      statuses.push((await signIn(pages.secure, `127.0.1.${i}`, { name: user, password: 'x' })).status)
    expect(statuses.at(-1)).toBe(429)
    expect((await signIn(pages.secure, '127.0.2.1', { name: user, password })).status).toBe(429)
    expect((await signIn(pages.secure, client, { name: user, password }, jar)).status).toBe(303)
  })
})
