/** Other clients are served normally while a stranger opens more silent connections than the process may have files open. */
import { request } from 'node:http'
import { connect, type Socket } from 'node:net'
import { afterAll, afterEach, expect, test } from 'vitest'
import { testDatabase } from '../support/postgres.ts'
import {
  createPartner,
  eventually,
  type Launch,
  type Service,
  serviceCommand,
  startService,
} from '../support/service.ts'

const openingAtOnce = 250
const calls = 100
/** Ends a call that gets no answer at all. A busy machine answers late. */
const answerMaxMs = 60_000
const stranger = '127.0.0.2'
const other = '127.0.0.3'

let service: Service | undefined
const sockets: Socket[] = []

const database = await testDatabase()
const environment = { DATABASE_URL: database.url, SECRET_KEY: 'a secret of the test, long enough to be one' }
const partner = await createPartner('1000', environment)
afterEach(async () => {
  for (const socket of sockets.splice(0)) socket.destroy()
  await service?.end('SIGTERM')
  service = undefined
})
afterAll(() => database.drop())

const open = (url: string, localAddress: string): Promise<unknown> => {
  const socket = connect({ port: Number(new URL(url).port), host: '127.0.0.1', localAddress })
  socket.on('error', () => undefined)
  sockets.push(socket)
  return new Promise((resolve) => socket.once('connect', resolve).once('close', resolve))
}

/** Makes calls, each over its own connection. Returns the status, or how the connection broke. */
const lookUp = (url: string, localAddress: string): Promise<number | string> =>
  new Promise((resolve) => {
    const call = request(
      `${url}/v1/ip/lookup`,
      {
        method: 'POST',
        localAddress,
        agent: false,
        headers: { 'content-type': 'application/json', 'x-api-key': partner.apiKey },
        timeout: answerMaxMs,
      },
      (response) => {
        response.resume()
        response.on('end', () => resolve(response.statusCode ?? 0))
      },
    )
    call.on('timeout', () => call.destroy(new Error(`no answer within ${answerMaxMs} ms`)))
    call.on('error', (error) => resolve(error.message))
    call.end('{"ip":"8.8.8.8"}')
  })

const percentile = (values: readonly number[], share: number): number =>
  values.toSorted((a, b) => a - b)[Math.ceil(values.length * share) - 1] ?? 0

/** Some hosts limit a process to this number of open files. */
const fewFiles: Launch = {
  command: ['/bin/sh', '-c', 'ulimit -n 1024 && exec "$0" "$@"', ...serviceCommand],
}

const idle = 2_000
const heldMax = 128

test('2,000 idle sockets of one address do not stop a service that may have 1,024 files open from answering others', async () => {
  service = await startService(environment, fewFiles)
  const { apiUrl } = service
  await eventually(async () => ((await lookUp(apiUrl, other)) === 200 ? true : undefined))
  const startedMs = performance.now()
  while (sockets.length < idle)
    await Promise.all(Array.from({ length: openingAtOnce }, () => open(apiUrl, stranger)))
  const openedMs = performance.now() - startedMs
  const answers: (number | string)[] = []
  const tookMs: number[] = []
  for (let i = 0; i < calls; i++) {
    const sentMs = performance.now()
    answers.push(await lookUp(apiUrl, other))
    tookMs.push(performance.now() - sentMs)
  }
  const held = (): number => sockets.filter((socket) => !socket.closed).length
  const unanswered = answers.filter((answer) => answer !== 200)
  process.stdout.write(
    `${idle} sockets in ${Math.round(openedMs)} ms, ${held()} held; ${calls} calls of another address: ` +
      `${unanswered.length} unanswered, p50 ${percentile(tookMs, 0.5).toFixed(1)} ms, p99 ${percentile(tookMs, 0.99).toFixed(1)} ms\n`,
  )
  expect([...new Set(unanswered)]).toEqual([])
  await eventually(async () => {
    // The service closes a silent connection after 30 seconds, which is less than this test takes on a slow machine.
    if (held() < heldMax)
      await Promise.all(Array.from({ length: openingAtOnce }, () => open(apiUrl, stranger)))
    return held() === heldMax ? true : undefined
  })
  expect(await lookUp(apiUrl, stranger)).toMatch(/ECONNRESET|socket hang up/)
})
