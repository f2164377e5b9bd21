/** A stranger holds as many connections as a machine gives, says nothing, and nobody else notices. */
import { request } from 'node:http'
import { connect, type Socket } from 'node:net'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { type TestDatabase, testDatabase } from '../support/postgres.ts'
import { createPartner, eventually, type Partner, type Service, startService } from '../support/service.ts'

const idleSockets = 10_000
const openingAtOnce = 250
const calls = 100

let database: TestDatabase
let service: Service
let partner: Partner
const sockets: Socket[] = []

beforeAll(async () => {
  database = await testDatabase()
  const environment = {
    DATABASE_URL: database.url,
    SECRET_KEY: 'a secret of the test, long enough to be one',
  }
  service = await startService(environment)
  partner = await createPartner('1000', environment)
}, 60_000)
afterAll(async () => {
  for (const socket of sockets) socket.destroy()
  await service?.end('SIGTERM')
  await database?.drop()
})

const open = (localAddress: string): Promise<unknown> => {
  const socket = connect({ port: Number(new URL(service.apiUrl).port), host: '127.0.0.1', localAddress })
  socket.on('error', () => undefined)
  sockets.push(socket)
  return new Promise((resolve) => socket.once('connect', resolve).once('close', resolve))
}

/** Each over a connection of its own. The status, or how the connection broke. */
const lookUp = (localAddress: string): Promise<number | string> =>
  new Promise((resolve) => {
    const call = request(
      `${service.apiUrl}/v1/ip/lookup`,
      {
        method: 'POST',
        localAddress,
        agent: false,
        headers: { 'content-type': 'application/json', 'x-api-key': partner.apiKey },
        timeout: 2_000,
      },
      (response) => {
        response.resume()
        response.on('end', () => resolve(response.statusCode ?? 0))
      },
    )
    call.on('timeout', () => call.destroy(new Error('no answer within 2 s')))
    call.on('error', (error) => resolve(error.message))
    call.end('{"ip":"8.8.8.8"}')
  })

const percentile = (values: readonly number[], share: number): number =>
  values.toSorted((a, b) => a - b)[Math.ceil(values.length * share) - 1] ?? 0

test(`${idleSockets} idle sockets of one address leave the service answering others`, async () => {
  await eventually(async () => ((await lookUp('127.0.0.3')) === 200 ? true : undefined))
  const startedMs = performance.now()
  while (sockets.length < idleSockets)
    await Promise.all(Array.from({ length: openingAtOnce }, () => open('127.0.0.2')))
  const openedMs = performance.now() - startedMs
  const answers: (number | string)[] = []
  const tookMs: number[] = []
  for (let i = 0; i < calls; i++) {
    const sentMs = performance.now()
    answers.push(await lookUp('127.0.0.3'))
    tookMs.push(performance.now() - sentMs)
  }
  const held = sockets.filter((socket) => !socket.closed).length
  const unanswered = answers.filter((answer) => answer !== 200)
  process.stdout.write(
    `${idleSockets} sockets in ${Math.round(openedMs)} ms, ${held} held; ${calls} calls of another address: ` +
      `${unanswered.length} unanswered, p50 ${percentile(tookMs, 0.5).toFixed(1)} ms, p99 ${percentile(tookMs, 0.99).toFixed(1)} ms\n`,
  )
  expect([...new Set(unanswered)]).toEqual([])
  expect(held).toBe(1_000)
  expect(await lookUp('127.0.0.2')).toMatch(/ECONNRESET|socket hang up/)
}, 60_000)
