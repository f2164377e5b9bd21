/** The service behind a real Caddy, with the Caddyfile from docker-compose.yml. */
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { parse } from 'yaml'
import { freePort } from '../support/free-port.ts'
import { type TestDatabase, testDatabase } from '../support/postgres.ts'
import { cliJson, createPartner, eventually, type Service, startService } from '../support/service.ts'
import { type Answer, ask } from './ask.ts'
import { accepts, type ServerProcess, startProcess } from './mail/process.ts'

const client = '127.0.0.2'
const stranger = '127.0.0.3'
const hostnames = { API_HOSTNAME: 'api.localhost', DASHBOARD_HOSTNAME: 'staff.localhost' }
let database: TestDatabase
let service: Service
let caddy: ServerProcess
let directory = ''
let ca = ''
let [securePort, plainPort] = [0, 0]
let boundKey = ''

/** Compose's Caddyfile with this test's service ports, unprivileged ports, and certificates from Caddy's own authority. */
const caddyfile = async (): Promise<string> => {
  const { configs } = parse(await readFile(new URL('../../docker-compose.yml', import.meta.url), 'utf8'))
  const filled = String(configs.caddyfile.content).replace(
    /\$\{([A-Z_]+):-[^}]*\}/g,
    (_, name: string) => Object(hostnames)[name],
  )
  const [apiPort, dashboardPort] = [service.apiUrl, service.dashboardUrl].map((url) => new URL(url).port)
  const here = filled
    .replaceAll(/http:\/\/:\d+, /g, '')
    .replace('dynamic a api 3000 {', `dynamic a localhost ${apiPort} {`)
    .replace('dynamic a dashboard 3001 {', `dynamic a localhost ${dashboardPort} {`)
    .replace(
      'admin off',
      `admin off
  http_port ${plainPort}
  https_port ${securePort}
  default_bind 127.0.0.1
  local_certs
  skip_install_trust
  storage file_system ${directory}/storage`,
    )
  expect(here).toContain(`localhost ${apiPort} {`)
  expect(here).toContain(`localhost ${dashboardPort} {`)
  return here
}

beforeAll(async () => {
  database = await testDatabase()
  directory = await mkdtemp(join(tmpdir(), 'caddy-'))
  const environment = {
    DATABASE_URL: database.url,
    SECRET_KEY: 'a secret of the test, long enough to be one',
  }
  service = await startService({ ...environment, TRUSTED_PROXIES: '127.0.0.1' })
  const { organizationId } = await createPartner('1000', environment)
  const key = await cliJson<{ api_key: string }>(
    ['key', 'issue', organizationId, '--permissions', 'ip_lookup', '--allow', `${client}/32`],
    environment,
  )
  boundKey = key.api_key
  ;[securePort, plainPort] = [await freePort(), await freePort()]
  await writeFile(join(directory, 'Caddyfile'), await caddyfile())
  const root = join(directory, 'storage', 'pki', 'authorities', 'local', 'root.crt')
  caddy = await startProcess({
    command: 'caddy',
    args: ['run', '--adapter', 'caddyfile', '--config', join(directory, 'Caddyfile')],
    ready: async () => {
      ca = await readFile(root, 'utf8')
      await accepts('127.0.0.1', plainPort)
      // Caddy listens before it has issued its certificates, and aborts handshakes until then.
      for (const name of Object.values(hostnames)) await askHost(name, '/', client)
    },
  })
})
afterAll(async () => {
  await caddy?.close()
  await service?.end('SIGTERM')
  await database?.drop()
  if (directory !== '') await rm(directory, { recursive: true, force: true })
})

const askHost = (
  servername: string,
  path: string,
  from: string,
  options: { method?: string; headers?: object; body?: string } = {},
): Promise<Answer> =>
  ask(`https://127.0.0.1:${securePort}${path}`, from, {
    ...options,
    headers: { host: servername, ...options.headers },
    ca,
    servername,
  })

const lookUp = async (from: string, headers: object = {}) => {
  const { status, text } = await askHost(hostnames.API_HOSTNAME, '/v1/ip/lookup', from, {
    method: 'POST',
    headers: { 'content-type': 'application/json', 'x-api-key': boundKey, ...headers },
    body: '{"ip":"8.8.8.8"}',
  })
  const { code, details } = JSON.parse(text) as { code?: string; details?: { address?: string } }
  return { status, code, address: details?.address }
}

test('an allow-list applies to the client, even if a stranger claims another address', async () => {
  await eventually(async () => ((await lookUp(client)).status === 200 ? true : undefined))
  expect(await lookUp(stranger)).toEqual({ status: 403, code: 'AUTH_003', address: stranger })
  expect(await lookUp(stranger, { 'x-forwarded-for': client })).toEqual({
    status: 403,
    code: 'AUTH_003',
    address: stranger,
  })
})

test('the dashboard has its own name, with cookies for HTTPS only; the API’s name does not serve it', async () => {
  const page = await askHost(hostnames.DASHBOARD_HOSTNAME, '/login', client)
  expect(page.status).toBe(200)
  expect(page.cookies).toHaveLength(1)
  expect(page.cookies[0]).toMatch(/^__Host-dashboard_form=[^;]+; Path=\/; HttpOnly; Secure; SameSite=Strict$/)
  expect((await askHost(hostnames.API_HOSTNAME, '/login', client)).status).toBe(404)
  expect((await askHost(hostnames.DASHBOARD_HOSTNAME, '/v1/ip/lookup', client)).status).toBe(404)
})

test('neither name shows metrics, and plain HTTP redirects to HTTPS', async () => {
  for (const name of Object.values(hostnames)) {
    expect((await askHost(name, '/metrics', client)).status).toBe(404)
    const plain = await ask(`http://127.0.0.1:${plainPort}/login`, client, { headers: { host: name } })
    expect(plain.status).toBe(308)
    expect(plain.location).toMatch(new RegExp(`^https://${name}(:\\d+)?/login$`))
  }
})
