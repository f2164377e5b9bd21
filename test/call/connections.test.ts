/** One address cannot occupy every connection. The callers use several loopback addresses. */
import { once } from 'node:events'
import { createServer, type Server } from 'node:http'
import { type AddressInfo, connect, type Socket } from 'node:net'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { boundConnections, boundsFor, connectionsPerAddressMax } from '../../src/call/connections.ts'
import { trustedProxies } from '../../src/guard/caller-address.ts'
import { eventually } from '../support/service.ts'

let server: Server
let refused = 0
const sockets = new Set<Socket>()

beforeEach(async () => {
  refused = 0
  server = createServer((_request, response) => response.end('answered'))
  boundConnections(server, { trusts: trustedProxies(['127.0.0.9']), refused: () => void refused++ })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
})
afterEach(async () => {
  for (const socket of sockets) socket.destroy()
  sockets.clear()
  server.closeAllConnections()
  server.close()
  await once(server, 'close')
})

const open = async (localAddress: string): Promise<Socket> => {
  const socket = connect({ port: (server.address() as AddressInfo).port, host: '127.0.0.1', localAddress })
  socket.on('error', () => undefined)
  sockets.add(socket)
  // A refused connection can be reset before the client reports it as connected.
  await new Promise((resolve) => socket.once('connect', resolve).once('close', resolve))
  return socket
}

const openMany = async (localAddress: string, count: number): Promise<Socket[]> => {
  const opened: Socket[] = []
  while (opened.length < count)
    opened.push(
      ...(await Promise.all(
        Array.from({ length: Math.min(100, count - opened.length) }, () => open(localAddress)),
      )),
    )
  return opened
}

const isAnswered = async (localAddress: string): Promise<boolean> => {
  const socket = await open(localAddress)
  if (socket.closed) return false
  return new Promise((resolve) => {
    socket.on('data', () => resolve(true))
    socket.on('close', () => resolve(false))
    socket.write('GET / HTTP/1.1\r\nHost: x\r\n\r\n')
  })
}

test.each([
  [Number.POSITIVE_INFINITY, 10_000, 1_000],
  [1_048_576, 10_000, 1_000],
  [20_000, 6_581, 1_000],
  [4_096, 1_280, 640],
  [1_024, 256, 128],
  [256, 2, 1],
])('with %s files, all hosts together leave some for other uses', (files, all, perAddress) => {
  expect(boundsFor(files)).toEqual({ all, perAddress })
  if (files > 256) expect(3 * all).toBeLessThanOrEqual(files - 256)
})

test('an address with its maximum number of connections gets no more; other addresses, and a trusted proxy, do', async () => {
  const held = await openMany('127.0.0.2', connectionsPerAddressMax)
  const further = await openMany('127.0.0.2', 20)
  await eventually(async () => (refused === 20 ? true : undefined))
  await eventually(async () => (further.every((socket) => socket.closed) ? true : undefined))
  expect(held.every((socket) => !socket.closed)).toBe(true)
  expect(await isAnswered('127.0.0.2')).toBe(false)
  expect(await isAnswered('127.0.0.3')).toBe(true)
  // The open connections of this address still work, and closing one makes room for a new one.
  const [first] = held
  first?.write('GET / HTTP/1.1\r\nHost: x\r\n\r\n')
  if (first !== undefined) await once(first, 'data')
  first?.destroy()
  await eventually(async () => ((await isAnswered('127.0.0.2')) ? true : undefined))
  const proxied = await openMany('127.0.0.9', connectionsPerAddressMax + 20)
  expect(await isAnswered('127.0.0.9')).toBe(true)
  expect(proxied.every((socket) => !socket.closed)).toBe(true)
})
