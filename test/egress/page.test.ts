import { once } from 'node:events'
import { createServer as createHttpsServer } from 'node:https'
import type { Socket } from 'node:net'
import { brotliCompressSync, deflateSync, gzipSync } from 'node:zlib'
import { afterEach, describe, expect, test, vi } from 'vitest'
import { createEgressGuard } from '../../src/egress/guard.ts'
import type { HostAddresses } from '../../src/egress/hosts.ts'
import { fetchBounded, type PageRequest } from '../../src/egress/page.ts'
import { createListening } from './listening.ts'
import { pinnedCertificate } from './pinned-certificate.ts'

const { listen, web, raw } = createListening()
afterEach(() => void vi.unstubAllEnvs())

/** Every name resolves to 127.0.0.1, which is exempt here. */
const toLoopback = async (): Promise<HostAddresses> => ({ addresses: ['127.0.0.1'], code: null })
const door = { guard: createEgressGuard({ allow: ['127.0.0.1'] }), resolveHost: toLoopback }

const get = (
  url: string,
  options: Partial<PageRequest> = {},
  through: Parameters<typeof fetchBounded>[1] = door,
) => fetchBounded({ url, accept: ['text/html'], deadlineMs: 10_000, ...options }, through)

const html = { 'content-type': 'text/html; charset=utf-8' }
const mebibyte = 1024 * 1024

describe('a page', () => {
  test('is returned with status, headers, body and its final address', async () => {
    const { port } = await web((request, response) => {
      response
        .writeHead(200, { ...html, 'X-Twice': ['a', 'b'] })
        .end(`<p>${request.headers.host} ${request.url}`)
    })
    const page = await get(`http://a.test:${port}/path?query#fragment`)
    expect(page).toMatchObject({
      kind: 'page',
      status: 200,
      headers: { 'content-type': 'text/html; charset=utf-8', 'x-twice': 'a, b' },
    })
    expect(page.kind === 'page' && page.body.toString()).toBe(`<p>a.test:${port} /path?query`)
  })

  test.each([
    ['gzip', gzipSync('<p>packed')],
    ['deflate', deflateSync('<p>packed')],
    ['br', brotliCompressSync('<p>packed')],
    ['identity', Buffer.from('<p>packed')],
  ])('compressed with %s is decompressed', async (encoding, body) => {
    const { port } = await web((_, response) => {
      response.writeHead(200, { ...html, 'content-encoding': encoding }).end(body)
    })
    const page = await get(`http://a.test:${port}/`)
    expect(page.kind === 'page' && page.body.toString()).toBe('<p>packed')
  })

  test('of another media type is refused', async () => {
    const { port } = await web((request, response) => {
      if (request.url === '/none') response.end('x')
      else response.writeHead(200, { 'content-type': 'application/pdf' }).end('x')
    })
    expect(await get(`http://a.test:${port}/`)).toEqual({ kind: 'refused', detail: 'content_type' })
    expect(await get(`http://a.test:${port}/none`)).toEqual({ kind: 'refused', detail: 'content_type' })
  })

  test('with an error status is still a page; its body is read only if it has the right type', async () => {
    const { port } = await web((request, response) => {
      const type = request.url === '/html' ? 'text/html' : 'application/pdf'
      response.writeHead(404, { 'content-type': type }).end('nothing')
    })
    expect(await get(`http://a.test:${port}/html`)).toMatchObject({
      status: 404,
      body: Buffer.from('nothing'),
    })
    expect(await get(`http://a.test:${port}/pdf`)).toMatchObject({ status: 404, body: Buffer.alloc(0) })
  })

  test('in an encoding that was not requested is refused, including several layers', async () => {
    const { port } = await web((request, response) => {
      response.writeHead(200, { ...html, 'content-encoding': request.url?.slice(1) ?? '' }).end('x')
    })
    for (const encoding of ['gzip,gzip', 'zstd', 'compress'])
      expect(await get(`http://a.test:${port}/${encoding}`)).toEqual({
        kind: 'refused',
        detail: 'content_encoding',
      })
  })

  test('is requested with the given headers, and with the encodings that can be read', async () => {
    const { port } = await web((request, response) => {
      const { authorization, accept, 'user-agent': agent } = request.headers
      response.writeHead(200, html).end(JSON.stringify([authorization, accept, agent]))
    })
    const page = await get(`http://a.test:${port}/`, {
      headers: { authorization: 'secret', 'user-agent': 'us' },
    })
    expect(page.kind === 'page' && JSON.parse(page.body.toString())).toEqual(['secret', 'text/html', 'us'])
  })
})

describe('permitted addresses', () => {
  const closed = createEgressGuard({ allow: [] })

  test.each(['127.0.0.1', '2130706433', '[::]', '[::ffff:7f00:1]'])(
    '%s is refused, and nothing is dialled',
    async (host) => {
      const { port, connections } = await web((_, response) => response.end())
      const resolveHost = async (name: string): Promise<HostAddresses> => ({ addresses: [name], code: null })
      const answer = await get(`http://${host}:${port}/`, {}, { guard: closed, resolveHost })
      expect(answer).toEqual({ kind: 'refused', detail: 'address' })
      expect(connections()).toBe(0)
    },
  )

  test.each(['127.0.0.1', '169.254.169.254', '::ffff:127.0.0.1', '2002:7f00:1::'])(
    'a name that resolves to %s is refused, and nothing is dialled',
    async (address) => {
      const { port, connections } = await web((_, response) => response.end())
      const resolveHost = async (): Promise<HostAddresses> => ({ addresses: [address], code: null })
      const answer = await get(`http://a.test:${port}/`, {}, { guard: closed, resolveHost })
      expect(answer).toEqual({ kind: 'refused', detail: 'address' })
      expect(connections()).toBe(0)
    },
  )

  test('a name is resolved once, so the address that was checked is the one that is dialled', async () => {
    const { port } = await web((_, response) => response.writeHead(200, html).end('here'))
    const answers = [['127.0.0.1'], ['10.0.0.1'], ['10.0.0.2']]
    const resolveHost = vi.fn(async () => ({ addresses: answers.shift() ?? [], code: null }))
    expect(await get(`http://a.test:${port}/`, {}, { guard: door.guard, resolveHost })).toMatchObject({
      kind: 'page',
    })
    expect(resolveHost).toHaveBeenCalledTimes(1)
  })

  test('of several addresses, forbidden ones are never dialled', async () => {
    const { port } = await web((request, response) => {
      response.writeHead(200, html).end(request.socket.localAddress)
    })
    const resolveHost = async (): Promise<HostAddresses> => ({
      addresses: ['127.0.0.2', '::1', '127.0.0.1'],
      code: null,
    })
    const page = await get(`http://a.test:${port}/`, {}, { guard: door.guard, resolveHost })
    expect(page.kind === 'page' && page.body.toString()).toBe('127.0.0.1')
  })

  test('other ports are for exempt addresses only', async () => {
    const resolveHost = async (): Promise<HostAddresses> => ({ addresses: ['8.8.8.8'], code: null })
    expect(await get('https://a.test:8443/', {}, { guard: closed, resolveHost })).toEqual({
      kind: 'refused',
      detail: 'port',
    })
    expect(await get('http://a.test:443/', {}, { guard: closed, resolveHost })).toEqual({
      kind: 'refused',
      detail: 'port',
    })
  })

  test.each([
    ['ftp://a.test/', 'scheme'],
    ['file:///etc/passwd', 'scheme'],
    ['data:text/html,x', 'scheme'],
    ['http://user@a.test/', 'userinfo'],
    ['http://user:word@a.test/', 'userinfo'],
    ['no address', 'url'],
    ['http://', 'url'],
    [`http://a.test/${'a'.repeat(2_048)}`, 'url'],
  ])('%.40s is refused without resolving anything', async (url, detail) => {
    const resolveHost = vi.fn(toLoopback)
    expect(await get(url, {}, { ...door, resolveHost })).toEqual({ kind: 'refused', detail })
    expect(resolveHost).not.toHaveBeenCalled()
  })

  test('proxy variables of the environment are not read', async () => {
    const proxy = await raw((socket) => socket.destroy())
    const { port } = await web((_, response) => response.writeHead(200, html).end())
    for (const name of ['HTTP_PROXY', 'http_proxy', 'HTTPS_PROXY', 'https_proxy', 'ALL_PROXY'])
      vi.stubEnv(name, `http://127.0.0.1:${proxy.port}`)
    vi.stubEnv('NODE_USE_ENV_PROXY', '1')
    expect(await get(`http://a.test:${port}/`)).toMatchObject({ kind: 'page' })
    expect(proxy.connections()).toBe(0)
  })

  test.each([
    [
      { addresses: [], code: null },
      { kind: 'unreachable', detail: 'ENOTFOUND' },
    ],
    [
      { addresses: [], code: 'ESERVFAIL' },
      { kind: 'unreachable', detail: 'ESERVFAIL' },
    ],
    [
      { addresses: [], code: 'ETIMEOUT' },
      { kind: 'timeout', detail: 'dns' },
    ],
  ] as const)('a name without addresses is an expected outcome: %j', async (found, expected) => {
    expect(await get('http://a.test/', {}, { ...door, resolveHost: async () => found })).toEqual(expected)
  })
})

describe('redirects', () => {
  const redirecting = (to: (url: string) => string, status = 302) =>
    web((request, response) => {
      if (request.url === '/end') response.writeHead(200, html).end('end')
      else response.writeHead(status, { location: to(request.url ?? '') }).end()
    })

  test.each([301, 302, 303, 307, 308])('%i is followed', async (status) => {
    const { port } = await redirecting(() => '/end', status)
    expect(await get(`http://a.test:${port}/`)).toMatchObject({
      kind: 'page',
      url: `http://a.test:${port}/end`,
    })
  })

  test('to a private address are refused without dialling it', async () => {
    const inside = await web((_, response) => response.writeHead(200, html).end('secret'))
    const targets = [
      `http://127.0.0.2:${inside.port}/`,
      `http://[::1]:${inside.port}/`,
      `http://[::ffff:127.0.0.2]:${inside.port}/`,
      `http://inside.test:${inside.port}/`,
      `//inside.test:${inside.port}/`,
    ]
    const resolveHost = async (host: string): Promise<HostAddresses> => ({
      addresses: [host === 'a.test' ? '127.0.0.1' : host === 'inside.test' ? '127.0.0.2' : host],
      code: null,
    })
    for (const target of targets) {
      const { port } = await redirecting(() => target)
      const answer = await get(`http://a.test:${port}/`, {}, { guard: door.guard, resolveHost })
      expect(answer).toEqual({ kind: 'refused', detail: 'address' })
    }
    expect(inside.connections()).toBe(0)
  })

  test.each([
    ['file:///etc/passwd', 'scheme'],
    ['http://user:word@a.test/', 'userinfo'],
    ['http://[', 'url'],
  ])('to %s are refused', async (target, detail) => {
    const { port } = await redirecting(() => target)
    expect(await get(`http://a.test:${port}/`)).toEqual({ kind: 'refused', detail })
  })

  test('in a loop end', async () => {
    const { port, connections } = await redirecting((url) => `${url}a`)
    expect(await get(`http://a.test:${port}/`, { redirectsMax: 4 })).toEqual({
      kind: 'too_many_redirects',
      detail: `http://a.test:${port}/aaaaa`,
    })
    expect(connections()).toBe(5)
  })

  test('are followed to the last one allowed', async () => {
    const { port } = await redirecting((url) => (url === '/aa' ? '/end' : `${url}a`))
    expect(await get(`http://a.test:${port}/`, { redirectsMax: 3 })).toMatchObject({ kind: 'page' })
    expect(await get(`http://a.test:${port}/`, { redirectsMax: 2 })).toMatchObject({
      kind: 'too_many_redirects',
    })
  })

  test('may be forbidden by the caller, who is asked first', async () => {
    const { port, connections } = await redirecting(() => '/end')
    const mayRedirectTo = vi.fn((url: URL) => url.pathname !== '/end')
    expect(await get(`http://a.test:${port}/`, { mayRedirectTo })).toEqual({
      kind: 'refused',
      detail: 'redirect',
    })
    expect(connections()).toBe(1)
  })

  test('to another origin do not carry secrets; to the same origin they do', async () => {
    const { port } = await web((request, response) => {
      const [, from, to] = request.url?.split('/') ?? []
      if (from === 'go') response.writeHead(302, { location: `http://${to}:${port}/` }).end()
      else response.writeHead(200, html).end(JSON.stringify(request.headers))
    })
    const headers = { Authorization: 'secret', cookie: 'secret', 'x-api-key': 'secret', 'user-agent': 'us' }
    const seen = async (host: string) => {
      const page = await get(`http://a.test:${port}/go/${host}`, { headers })
      return page.kind === 'page' ? JSON.parse(page.body.toString()) : page
    }
    expect(JSON.stringify(await seen('b.test'))).not.toContain('secret')
    expect(await seen('b.test')).toMatchObject({ 'user-agent': 'us' })
    expect(await seen('a.test')).toMatchObject({ authorization: 'secret', 'x-api-key': 'secret' })
  })
})

describe('TLS', () => {
  const secure = async () => {
    const names: unknown[] = []
    const server = createHttpsServer(pinnedCertificate, (_, response) =>
      response.writeHead(200, html).end('safe'),
    )
    server.on('secureConnection', (socket) => names.push(socket.servername))
    return { ...(await listen(server)), names }
  }

  test('the certificate is checked against the name, while the pinned address is dialled', async () => {
    const { port, names } = await secure()
    const through = { ...door, ca: pinnedCertificate.cert }
    expect(await get(`https://pinned.test:${port}/`, {}, through)).toMatchObject({ kind: 'page' })
    expect(names).toEqual(['pinned.test'])
    expect(await get(`https://other.test:${port}/`, {}, through)).toEqual({
      kind: 'unreachable',
      detail: 'ERR_TLS_CERT_ALTNAME_INVALID',
    })
  })

  test('an unknown authority is refused, with any environment variables', async () => {
    vi.stubEnv('NODE_TLS_REJECT_UNAUTHORIZED', '0')
    const { port } = await secure()
    expect(await get(`https://pinned.test:${port}/`)).toEqual({
      kind: 'unreachable',
      detail: 'DEPTH_ZERO_SELF_SIGNED_CERT',
    })
  })
})

describe('time', () => {
  test('a server that does not answer is abandoned at the deadline', async () => {
    const { port } = await raw(() => undefined)
    expect(await get(`http://a.test:${port}/`, { deadlineMs: 200 })).toEqual({
      kind: 'timeout',
      detail: 'deadline',
    })
  })

  test('a server that sends its headers byte by byte is abandoned too', async () => {
    const { port } = await raw((socket) => drip(socket, 'HTTP/1.1 200 OK\r\nx-'))
    expect(await get(`http://a.test:${port}/`, { deadlineMs: 300 })).toEqual({
      kind: 'timeout',
      detail: 'deadline',
    })
  })

  test('a server that never ends its body is abandoned too', async () => {
    const { port } = await raw((socket) => drip(socket, 'HTTP/1.1 200 OK\r\ncontent-type: text/html\r\n\r\n'))
    expect(await get(`http://a.test:${port}/`, { deadlineMs: 300 })).toEqual({
      kind: 'timeout',
      detail: 'deadline',
    })
  })

  test('a handshake that takes too long is abandoned before the deadline', async () => {
    const { port } = await raw(() => undefined)
    expect(await get(`https://a.test:${port}/`, { connectTimeoutMs: 200 })).toEqual({
      kind: 'timeout',
      detail: 'connect',
    })
  })

  test('a resolver that does not return is abandoned at the deadline', async () => {
    const resolveHost = async (_: string, signal: AbortSignal): Promise<HostAddresses> => {
      await once(signal, 'abort')
      return { addresses: [], code: 'ECANCELLED' }
    }
    expect(await get('http://a.test/', { deadlineMs: 50 }, { ...door, resolveHost })).toEqual({
      kind: 'timeout',
      detail: 'deadline',
    })
  })

  test('the caller may abort it', async () => {
    const { port } = await raw(() => undefined)
    const abort = new AbortController()
    const answer = get(`http://a.test:${port}/`, { signal: abort.signal })
    abort.abort()
    expect(await answer).toEqual({ kind: 'timeout', detail: 'aborted' })
  })

  test('the deadline covers all redirects together', async () => {
    const { port } = await web((_, response) => {
      const timer = setTimeout(() => response.writeHead(302, { location: '/' }).end(), 60)
      response.on('close', () => clearTimeout(timer))
    })
    expect(await get(`http://a.test:${port}/`, { deadlineMs: 300, redirectsMax: 1_000 })).toEqual({
      kind: 'timeout',
      detail: 'deadline',
    })
  })
})

const drip = (socket: Socket, start: string): void => {
  socket.write(start)
  const timer = setInterval(() => socket.write('a'), 10)
  socket.on('close', () => clearInterval(timer))
}

describe('size', () => {
  const answers = [
    ['with a content-length', `content-length: ${1024 * mebibyte}\r\n`],
    ['without', ''],
  ] as const

  test.each(answers)('a body of a gigabyte is abandoned at the limit, %s', async (_, length) => {
    const chunk = Buffer.alloc(64 * 1024, 'a')
    let written = 0
    const { port } = await raw((socket) => {
      socket.write(`HTTP/1.1 200 OK\r\ncontent-type: text/html\r\n${length}\r\n`)
      const pour = (): void => {
        while (!socket.destroyed && written < 1024 * mebibyte) {
          written += chunk.length
          if (!socket.write(chunk)) return
        }
      }
      socket.on('drain', pour)
      pour()
    })
    expect(await get(`http://a.test:${port}/`)).toEqual({ kind: 'too_large', detail: 'wire' })
    // The limit is 2 MiB; the kernel buffers the rest on both sides.
    expect(written).toBeLessThan(32 * mebibyte)
  })

  test('a body of exactly the limit is a page; with one more byte it is too large', async () => {
    const { port } = await web((request, response) => {
      response.writeHead(200, html).end('a'.repeat(Number(request.url?.slice(1))))
    })
    expect(await get(`http://a.test:${port}/1000`, { wireBytesMax: 1_000 })).toMatchObject({ kind: 'page' })
    expect(await get(`http://a.test:${port}/1001`, { wireBytesMax: 1_000 })).toEqual({
      kind: 'too_large',
      detail: 'wire',
    })
    expect(await get(`http://a.test:${port}/1001`, { decodedBytesMax: 1_000 })).toEqual({
      kind: 'too_large',
      detail: 'decoded',
    })
  })

  const oneMebibyte = Buffer.alloc(mebibyte)
  test.each([
    ['gzip', Buffer.concat(new Array(1024).fill(gzipSync(oneMebibyte)))],
    ['deflate', deflateSync(Buffer.alloc(64 * mebibyte))],
    ['br', brotliCompressSync(Buffer.alloc(64 * mebibyte))],
  ])('a %s bomb is abandoned at the limit, and never held in memory', async (encoding, bomb) => {
    expect(bomb.length).toBeLessThan(2 * mebibyte)
    const { port } = await web((_, response) => {
      response.writeHead(200, { ...html, 'content-encoding': encoding }).end(bomb)
    })
    const before = process.memoryUsage.rss()
    expect(await get(`http://a.test:${port}/`)).toEqual({ kind: 'too_large', detail: 'decoded' })
    expect(process.memoryUsage.rss() - before).toBeLessThan(64 * mebibyte)
  })

  test('endless headers are abandoned at their limit', async () => {
    let written = 0
    const { port } = await raw((socket) => {
      socket.write('HTTP/1.1 200 OK\r\n')
      const pour = (): void => {
        while (!socket.destroyed && written < 1024 * mebibyte) {
          written += 1_000
          if (!socket.write(`x-a: ${'a'.repeat(993)}\r\n`)) return
        }
      }
      socket.on('drain', pour)
      pour()
    })
    expect(await get(`http://a.test:${port}/`)).toEqual({ kind: 'too_large', detail: 'headers' })
    // The limit is 16 KiB; the kernel buffers the rest on both sides.
    expect(written).toBeLessThan(32 * mebibyte)
  })
})

describe('failures of the network are expected outcomes', () => {
  const head = 'HTTP/1.1 200 OK\r\ncontent-type: text/html\r\n'
  const cut = gzipSync('<p>'.repeat(1_000)).subarray(0, 20)

  test.each([
    ['a body shorter than announced', `${head}content-length: 100\r\n\r\nshort`, 'UND_ERR_SOCKET'],
    ['chunks that stop', `${head}transfer-encoding: chunked\r\n\r\n5\r\nshort\r\n`, 'UND_ERR_SOCKET'],
    ['nothing at all', '', 'UND_ERR_SOCKET'],
    ['something that is not HTTP', '220 mail.a.test ESMTP\r\n', 'HTTPParserError'],
    ['a broken archive', `${head}content-encoding: gzip\r\n\r\nnot an archive`, 'Z_DATA_ERROR'],
    ['an archive that stops', [`${head}content-encoding: gzip\r\n\r\n`, cut], 'Z_BUF_ERROR'],
  ] as const)('%s', async (_, bytes, detail) => {
    const { port } = await raw((socket) => {
      socket.once('data', () => {
        for (const part of typeof bytes === 'string' ? [bytes] : bytes) socket.write(part)
        socket.end()
      })
    })
    expect(await get(`http://a.test:${port}/`)).toEqual({ kind: 'unreachable', detail })
  })

  test.each(['immediately', 'in the middle'])('a connection that is reset %s', async (when) => {
    const { port } = await raw((socket) => {
      socket.once('data', () => {
        if (when === 'immediately') socket.resetAndDestroy()
        else socket.write(`${head}content-length: 100\r\n\r\nshort`, () => socket.resetAndDestroy())
      })
    })
    expect(await get(`http://a.test:${port}/`)).toMatchObject({ kind: 'unreachable' })
  })

  test('a port without a listener', async () => {
    const { port, close } = await raw(() => undefined)
    await close()
    expect(await get(`http://a.test:${port}/`)).toEqual({ kind: 'unreachable', detail: 'ECONNREFUSED' })
  })

  test('but an invalid request header is a bug and thrown', async () => {
    await expect(get('http://a.test:1/', { headers: { 'x-a': 'a\r\nb: c' } })).rejects.toThrow()
  })
})
