/** Clients that send many requests on one connection, or do not read their answers. */
import { once } from 'node:events'
import { type AddressInfo, connect, type Socket } from 'node:net'
import fastify from 'fastify'
import { afterAll, afterEach, expect, test } from 'vitest'
import { openRequestsOn } from '../../src/call/connections.ts'
import { openRaw, sendRaw, until } from '../support/house.ts'

const graceMs = 400

let begun = 0
let finish = (): void => undefined
let held: Promise<void>
const sockets = new Set<Socket>()
const inside: Socket[] = []

const host = fastify()
openRequestsOn(host, { graceMs, bytesPerSecondMin: 100_000_000 })
host.server.on('connection', (socket) => inside.push(socket))
host.get('/held', async () => {
  begun += 1
  await held
  return 'done'
})
host.get('/last', async (_request, reply) => reply.header('connection', 'close').send('last'))
host.get('/large', async () => 'x'.repeat(16 * 1024 * 1024))
await host.listen({ host: '127.0.0.1', port: 0 })
const url = `http://127.0.0.1:${(host.server.address() as AddressInfo).port}`
afterEach(() => {
  finish()
  for (const socket of sockets) socket.destroy()
  sockets.clear()
})
afterAll(() => host.close())

const get = (path: string): string => `GET ${path} HTTP/1.1\r\nHost: x\r\n\r\n`

const neverReads = (bytes: string): Socket => {
  const socket = connect(Number(new URL(url).port), '127.0.0.1')
  sockets.add(socket.pause())
  socket.on('error', () => undefined)
  socket.write(bytes)
  return socket
}

test('requests on one connection start one after the other, and are answered in order', async () => {
  begun = 0
  held = new Promise((resolve) => {
    finish = resolve
  })
  const paths = ['/held', ...Array.from({ length: 40 }, (_, n) => (n % 2 === 0 ? '/held' : `/none/${n}`))]
  const connection = openRaw(url)
  connection.write(paths.map(get).join(''))
  await until('the first has started', async () => begun > 0)
  // A second connection is answered first. If the waiting requests could start, they would have started by now.
  await sendRaw(url, get('/none'))
  expect(begun).toBe(1)
  finish()
  const answers = await connection.answers(paths.length)
  connection.close()
  expect(answers.map(({ status }) => status)).toEqual(paths.map((path) => (path === '/held' ? 200 : 404)))
  expect(begun).toBe(21)
})

test('requests behind the last answer of a connection do not start', async () => {
  begun = 0
  held = Promise.resolve()
  const answers = await sendRaw(url, `${get('/held')}${get('/last')}${get('/held')}`, 2)
  expect(answers.map(({ status }) => status)).toEqual([200, 200])
  await sendRaw(url, get('/none'))
  expect(begun).toBe(1)
})

test('a connection is not read further while many of its requests wait', async () => {
  begun = 0
  held = new Promise((resolve) => {
    finish = resolve
  })
  const socket = neverReads(get('/held'))
  await until('the first has started', async () => begun > 0)
  const [taken] = inside.slice(-1)
  if (taken === undefined) throw new Error('no connection')
  const paused = once(taken, 'pause')
  for (let i = 0; i < 64; i++) socket.write(get('/none').repeat(1_000))
  // The service reads only one more piece of the requests. The kernels' buffers hold more.
  await paused
  await sendRaw(url, get('/none'))
  expect(taken.bytesRead).toBeLessThan(256 * 1024)
})

test('a client that does not read its answer is disconnected', async () => {
  const startedMs = performance.now()
  const came = once(host.server, 'connection')
  neverReads(get('/large'))
  const [taken]: Socket[] = await came
  if (taken === undefined) throw new Error('no connection')
  await once(taken, 'close')
  expect(performance.now() - startedMs).toBeGreaterThanOrEqual(graceMs)
  expect(taken.bytesRead).toBe(get('/large').length)
})
