/** Requests whose bytes do not arrive are refused in time, with an error from the catalogue. */
import type { AddressInfo } from 'node:net'
import { afterAll, expect, test } from 'vitest'
import { bodyBytesMax } from '../../src/call/request-body.ts'
import { decodeEvent } from '../../src/event-log/stored-event.ts'
import { ledgerStream } from '../../src/events/streams.ts'
import { openDashboardHost } from '../dashboard/dashboard-host.ts'
import { expectErrorObject, expectNoCallHeaders, expectNotAuthenticated } from '../spec/wire.ts'
import { someDocument } from '../support/call-document.ts'
import { type Answer, openRaw, sendRaw, until } from '../support/house.ts'
import { openPartner } from '../support/partners.ts'

const requestTimeoutMs = 400
const late = { status: 408, error: 'bad_request', code: 'REQ_001', details: {} }

const room = await openDashboardHost({
  reach: { requestTimeoutMs },
  forms: [
    {
      capability: 'whoami',
      permission: null,
      method: 'POST',
      path: '/echo',
      document: someDocument,
      parse: (body) => ({ input: body }),
      rehearse: 'own',
      gather: (input) => input,
      decide: (result) => ({ result, facts: { kind: 'whoami' } }),
    },
  ],
})
await room.host.listen({ host: '127.0.0.1', port: 0 })
const url = `http://127.0.0.1:${(room.host.server.address() as AddressInfo).port}`
const { organizationId, apiKey } = await openPartner(room.foundation, { credits: '0', permissions: [] })
afterAll(() => room.close())

const head = (length: number, path = '/echo'): string =>
  `POST ${path} HTTP/1.1\r\nHost: x\r\nx-api-key: ${apiKey}\r\nContent-Type: application/json\r\nContent-Length: ${length}\r\n\r\n`
const only = ([answer]: readonly Answer[]): Answer => {
  if (answer === undefined) throw new Error('no answer')
  return answer
}
const whole = async (): Promise<Answer> => only(await sendRaw(url, `${head(2)}{}`))

await until('the key is known', async () => (await whole()).status === 200)
const calls = async () =>
  (await room.foundation.eventLog.read(ledgerStream(organizationId), { max: 1_000 }))
    .map(decodeEvent)
    .flatMap(({ type, data }) => (type === 'KeyUsed' ? [data] : []))

test('a call whose body does not arrive is refused after the maximum request time: 408, recorded, free', async () => {
  const before = (await calls()).length
  const startedMs = performance.now()
  const answer = only(await sendRaw(url, `${head(16)}{`))
  expect(performance.now() - startedMs).toBeGreaterThanOrEqual(requestTimeoutMs - 1)
  expectErrorObject(answer, late)
  expect(answer.headers.get('connection')).toBe('close')
  expect(answer.headers.get('credits-charged')).toBe('0')
  expect((await calls()).slice(before)).toMatchObject([{ outcome: 'refused', code: 'REQ_001' }])
})

test('a body that arrives byte by byte is refused like one that does not arrive', async () => {
  const connection = openRaw(url)
  connection.write(head(bodyBytesMax))
  const drip = setInterval(() => connection.write('x'), 20)
  try {
    expectErrorObject(only(await connection.answers(1)), late)
  } finally {
    clearInterval(drip)
    connection.close()
  }
})

test('without a valid key the answer is AUTH_001', async () => {
  expectNotAuthenticated(only(await sendRaw(url, `${head(16).replace(apiKey, 'nobody')}{`)))
})

test.each([
  ['headers that do not arrive', () => 'POST /echo HTTP/1.1\r\nHost: x\r\nx-api'],
  ['nothing at all', () => ''],
  [
    'a form sent by a page',
    () =>
      'POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 9\r\n\r\na',
  ],
])('%s: 408, and no call', async (_, bytes) => {
  const before = (await calls()).length
  const answer = only(await sendRaw(url, bytes()))
  expectErrorObject(answer, late)
  expectNoCallHeaders(answer)
  expect(await calls()).toHaveLength(before)
})

test('a call that arrived completely is answered, no matter how long the next one takes', async () => {
  const answers = await sendRaw(url, `${head(2)}{}${head(16)}{`, 2)
  expect(answers.map(({ status }) => status)).toEqual([200, 408])
})

test('calls are answered even if the client ends its side of the connection after sending them', async () => {
  const before = (await calls()).length
  const connection = openRaw(url)
  try {
    connection.write(`${head(2)}{}`.repeat(3))
    connection.end()
    expect((await connection.answers(3)).map(({ status }) => status)).toEqual([200, 200, 200])
  } finally {
    connection.close()
  }
  expect((await calls()).slice(before)).toHaveLength(3)
})
