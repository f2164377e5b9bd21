import { once } from 'node:events'
import { connect as connectTcp, createServer as createTcpServer } from 'node:net'
import { connect, createServer } from 'node:tls'
import fc from 'fast-check'
import { describe, expect, onTestFinished, test } from 'vitest'
import type { Asker } from '../../src/peers/peer.ts'
import { peerTls, preSharedKey } from '../../src/peers/proof.ts'
import { renewedCertificate } from '../support/certificate.ts'
import { startTcpProxy } from '../support/tcp-proxy.ts'
import {
  ask,
  frame,
  key,
  rawAnswerer,
  rawAsker,
  readyLink,
  startLink,
  startListener,
  until,
} from './scene.ts'

const reasons = (lines: readonly { reason: string | undefined }[]) => lines.map(({ reason }) => reason)

const isReadyAfter = async (link: { ready(): boolean }, ms: number): Promise<boolean> => {
  await new Promise((resolve) => setTimeout(resolve, ms))
  return link.ready()
}

describe('proof', () => {
  test('another key, or another process than was meant, is refused on both sides, and told once', async () => {
    const listener = await startListener()
    const wrong = Buffer.alloc(32, 'w')
    const links = [
      startLink(listener.address, { key: wrong }),
      startLink(listener.address, { peer: 'C' }),
      startLink(listener.address, { self: 'Z', key: wrong }),
    ]
    await until(() => links.every(({ logger }) => logger.lines.length > 0))
    expect(await Promise.all(links.map((link) => isReadyAfter(link, 50)))).toEqual([false, false, false])
    expect(listener.connections()).toBe(0)
    expect(listener.logger.lines.map(({ message }) => message)).toEqual(['peers: a connection was refused'])
    expect(links.map(({ logger }) => logger.lines.length)).toEqual([1, 1, 1])
    for (const { logger } of links) expect(logger.lines[0]?.reason).toMatch(/alert/)
    expect(JSON.stringify([listener.logger.lines, links.map(({ logger }) => logger.lines)])).not.toMatch(
      /kkk|www/,
    )
  })

  test.each([
    ['it is meant for another process', '1.A.C'],
    ['it speaks another version', '2.A.B'],
    ['its identity has another form', '1.A.B.C'],
    ['its identity has another form', '1.a b.B'],
    ['its identity has another form', '1..B'],
    ['it speaks another version', ''],
  ])('%s: %j', async (reason, identity) => {
    const listener = await startListener()
    const socket = connect({
      ...peerTls,
      ...listener.address,
      pskCallback: () => ({ psk: preSharedKey(key, { asker: 'A', answerer: 'B' }), identity }),
    })
    await new Promise((resolve) => socket.on('error', resolve))
    await until(() => listener.logger.lines.length > 0)
    // OpenSSL passes on no empty identity.
    expect(reasons(listener.logger.lines)[0]).toMatch(identity === '' ? /./ : reason)
  })

  test('a server that has no key is no peer, whatever certificate it shows', async () => {
    const server = createServer({ ...renewedCertificate, maxVersion: 'TLSv1.3' })
    const tls12 = createServer({ maxVersion: 'TLSv1.2', ciphers: 'PSK', pskCallback: () => key })
    for (const one of [server, tls12]) {
      one.on('tlsClientError', () => undefined)
      one.on('secureConnection', (socket) => socket.end(frame('["state","taking"]')))
      one.listen(0, '127.0.0.1')
      await once(one, 'listening')
      onTestFinished(() => {
        one.close()
      })
      const bound = one.address()
      if (bound === null || typeof bound === 'string') throw new Error('no port')
      const link = startLink({ host: '127.0.0.1', port: bound.port })
      await until(() => link.logger.lines.length > 0)
      expect(link.ready()).toBe(false)
    }
  })

  test('a client without the key gets nothing', async () => {
    const listener = await startListener()
    const socket = connect({ ...listener.address, rejectUnauthorized: false })
    await new Promise((resolve) => socket.on('error', resolve))
    expect(listener.connections()).toBe(0)
  })

  test('ids and keys that cannot be part of a proof are refused before anything is opened', async () => {
    const address = { host: '127.0.0.1', port: 1 }
    expect(() => startLink(address, { peer: 'B.C' })).toThrow('"B.C" is no process id')
    expect(() => startLink(address, { self: 'x'.repeat(49) })).toThrow('is no process id')
    expect(() => startLink(address, { key: Buffer.alloc(31) })).toThrow('less than 32 bytes')
    await expect(startListener({ self: '' })).rejects.toThrow('is no process id')
  })

  test('plain bytes, and a connection that says nothing, are ended', async () => {
    const listener = await startListener({ bounds: { handshakeMaxMs: 80 } })
    const sockets = ['GET / HTTP/1.1\r\n\r\n', '', '\u0016\u0003\u0001'].map((bytes) => {
      const socket = connectTcp(listener.address)
      socket.on('error', () => undefined).resume()
      if (bytes !== '') socket.write(bytes, 'latin1')
      // A reset is an end as well, which `once` would take for a failure.
      return new Promise((resolve) => socket.once('close', resolve))
    })
    await Promise.all(sockets)
    expect(listener.logger.lines).toHaveLength(1)
    expect(await ask(await readyLink(listener.address), 'still here')).toBe('still here')
  })

  test('connections over the bound are not taken', async () => {
    const listener = await startListener({ bounds: { connectionsMax: 1 } })
    await readyLink(listener.address)
    const other = startLink(listener.address, { self: 'C' })
    await until(() => other.logger.lines.length > 0 || listener.logger.lines.length > 0)
    expect([other.ready(), listener.connections()]).toEqual([false, 1])
    expect(reasons(listener.logger.lines)).toEqual(['too many connections'])
  })
})

describe('an asker that knows the key and sends what it should not', () => {
  const deep = `${'['.repeat(50_000)}${']'.repeat(50_000)}`

  test.each<[string, Buffer | string, string]>([
    ['another version of frames', Buffer.from('garbage'), 'a frame of version 103'],
    ['a huge length', Buffer.from([1, 0x7f, 0, 0, 0]), 'a frame of 2130706432 bytes'],
    ['no JSON', '{"questions"', 'a frame that is no message'],
    ['JSON of another shape', '{"questions":[]}', 'a frame that is no message'],
    ['an empty frame', '', 'a frame that is no message'],
    ['an unknown kind', '["answers",1,1]', 'a frame of an unknown kind'],
    ['deep JSON', deep, 'a frame of an unknown kind'],
    ['an id that is no number', '["questions",1,"fine","2","not"]', 'a frame with a wrong id'],
    ['an id that is too large', '["questions",1e300,"q"]', 'a frame with a wrong id'],
    ['an id without a question', '["questions",1,"fine",2]', 'a frame with an id alone'],
    ['a prototype', '{"__proto__":["questions"]}', 'a frame that is no message'],
  ])('%s', async (_what, sent, reason) => {
    const questions: unknown[] = []
    const listener = await startListener({ answer: (question) => questions.push(question) })
    const asker = await rawAsker(listener.address)
    asker.socket.write(typeof sent === 'string' ? frame(sent) : sent)
    await once(asker.socket, 'close')
    await until(() => listener.logger.lines.length > 0)
    expect(reasons(listener.logger.lines)).toEqual([reason])
    expect([questions, listener.connections()]).toEqual([[], 0])
  })

  test('a deep question is passed on, and no answer to it brings the process down', async () => {
    const listener = await startListener()
    const asker = await rawAsker(listener.address)
    asker.socket.write(frame(`["questions",1,${deep}]`))
    await until(() => asker.messages.length === 2)
    expect(asker.messages[1]).toEqual(['answers', 1, null])
  })

  test('half a frame, and then nothing', async () => {
    const listener = await startListener({ bounds: { silenceMs: 60 } })
    const asker = await rawAsker(listener.address)
    asker.socket.write(frame('["questions",1,"q"]').subarray(0, 12))
    await once(asker.socket, 'close')
    expect(reasons(listener.logger.lines)).toEqual(['nothing heard for 60 ms'])
  })

  test('each frame twice: a question is passed on twice, and both are answered', async () => {
    const questions: unknown[] = []
    const listener = await startListener({
      answer: (question, _from, answer) => {
        questions.push(question)
        answer(questions.length)
        answer('a second answer')
      },
    })
    const asker = await rawAsker(listener.address)
    asker.send(['questions', 5, 'q'])
    asker.send(['questions', 5, 'q'])
    await until(() => asker.messages.flat().length === 7 || asker.messages.length === 3)
    expect(questions).toEqual(['q', 'q'])
    expect(
      asker.messages
        .slice(1)
        .flat()
        .filter((part) => part !== 'answers'),
    ).toEqual([5, 1, 5, 2])
  })

  test('anything at all: the listener goes on, and its log has few lines', async () => {
    const listener = await startListener({ answer: (question, _from, answer) => answer(question) })
    const link = await readyLink(listener.address, { self: 'GOOD' })
    await fc.assert(
      fc.asyncProperty(
        fc.oneof(
          fc.uint8Array({ minLength: 5, maxLength: 200 }).map((bytes) => Buffer.from(bytes)),
          fc.json().map(frame),
        ),
        async (bytes) => {
          const asker = await rawAsker(listener.address)
          const closed = once(asker.socket, 'close')
          asker.socket.end(bytes)
          await closed
        },
      ),
      { numRuns: 60 },
    )
    expect(await ask(link, 'still here')).toBe('still here')
    expect(listener.logger.lines.length).toBeLessThan(3)
    await until(() => listener.connections() === 1)
  })

  test('an asker that does not read its answers is disconnected', async () => {
    const listener = await startListener({
      answer: (_question, _from, answer) => answer('x'.repeat(1_000_000)),
      bounds: { waitingBytesMax: 4_000_000 },
    })
    const asker = await rawAsker(listener.address)
    asker.socket.pause()
    for (let id = 1; id <= 64; id++) asker.send(['questions', id, 'q'])
    await until(() => listener.logger.lines.length > 0)
    expect(reasons(listener.logger.lines)).toEqual(['it does not read its answers'])
    expect(listener.connections()).toBe(0)
  })

  test('an asker with too many questions is disconnected', async () => {
    const questions: unknown[] = []
    const listener = await startListener({
      answer: (question) => questions.push(question),
      bounds: { unansweredMax: 3 },
    })
    const asker = await rawAsker(listener.address)
    asker.send(['questions', 1, 'a', 2, 'b', 3, 'c', 4, 'd', 5, 'e'])
    await once(asker.socket, 'close')
    expect(questions).toEqual(['a', 'b', 'c'])
    expect(reasons(listener.logger.lines)).toEqual(['too many questions'])
  })
})

describe('an answerer that knows the key and sends what it should not', () => {
  test.each<[string, Buffer, string]>([
    ['another version of frames', Buffer.from('HTTP/1.1 400'), 'a frame of version 72'],
    ['a huge length', Buffer.from([1, 0x7f, 0, 0, 0]), 'a frame of 2130706432 bytes'],
    ['no JSON', frame('nothing'), 'a frame that is no message'],
    ['questions', frame('["questions",1,1]'), 'a frame of an unknown kind'],
    ['a wrong id', frame('["answers",1,"fine",-1,1]'), 'a frame with a wrong id'],
  ])('%s', async (_what, sent, reason) => {
    const address = await rawAnswerer((end) => {
      end.send(['state', 'taking'])
      end.socket.on('data', () => end.socket.write(sent))
    })
    const link = await readyLink(address)
    expect(await ask(link, 'q')).toBeNull()
    expect(reasons(link.logger.lines)).toEqual([reason])
  })

  test('an answerer that is no peer at all: plain TCP', async () => {
    const server = createTcpServer((socket) => socket.on('error', () => undefined).end('220 mail ESMTP\r\n'))
    server.listen(0, '127.0.0.1')
    await once(server, 'listening')
    onTestFinished(() => {
      server.close()
    })
    const bound = server.address()
    if (bound === null || typeof bound === 'string') throw new Error('no port')
    const link = startLink({ host: '127.0.0.1', port: bound.port })
    await until(() => link.logger.lines.length > 0)
    expect(await isReadyAfter(link, 50)).toBe(false)
    expect(link.logger.lines).toHaveLength(1)
  })
})

describe('one asker, one connection', () => {
  test('an asker that connects anew is acknowledged when its earlier connection has ended, and nothing unread there is acted on', async () => {
    const events: string[] = []
    const listener = await startListener({
      answer: (question, from) => {
        events.push(`acted on ${question}`)
        from.onGone(() => events.push('gone'))
      },
    })
    const proxy = await startTcpProxy(listener.address)
    const first = await rawAsker({ host: '127.0.0.1', port: proxy.port })
    first.send(['questions', 1, 'read'])
    await until(() => events.length === 1)
    // On its way, while the asker has lost its patience.
    proxy.freeze()
    first.send(['questions', 2, 'unread'])
    const second = await rawAsker(listener.address)
    await until(() => second.messages.length === 1)
    events.push('acknowledged')
    expect(listener.connections()).toBe(1)
    proxy.thaw()
    await until(() => first.socket.closed)
    second.send(['questions', 3, 'of the second'])
    await until(() => events.length === 4)
    expect(events).toEqual(['acted on read', 'gone', 'acknowledged', 'acted on of the second'])
    await proxy.close()
  })

  test('an asker in the middle of many questions connects anew: none of the earlier connection is acted on from then on', async () => {
    const acted: { readonly asker: Asker; readonly question: unknown }[] = []
    const ended = new Set<Asker>()
    const listener = await startListener({
      answer: (question, from, answer) => {
        if (acted.at(-1)?.asker !== from) from.onGone(() => ended.add(from))
        if (ended.has(from)) throw new Error('acted on after its end')
        acted.push({ asker: from, question })
        answer(question)
      },
    })
    for (let round = 0; round < 10; round++) {
      acted.length = 0
      const first = await rawAsker(listener.address)
      const connecting = rawAsker(listener.address)
      for (let id = 1; !first.socket.closed; id++) {
        if (!first.socket.destroyed) first.send(['questions', id, `first ${'x'.repeat(2_000)}`])
        await new Promise(setImmediate)
      }
      const second = await connecting
      await until(() => second.messages.length > 0)
      const count = acted.length
      second.send(['questions', 1, 'second'])
      await until(() => second.messages.length > 1)
      expect(acted.slice(count).map(({ question }) => question)).toEqual(['second'])
      second.socket.destroy()
    }
    expect(listener.logger.lines.filter(({ level }) => level === 'error')).toEqual([])
  })

  test('what is in the same bytes is not acted on either once the connection has ended', async () => {
    const questions: unknown[] = []
    const listener = await startListener({
      answer: (question) => {
        questions.push(question)
        // Both close the connection, in the middle of what was read.
        if (question === 'last') void listener.close()
      },
      bounds: { unansweredMax: 2 },
    })
    const asker = await rawAsker(listener.address)
    asker.socket.write(
      Buffer.concat(
        ['first', 'last', 'third', 'fourth'].map((question) => frame(`["questions",1,"${question}"]`)),
      ),
    )
    await once(asker.socket, 'close')
    expect(questions).toEqual(['first', 'last'])
  })

  test('askers of other processes are left alone', async () => {
    const listener = await startListener()
    const links = await Promise.all(['A', 'C', 'D'].map((self) => readyLink(listener.address, { self })))
    expect(listener.connections()).toBe(3)
    expect(await Promise.all(links.map((link, index) => ask(link, index)))).toEqual([0, 1, 2])
  })

  test('what wants to know that an asker is gone is called once, also afterwards and also if one throws', async () => {
    const askers: Asker[] = []
    const answers: ((answer: unknown) => void)[] = []
    const listener = await startListener({
      answer: (_question, from, answer) => {
        askers.push(from)
        answers.push(answer)
      },
    })
    const link = await readyLink(listener.address)
    const asked = ask(link, 'q')
    await until(() => askers.length === 1)
    let gone = 0
    const onGone = (run: () => void) => askers[0]?.onGone(run)
    onGone(() => gone++)
    onGone(() => {
      throw new Error('of the layer above')
    })
    onGone(() => gone++)
    await link.close()
    expect(await asked).toBeNull()
    await until(() => gone === 2)
    onGone(() => gone++)
    expect([askers[0]?.id, gone]).toEqual(['A', 3])
    // After its end, and twice.
    for (const answer of answers) answer('late')
    for (const answer of answers) answer('again')
  })
})
