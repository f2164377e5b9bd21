import { once } from 'node:events'
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { connect, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, expect, test } from 'vitest'
import { lookup, startService } from '../support/service.ts'

/**
 * Clients send requests to a real process but do not read the answers. The test measures the process's memory and the duration of
 * other clients' calls.
 */

const pipelined = 600
const mib = 1024 * 1024

const sockets: Socket[] = []

const dataDir = await mkdtemp(join(tmpdir(), 'unread-'))
const service = await startService({ DATA_DIR: dataDir, EMAIL_PROBE: 'off' })
const apiKey = JSON.parse(await readFile(join(dataDir, 'demo.json'), 'utf8')).api_key
afterAll(async () => {
  for (const socket of sockets) socket.destroy()
  await service.end('SIGTERM')
  await rm(dataDir, { recursive: true, force: true })
})

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

const get = (path: string): string => `GET ${path} HTTP/1.1\r\nHost: x\r\n\r\n`

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
  // On a busy machine, some calls take long anyway.
  const limitMs = (await slowestOf(200)) + 1_500
  const before = await residentBytes()
  const slowestWithUnread = async (): Promise<number> => {
    for (const [url, path] of [
      [service.apiUrl, '/docs/assets/swagger-ui-bundle.js'],
      [service.dashboardUrl, '/openapi.json'],
    ] as const)
      await asksOnly(url, get(path).repeat(pipelined))
    return slowestOf(400)
  }
  let slowestMs = await slowestWithUnread()
  // A busy machine can delay a single call, but unread requests that delay calls delay some of them in every attempt.
  for (let attempt = 2; slowestMs >= limitMs && attempt <= 3; attempt++) slowestMs = await slowestWithUnread()
  const grown = (await residentBytes()) - before
  console.log(
    `unread files: ${Math.round(grown / mib)} MiB more, the slowest call took ${Math.round(slowestMs)} ms`,
  )
  expect(grown).toBeLessThan(128 * mib)
  expect(slowestMs).toBeLessThan(limitMs)
})
