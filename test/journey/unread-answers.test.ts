import { once } from 'node:events'
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { connect, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import {
  createPartner,
  eventually,
  lookup,
  type Partner,
  type Service,
  startService,
} from '../support/service.ts'

/**
 * Clients send requests to a real process but do not read the answers. The test measures the process's memory and the duration of
 * other clients' calls.
 */

const pipelined = 600
const exportsAsked = 40
/** An export of this many events does not fit the kernel's buffers for a connection. */
const callsBought = 6_000
const mib = 1024 * 1024

let dataDir = ''
let service: Service
let apiKey: string
const sockets: Socket[] = []

beforeAll(async () => {
  dataDir = await mkdtemp(join(tmpdir(), 'unread-'))
  service = await startService({ DATA_DIR: dataDir, EMAIL_PROBE: 'off' })
  apiKey = JSON.parse(await readFile(join(dataDir, 'demo.json'), 'utf8')).api_key
}, 120_000)
afterAll(async () => {
  for (const socket of sockets) socket.destroy()
  await service?.end('SIGTERM')
  await rm(dataDir, { recursive: true, force: true })
}, 60_000)

const residentBytes = async (): Promise<number> => {
  const [, kib] = /^VmRSS:\s+(\d+)/m.exec(await readFile(`/proc/${service.child.pid}/status`, 'utf8')) ?? []
  return Number(kib) * 1024
}

/** Sends requests on one connection and reads nothing. */
const asksOnly = async (url: string, requests: string): Promise<Socket> => {
  const { hostname, port } = new URL(url)
  const socket = connect(Number(port), hostname)
  sockets.push(socket.pause())
  socket.on('error', () => undefined)
  await once(socket, 'connect')
  socket.write(requests)
  return socket
}

const get = (path: string, headers = ''): string => `GET ${path} HTTP/1.1\r\nHost: x\r\n${headers}\r\n`

/** Makes calls one after the other; returns the duration of the slowest. */
const slowestOf = async (calls: number): Promise<number> => {
  let slowestMs = 0
  for (let i = 0; i < calls; i++) {
    const startedMs = performance.now()
    expect((await lookup(service.apiUrl, apiKey, '10.0.0.1')).status).toBe(200)
    slowestMs = Math.max(slowestMs, performance.now() - startedMs)
  }
  return slowestMs
}

test('600 unread requests for the largest file on one connection: little memory, and no call waits', async () => {
  await slowestOf(200)
  const before = await residentBytes()
  for (const [url, path] of [
    [service.apiUrl, '/docs/assets/swagger-ui-bundle.js'],
    [service.dashboardUrl, '/openapi.json'],
  ] as const)
    await asksOnly(url, get(path).repeat(pipelined))
  const slowestMs = await slowestOf(400)
  const grown = (await residentBytes()) - before
  console.log(
    `unread files: ${Math.round(grown / mib)} MiB more, the slowest call took ${Math.round(slowestMs)} ms`,
  )
  expect(grown).toBeLessThan(128 * mib)
  expect(slowestMs).toBeLessThan(1_500)
}, 60_000)

test('40 exports that are never read leave room for others, and release their places', async () => {
  const partners: Partner[] = [
    await createPartner('1000000', { DATA_DIR: dataDir }, ['ip_lookup', 'ledger_read']),
    await createPartner('10', { DATA_DIR: dataDir }, ['ip_lookup', 'ledger_read']),
  ]
  const [greedy, other] = partners
  if (greedy === undefined || other === undefined) throw new Error('no partners')
  let bought = 0
  await Promise.all(
    Array.from({ length: 32 }, async () => {
      while (bought++ < callsBought) await lookup(service.apiUrl, greedy.apiKey, '10.0.0.1')
    }),
  )
  const exported = async ({ apiKey: key }: Partner) => {
    const response = await fetch(`${service.apiUrl}/v1/ledger/export?max=10000`, {
      headers: { 'x-api-key': key },
    })
    await response.body?.cancel()
    return response.status
  }
  for (let i = 0; i < exportsAsked; i++)
    await asksOnly(service.apiUrl, get('/v1/ledger/export?max=10000', `x-api-key: ${greedy.apiKey}\r\n`))
  await eventually(async () => ((await exported(greedy)) === 503 ? true : undefined))
  expect(await exported(other)).toBe(200)
  // The client reads nothing for twenty seconds.
  await eventually(async () => ((await exported(greedy)) === 200 ? true : undefined), 60_000)
}, 120_000)
