import { createSocket } from 'node:dgram'
import { once } from 'node:events'
import { afterEach, describe, expect, test } from 'vitest'
import { createDns, type Dns } from '../../src/egress/dns.ts'
import { dnsServers } from '../../src/egress/dns-query.ts'
import {
  type DnsServerDouble,
  type DnsServerOptions,
  startDnsServer,
  type Zones,
} from '../support/dns-server.ts'
import { exhaustive } from '../support/exhaustive.ts'

const servers: DnsServerDouble[] = []
afterEach(async () => {
  for (const server of servers.splice(0)) await server.close()
})

/** Longer than a busy machine takes to answer, but short enough for tests in which a server never answers. */
const attemptTimeoutMs = 500

/** A server, a cache in front of it, and a clock that only the test moves. */
const start = async (zones: Zones, options?: DnsServerOptions) => {
  const server = await startDnsServer(zones, options)
  servers.push(server)
  let nowMs = 1_000_000
  const dns: Dns = createDns({ servers: [server.address], clock: { now: () => nowMs }, attemptTimeoutMs })
  const pass = (seconds: number): void => {
    nowMs += seconds * 1000
  }
  return { server, dns, pass }
}

const exchange = [{ priority: 10, exchange: 'mx.a.test' }]

describe('answers of servers', () => {
  test('records of each type arrive with their TTL', async () => {
    const { dns } = await start({
      'a.test': { MX: exchange, A: ['8.8.8.8', '8.8.4.4'], AAAA: { records: ['2a00::1'], ttlSeconds: 7 } },
    })
    expect(await dns.resolve('a.test', 'MX')).toEqual({
      kind: 'records',
      records: [{ value: 'mx.a.test', priority: 10 }],
      ttlSeconds: 60,
    })
    expect(await dns.resolve('a.test', 'A')).toEqual({
      kind: 'records',
      records: [
        { value: '8.8.8.8', priority: 0 },
        { value: '8.8.4.4', priority: 0 },
      ],
      ttlSeconds: 60,
    })
    expect(await dns.resolve('a.test', 'AAAA')).toEqual({
      kind: 'records',
      records: [{ value: '2a00::1', priority: 0 }],
      ttlSeconds: 7,
    })
  })

  test.each([
    ['NXDOMAIN', 'not_found', { kind: 'not_found', ttlSeconds: 60 }],
    ['NODATA', 'no_data', { kind: 'no_data', ttlSeconds: 60 }],
    ['SERVFAIL', 'servfail', { kind: 'failed', code: 'ESERVFAIL' }],
    ['REFUSED', 'refused', { kind: 'failed', code: 'EREFUSED' }],
    ['silence', 'silence', { kind: 'failed', code: 'ETIMEOUT' }],
  ] as const)('%s is distinguished from the other outcomes', async (_, answer, expected) => {
    const { dns } = await start({ 'a.test': answer })
    expect(await dns.resolve('a.test', 'MX')).toEqual(expected)
  })

  test('a port without a listener is a separate failure', async () => {
    const socket = createSocket('udp4').bind(0, '127.0.0.1')
    await once(socket, 'listening')
    const { port } = socket.address()
    await once(socket.close(), 'close')
    const dns = createDns({ servers: [`127.0.0.1:${port}`], clock: performance, attemptTimeoutMs })
    expect(await dns.resolve('a.test', 'A')).toEqual({ kind: 'failed', code: 'ECONNREFUSED' })
  })

  test('an alias is followed, and the smallest TTL on the way counts', async () => {
    const { dns } = await start({
      'alias.test': { CNAME: { records: ['a.test'], ttlSeconds: 3 } },
      'a.test': { A: ['8.8.8.8'] },
    })
    expect(await dns.resolve('alias.test', 'A')).toEqual({
      kind: 'records',
      records: [{ value: '8.8.8.8', priority: 0 }],
      ttlSeconds: 3,
    })
  })

  test('an alias to a name that does not exist does not exist', async () => {
    const { dns } = await start({ 'alias.test': { CNAME: ['gone.test'] } })
    expect(await dns.resolve('alias.test', 'A')).toMatchObject({ kind: 'not_found' })
  })

  test('a loop of aliases ends', async () => {
    const { dns } = await start({ 'a.test': { CNAME: ['b.test'] }, 'b.test': { CNAME: ['a.test'] } })
    expect(await dns.resolve('a.test', 'A')).toEqual({ kind: 'failed', code: 'EBADRESP' })
  })

  test('an answer too long for a datagram is requested over TCP', async () => {
    const long = Array.from({ length: 30 }, (_, i) => ({
      priority: i,
      exchange: `a-rather-long-name-of-an-exchanger-number-${i}.a.test`,
    }))
    const { dns, server } = await start({ 'a.test': { MX: long } })
    const answer = await dns.resolve('a.test', 'MX')
    expect(answer.kind === 'records' && answer.records).toHaveLength(30)
    expect(server.queries('MX a.test')).toHaveLength(2)
  })

  test('if there are more records than are kept, those with the lowest priority values stay', async () => {
    const many = Array.from({ length: 60 }, (_, i) => ({ priority: 100 - i, exchange: `mx${i}.a.test` }))
    const { dns } = await start({ 'a.test': { MX: many } })
    const answer = await dns.resolve('a.test', 'MX')
    const priorities = answer.kind === 'records' ? answer.records.map(({ priority }) => priority) : []
    expect([priorities.length, Math.min(...priorities), Math.max(...priorities)]).toEqual([32, 41, 72])
  })

  test('an invalid host name is not sent to a server', async () => {
    const { dns, server } = await start({})
    expect(await dns.resolve('a..test', 'A')).toEqual({ kind: 'failed', code: 'EBADNAME' })
    expect(server.queries()).toEqual([])
  })
})

describe('more than one server', () => {
  test.each(['servfail', 'refused', 'silence'] as const)(
    'after %s, the next server is asked',
    async (failure) => {
      const first = await start({ 'a.test': failure })
      const second = await start({ 'a.test': { A: ['8.8.8.8'] } })
      const dns = createDns({
        servers: [first.server.address, second.server.address],
        clock: performance,
        attemptTimeoutMs,
      })
      expect(await dns.resolve('a.test', 'A')).toMatchObject({ kind: 'records' })
    },
  )

  test("a server's answer counts more than another server's silence, and is not requested twice", async () => {
    const first = await start({ 'a.test': 'refused' })
    const second = await start({ 'a.test': 'silence' })
    const dns = createDns({
      servers: [first.server.address, second.server.address],
      clock: performance,
      attemptTimeoutMs,
    })
    expect(await dns.resolve('a.test', 'A')).toEqual({ kind: 'failed', code: 'EREFUSED' })
    expect(first.server.queries()).toHaveLength(1)
    expect(second.server.queries()).toHaveLength(2)
  })

  test('a negative answer is an answer: no other server is asked', async () => {
    const first = await start({})
    const second = await start({ 'a.test': { A: ['8.8.8.8'] } })
    const dns = createDns({
      servers: [first.server.address, second.server.address],
      clock: performance,
      attemptTimeoutMs,
    })
    expect(await dns.resolve('a.test', 'A')).toMatchObject({ kind: 'not_found' })
    expect(second.server.queries()).toEqual([])
  })

  test.each([
    ['192.0.2.53', { address: '192.0.2.53', port: 53 }],
    ['192.0.2.53:5353', { address: '192.0.2.53', port: 5353 }],
    ['2001:db8::53', { address: '2001:db8::53', port: 53 }],
    ['[2001:db8::53]', { address: '2001:db8::53', port: 53 }],
    ['[2001:db8::53]:5353', { address: '2001:db8::53', port: 5353 }],
  ])('%s is a valid server', (text, server) => {
    expect(dnsServers([text])).toEqual([server])
  })

  test.each(['dns.test', '192.0.2.53:', '192.0.2.53:0', '192.0.2.53:65536', '[192.0.2.53', '192.0.2', ''])(
    '%j is refused, and the error quotes it',
    (text) => {
      expect(() => dnsServers([text])).toThrow(`"${text}"`)
    },
  )

  test("an empty list is refused; without a list the system's servers are used", () => {
    expect(() => dnsServers([])).toThrow(TypeError)
    expect(dnsServers(null).length).toBeGreaterThan(0)
  })
})

describe('forged answers', () => {
  test('answers with a wrong id or question are ignored', async () => {
    const socket = createSocket('udp4').bind(0, '127.0.0.1')
    await once(socket, 'listening')
    socket.on('message', (query, { port, address }) => {
      const answer = Buffer.concat([query, Buffer.from('c00c000100010000003c000408080808', 'hex')])
      answer.writeUInt16BE(0x8180, 2)
      answer.writeUInt16BE(1, 6)
      const wrongId = Buffer.from(answer)
      wrongId.writeUInt16BE((query.readUInt16BE(0) + 1) & 0xffff, 0)
      const wrongName = Buffer.from(answer)
      wrongName.write('b', 13)
      for (const message of [wrongId, wrongName, Buffer.from('junk'), answer])
        socket.send(message, port, address)
    })
    const dns = createDns({
      servers: [`127.0.0.1:${socket.address().port}`],
      clock: performance,
      attemptTimeoutMs,
    })
    expect(await dns.resolve('a.test', 'A')).toMatchObject({ records: [{ value: '8.8.8.8' }] })
    socket.close()
  })

  test('each question has its own id and port', async () => {
    const socket = createSocket('udp4').bind(0, '127.0.0.1')
    await once(socket, 'listening')
    const seen: { id: number; port: number }[] = []
    socket.on('message', (query, { port, address }) => {
      seen.push({ id: query.readUInt16BE(0), port })
      const answer = Buffer.from(query)
      answer.writeUInt16BE(0x8183, 2)
      socket.send(answer, port, address)
    })
    const dns = createDns({
      servers: [`127.0.0.1:${socket.address().port}`],
      clock: performance,
      attemptTimeoutMs,
    })
    await Promise.all(Array.from({ length: 50 }, (_, i) => dns.resolve(`name${i}.test`, 'A')))
    expect(new Set(seen.map(({ port }) => port)).size).toBe(50)
    // Two of fifty random ids out of 65,536 are sometimes equal.
    expect(new Set(seen.map(({ id }) => id)).size).toBeGreaterThan(45)
    socket.close()
  })
})

describe('the cache', () => {
  test('keeps an answer for its TTL and not longer', async () => {
    const { server, dns, pass } = await start({ 'a.test': { MX: { records: exchange, ttlSeconds: 30 } } })
    await dns.resolve('a.test', 'MX')
    server.set('a.test', 'MX', [{ priority: 5, exchange: 'new.a.test' }])
    pass(29.999)
    expect(await dns.resolve('A.Test', 'MX')).toMatchObject({ records: [{ value: 'mx.a.test' }] })
    expect(server.queries()).toHaveLength(1)
    pass(0.001)
    expect(await dns.resolve('a.test', 'MX')).toMatchObject({ records: [{ value: 'new.a.test' }] })
  })

  test('an expired answer is not served even if no server answers any more', async () => {
    const { server, dns, pass } = await start({ 'a.test': { MX: { records: exchange, ttlSeconds: 30 } } })
    await dns.resolve('a.test', 'MX')
    server.set('a.test', 'MX', 'servfail')
    pass(30)
    expect(await dns.resolve('a.test', 'MX')).toEqual({ kind: 'failed', code: 'ESERVFAIL' })
  })

  test.each([
    ['a TTL of zero, not at all', { 'a.test': { A: { records: ['8.8.8.8'], ttlSeconds: 0 } } }, {}, 0],
    ['a TTL of a day, an hour', { 'a.test': { A: { records: ['8.8.8.8'], ttlSeconds: 86_400 } } }, {}, 3_600],
    ['NXDOMAIN for a minute, a minute', {}, { negativeTtlSeconds: 60 }, 60],
    ['NODATA for a minute, a minute', { 'a.test': {} }, { negativeTtlSeconds: 60 }, 60],
    ['NXDOMAIN for a day, five minutes', {}, { negativeTtlSeconds: 86_400 }, 300],
    ['NXDOMAIN without a TTL, five seconds', {}, { negativeTtlSeconds: null }, 5],
    ['SERVFAIL, five seconds', { 'a.test': 'servfail' }, {}, 5],
    ['REFUSED, five seconds', { 'a.test': 'refused' }, {}, 5],
  ] as [string, Zones, DnsServerOptions, number][])('cache time: %s', async (_, zones, options, seconds) => {
    const { server, dns, pass } = await start(zones, options)
    await dns.resolve('a.test', 'A')
    if (seconds > 0) {
      pass(seconds - 0.001)
      await dns.resolve('a.test', 'A')
      expect(server.queries()).toHaveLength(1)
      pass(0.001)
    }
    await dns.resolve('a.test', 'A')
    expect(server.queries()).toHaveLength(2)
  })

  test('a hundred identical simultaneous questions are sent once', async () => {
    const { server, dns } = await start({ 'a.test': { MX: exchange } }, { delayMs: 20 })
    const answers = await Promise.all(Array.from({ length: 100 }, () => dns.resolve('a.test', 'MX')))
    expect(new Set(answers.map((answer) => JSON.stringify(answer))).size).toBe(1)
    expect(server.queries()).toEqual(['MX a.test'])
  })

  test('a caller that aborts only aborts its own wait: others get their answer from the same question', async () => {
    const { server, dns } = await start({ 'a.test': { MX: exchange } }, { delayMs: 50 })
    const abort = new AbortController()
    const impatient = dns.resolve('a.test', 'MX', { signal: abort.signal })
    const patient = dns.resolve('a.test', 'MX')
    abort.abort()
    expect(await impatient).toEqual({ kind: 'failed', code: 'ECANCELLED' })
    expect(await patient).toMatchObject({ kind: 'records' })
    expect(server.queries()).toHaveLength(1)
  })

  test('a caller that was already aborted sends no question', async () => {
    const { server, dns } = await start({ 'a.test': { MX: exchange } })
    const answer = await dns.resolve('a.test', 'MX', { signal: AbortSignal.abort() })
    expect(answer).toEqual({ kind: 'failed', code: 'ECANCELLED' })
    await dns.resolve('other.test', 'MX')
    expect(server.queries()).toEqual(['MX other.test'])
  })

  test('the number of different questions in progress is bounded, and refused ones are not cached', {
    skip: !exhaustive,
  }, async () => {
    const silent = Array.from({ length: 4_096 }, (_, i) => `name${i}.test`)
    const { dns, server } = await start(Object.fromEntries(silent.map((name) => [name, 'silence' as const])))
    const abort = new AbortController()
    const waiting = silent.map((name) => dns.resolve(name, 'A', { signal: abort.signal }))
    expect(await dns.resolve('more.test', 'A')).toEqual({ kind: 'failed', code: 'EBUSY' })
    expect(server.queries('A more.test')).toEqual([])
    // A question in progress can always be joined.
    waiting.push(dns.resolve('name0.test', 'A', { signal: abort.signal }))
    abort.abort()
    expect(
      (await Promise.all(waiting)).every((answer) => 'code' in answer && answer.code === 'ECANCELLED'),
    ).toBe(true)
    // A question that is asked while thousands wait for their time limit could reach its own, and that failure would be cached.
    await expect.poll(() => dns.status().queries.timeout, { timeout: 120_000 }).toBe(silent.length)
    expect(await dns.resolve('more.test', 'A')).toMatchObject({ kind: 'not_found' })
  })
})
