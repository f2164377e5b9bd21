/** Messages to another party's server: the addresses to which they may be sent, and the effects of hostile receivers. */
import { describe, expect, test } from 'vitest'
import { createEgressGuard } from '../../src/egress/guard.ts'
import type { HostAddresses } from '../../src/egress/hosts.ts'
import { postBounded } from '../../src/egress/post.ts'
import { createListening } from './listening.ts'

const { web, raw } = createListening()

const leadsTo =
  (...addresses: string[]) =>
  async (): Promise<HostAddresses> => ({ addresses, code: null })
/** The loopback is exempt here, as it is with `EGRESS_ALLOW`. */
const exempt = createEgressGuard({ allow: ['127.0.0.1'] })
const strict = createEgressGuard({ allow: [] })

const post = (
  url: string,
  {
    resolveHost = leadsTo('127.0.0.1'),
    guard = exempt,
    deadlineMs = 10_000,
    signal,
  }: {
    resolveHost?: () => Promise<HostAddresses>
    guard?: typeof exempt
    deadlineMs?: number
    signal?: AbortSignal
  } = {},
) =>
  postBounded(
    {
      url,
      headers: { 'content-type': 'application/json', 'x-own': 'yes' },
      body: '{"a":"ä"}',
      deadlineMs,
      signal,
    },
    { guard, resolveHost },
  )

describe('a message', () => {
  test('arrives unchanged, and its answer is a status without any text', async () => {
    let seen: unknown
    const { port } = await web(async (request, response) => {
      const chunks: Buffer[] = []
      for await (const chunk of request) chunks.push(chunk)
      const { method, url, headers } = request
      seen = [method, url, headers['x-own'], headers.host, Buffer.concat(chunks).toString()]
      response.writeHead(202, { 'content-type': 'application/pdf' }).end('taken')
    })
    expect(await post(`http://a.test:${port}/hook?x=1#y`)).toEqual({ kind: 'answered', status: 202 })
    expect(seen).toEqual(['POST', '/hook?x=1', 'yes', `a.test:${port}`, '{"a":"ä"}'])
  })

  test('does not follow redirects: a redirect is an answer, and its target is never dialled', async () => {
    const target = await web((_, response) => response.end())
    const { port } = await web((_, response) => {
      response.writeHead(307, { location: `http://127.0.0.1:${target.port}/` }).end()
    })
    expect(await post(`http://a.test:${port}/`)).toMatchObject({ kind: 'answered', status: 307 })
    expect(target.connections()).toBe(0)
  })
})

describe('forbidden targets', () => {
  test.each(['10.1.2.3', '169.254.169.254', '::ffff:10.0.0.1'])('%s, under any name', async (address) => {
    const { connections, port } = await web((_, response) => response.end())
    for (const url of ['https://a.test/', `https://a.test:${port}/`, 'http://a.test/'])
      expect(await post(url, { guard: strict, resolveHost: leadsTo(address) })).toEqual({
        kind: 'refused',
        detail: 'address',
      })
    expect(connections()).toBe(0)
  })

  test('anywhere without TLS, unless the address is exempt', async () => {
    expect(await post('http://a.test/', { resolveHost: leadsTo('8.8.8.8') })).toEqual({
      kind: 'refused',
      detail: 'scheme',
    })
  })

  test.each([
    ['ftp://a.test/', 'scheme'],
    ['https://user:secret@a.test/', 'userinfo'],
    ['no url', 'url'],
    ['https://a.test:8443/', 'port'],
  ])('%s', async (url, detail) => {
    expect(await post(url, { resolveHost: leadsTo('8.8.8.8') })).toEqual({ kind: 'refused', detail })
  })
})

describe('a hostile receiver', () => {
  test('that never answers is abandoned at the deadline', async () => {
    const { port } = await raw(() => undefined)
    expect(await post(`http://a.test:${port}/`, { deadlineMs: 50 })).toEqual({
      kind: 'timeout',
      detail: 'deadline',
    })
  })

  test('that never answers is abandoned when its sender ends', async () => {
    const ending = new AbortController()
    const { port } = await raw((socket) => void socket.once('data', () => ending.abort()))
    expect(await post(`http://a.test:${port}/`, { signal: ending.signal })).toEqual({
      kind: 'timeout',
      detail: 'aborted',
    })
  })

  test('with endless headers is abandoned', async () => {
    const { port } = await raw((socket) => {
      socket.write(`HTTP/1.1 200 OK\r\n${'x: yyyyyyyyyyyyyyy\r\n'.repeat(5_000)}`)
    })
    expect(await post(`http://a.test:${port}/`)).toEqual({ kind: 'too_large', detail: 'headers' })
  })

  test('with an endless body counts as answered: the status counts', async () => {
    const { port } = await web((_, response) => {
      response.writeHead(200)
      const flow = (): void => {
        while (!response.destroyed && response.write('x'.repeat(16_384)));
        response.once('drain', flow)
      }
      flow()
    })
    expect(await post(`http://a.test:${port}/`)).toEqual({ kind: 'answered', status: 200 })
  })
})
