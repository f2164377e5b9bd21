/** The API process to which a real Caddy, with the Caddyfile from docker-compose.yml, sends a key's calls. */
import { once } from 'node:events'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { createServer, type Server } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { parse } from 'yaml'
import { type DnsServerDouble, startDnsServer } from '../support/dns-server.ts'
import { freePort } from '../support/free-port.ts'
import { ask } from './ask.ts'
import { accepts, type ServerProcess, startProcess } from './mail/process.ts'

const addresses = ['127.0.0.1', '127.0.0.4'] as const
/** Linux answers at all addresses in 127.0.0.0/8. */
const servers = new Map<string, Server>()
let dns: DnsServerDouble
let caddy: ServerProcess
let directory = ''
let [port, edgePort] = [0, 0]

/** A process at an address of this set breaks the connection of each POST once it has read it. */
const breaking = new Set<string>()

const listen = async (address: string): Promise<void> => {
  const server = createServer(async (request, response) => {
    let body = ''
    for await (const part of request) body += part
    if (request.method === 'POST' && breaking.has(address)) request.socket.destroy()
    else response.end(`${address}${body}`)
  })
  server.listen(port, address)
  await once(server, 'listening')
  servers.set(address, server)
}
const stop = async (address: string): Promise<void> => {
  const server = servers.get(address)
  server?.closeAllConnections()
  await new Promise((resolve) => server?.close(resolve))
}

/** Compose's site for the API, over plain HTTP and with a resolver that finds both processes. */
const caddyfile = async (): Promise<string> => {
  const { configs } = parse(await readFile(new URL('../../docker-compose.yml', import.meta.url), 'utf8'))
  const here = String(configs.caddyfile.content)
    .replaceAll(/http:\/\/:\d+, /g, '')
    .replace(/\$\{API_HOSTNAME:-[^}]*\}/, `http://127.0.0.1:${edgePort}`)
    .replace(/\$\{DASHBOARD_HOSTNAME:-[^}]*\}/, `http://127.0.0.1:${await freePort()}`)
    .replace('dynamic a api 3000 {', `dynamic a api.test ${port} {\n            resolvers ${dns.address}`)
  expect(here).toContain('resolvers 127.0.0.1:')
  return here
}

beforeAll(async () => {
  port = await freePort()
  for (const address of addresses) await listen(address)
  dns = await startDnsServer({ 'api.test': { A: addresses } }, { ttlSeconds: 0 })
  edgePort = await freePort()
  directory = await mkdtemp(join(tmpdir(), 'sticky-'))
  await writeFile(join(directory, 'Caddyfile'), await caddyfile())
  caddy = await startProcess({
    command: 'caddy',
    args: ['run', '--adapter', 'caddyfile', '--config', join(directory, 'Caddyfile')],
    ready: () => accepts('127.0.0.1', edgePort),
  })
})

afterAll(async () => {
  await caddy?.close()
  await dns?.close()
  await Promise.all(addresses.map(stop))
  if (directory !== '') await rm(directory, { recursive: true, force: true })
})

/** The process that a call reached. */
const reached = async (key: string | null): Promise<string> => {
  const headers = key === null ? {} : { 'x-api-key': key }
  const { status, text } = await ask(`http://127.0.0.1:${edgePort}/`, '127.0.0.2', { headers })
  expect(status).toBe(200)
  return text
}
const reachedBy = async (key: string | null, calls: number): Promise<Set<string>> =>
  new Set(await Promise.all(Array.from({ length: calls }, () => reached(key))))

/** A key whose calls reach the process at this address. */
const keyOf = async (address: string): Promise<string> => {
  for (const key of keys) if ((await reached(key)) === address) return key
  throw new Error(`no key reaches ${address}`)
}

const keys = Array.from({ length: 20 }, (_, n) => `enl_live_${n}`)

test('all calls with a key reach the same process, keys are spread over both, and calls without a key reach either', async () => {
  const places = await Promise.all(keys.map((key) => reachedBy(key, 10)))
  expect(places.every(({ size }) => size === 1)).toBe(true)
  expect(new Set(places.flatMap((place) => [...place]))).toEqual(new Set(addresses))
  expect(await reachedBy(null, 40)).toEqual(new Set(addresses))
})

test('a call whose connection breaks is repeated with its body at the other process, but only with an Idempotency-Key', async () => {
  const [left, gone] = addresses
  const key = await keyOf(gone)
  const post = (headers: object): Promise<{ status: number; text: string }> =>
    ask(`http://127.0.0.1:${edgePort}/`, '127.0.0.2', {
      method: 'POST',
      headers: { 'x-api-key': key, ...headers },
      body: '{"ip":"8.8.8.8"}',
    })
  breaking.add(gone)
  expect((await post({})).status).toBe(502)
  // Caddy avoids the process for two seconds.
  await expect.poll(() => reached(key)).toBe(gone)
  expect(await post({ 'idempotency-key': 'one' })).toMatchObject({
    status: 200,
    text: `${left}{"ip":"8.8.8.8"}`,
  })
  breaking.clear()
  await expect.poll(() => reached(key)).toBe(gone)
})

test('when a process ends, calls with its keys wait until its name is no longer resolved, and then reach the other one', async () => {
  const [left, gone] = addresses
  await stop(gone)
  const waiting = Promise.all(keys.map(reached))
  dns.set('api.test', 'A', [left])
  expect(new Set(await waiting)).toEqual(new Set([left]))
})
