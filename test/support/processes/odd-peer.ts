/**
 * A process that joins the table as an api process with the right proof, and answers as it should not; `honest` answers as
 * it should. Run as a child (`odd-peer-child.ts`): it has a ledger of its own, as any process has.
 */
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { createServer, type TLSSocket } from 'node:tls'
import pino from 'pino'
import { ulid } from 'ulid'
import { parseConfig } from '../../../src/config.ts'
import { openFoundation } from '../../../src/foundation/foundation.ts'
import { createFrameReader, frameOf, questionFrameBytesMax } from '../../../src/peers/frames.ts'
import { openLink } from '../../../src/peers/link.ts'
import { openPeerListener, type PeerListener } from '../../../src/peers/listener.ts'
import { openPeers, type Peers, type Transport } from '../../../src/peers/members.ts'
import type { AnswerPeer, Asker } from '../../../src/peers/peer.ts'
import { peerTls, preSharedKey, readIdentity } from '../../../src/peers/proof.ts'

export type OddManner = 'honest' | 'garbage' | 'nothing' | 'twice' | 'broken frames'

export type OddPeer = {
  /** Resolves when it is in the table, as the owner of every organization among those that live. */
  join(manner: OddManner): Promise<void>
  leave(): Promise<void>
  /** Questions it was asked since it joined. */
  asked(): number
  close(): Promise<void>
}

export const openOddPeer = async (): Promise<OddPeer> => {
  const logger = pino({ level: 'error' }, pino.destination(2))
  const config = parseConfig({ ...process.env, ROLES: 'api', LEDGER_OWNERS: 'off' })
  const foundation = await openFoundation(config, { logger })
  let asked = 0
  const counted =
    (answer: AnswerPeer): AnswerPeer =>
    (...question) => {
      asked++
      answer(...question)
    }
  const parts = (manner: OddManner): { readonly answer: AnswerPeer; readonly transport: Transport } => {
    const { answerPeers } = foundation
    const raw = (speak: Speak): Transport => ({
      openLink,
      openPeerListener: (options) => openRawListener({ ...options, speak }),
    })
    switch (manner) {
      case 'honest':
        return { answer: answerPeers, transport: { openLink, openPeerListener } }
      case 'garbage':
        return { answer: garbage(), transport: { openLink, openPeerListener } }
      case 'nothing':
        return { answer: () => undefined, transport: { openLink, openPeerListener } }
      case 'twice':
        return { answer: answerPeers, transport: raw(twice) }
      case 'broken frames':
        return { answer: () => undefined, transport: raw(broken()) }
    }
  }
  let peers: Peers | null = null
  const leave = async (): Promise<void> => {
    await peers?.leave()
    await peers?.close()
    peers = null
  }
  return {
    join: async (manner) => {
      asked = 0
      const { answer, transport } = parts(manner)
      // The process that lives longest writes, as long as one is enough.
      const id = ulid(1)
      const { url, secrets } = foundation
      peers = openPeers({ ...{ url, config, logger, transport, id }, key: secrets.peerKey })
      await peers.join(counted(answer))
    },
    leave,
    asked: () => asked,
    close: async () => {
      await leave()
      await foundation.close()
    },
  }
}

/** What is no answer, and answers to other questions, in turns. None claims that anything was written. */
const garbage = (): AnswerPeer => {
  const answers: readonly unknown[] = [
    ...['committed', 42, true, [], {}, { is: 'committed' }, { is: 'who knows' }, 'x'.repeat(100_000)],
    ...[{ is: 'committed', revision: -7, balance: 'NaN', repeated: 0, events: {} }, { is: 'held' }],
    ...[
      { is: 'figures', revision: 0.5 },
      { is: ['dropped'] },
      { __proto__: { is: 'dropped' } },
      { is: 'unknown' },
    ],
    ...[
      { is: 'book_missing' },
      { is: 'not_enough', held: '-' },
      { is: 'refused' },
      { is: 'behind', revision: '9' },
    ],
  ]
  let turn = 0
  return (_question, _from, answer) => answer(answers[turn++ % answers.length])
}

type Speaking = {
  /** Each question of a frame, with its id. */
  readonly onQuestion: (id: number, question: unknown) => void
}
/** How a raw listener speaks on one connection. */
type Speak = (parts: { socket: TLSSocket; answer: AnswerPeer; from: Asker }) => Speaking

const jsonFrame = (message: unknown): Buffer => {
  const text = JSON.stringify(message)
  return frameOf(text, Buffer.byteLength(text))
}

/** Does everything twice: acts on each question twice, and sends each answer twice. */
const twice: Speak = ({ socket, answer, from }) => ({
  onQuestion: (id, question) => {
    for (let n = 0; n < 2; n++)
      answer(question, from, (told) => {
        const frame = jsonFrame(['answers', id, told])
        socket.write(Buffer.concat([frame, frame]))
      })
  },
})

/** Sends, for each question, what is no frame of the protocol; another thing on each connection. */
const broken = (): Speak => {
  const frameOfBytes = (bytes: number): Buffer => {
    const header = Buffer.from([1, 0, 0, 0, 0])
    header.writeUInt32BE(bytes, 1)
    return header
  }
  const text = (json: string): Buffer => frameOf(json, Buffer.byteLength(json))
  const kinds: readonly ((id: number) => Buffer)[] = [
    () => randomBytes(2_000),
    () => frameOfBytes(0xffff_ffff),
    () => Buffer.concat([frameOfBytes(1_000), Buffer.alloc(10, '[')]),
    () => Buffer.from([9, 0, 0, 0, 2, 0x5b, 0x5d]),
    (id) => text(`["answers",${id}]`),
    (id) => text(`["answers","${id}",{"is":"dropped"}]`),
    (id) => text(`["answers",${id + 1e9},{"is":"dropped"}]`),
    (id) => text(`["answers",${id},{"is":"dropped"`),
    () => text('{"kind":"answers"}'),
    () => text('["state"]'),
    () => text('["questions",1,{"ask":"release","id":1}]'),
    () => text('[]'),
    () => text('null'),
    () => Buffer.concat(Array.from({ length: 1_000 }, () => text('["pong"]'))),
    (id) => text(`["answers",${id},${'['.repeat(100_000)}${']'.repeat(100_000)}]`),
  ]
  let connection = 0
  return ({ socket, answer, from }) => {
    const make = kinds[connection++ % kinds.length]
    return {
      onQuestion: (id, question) => {
        answer(question, from, () => undefined)
        if (make !== undefined) socket.write(make(id))
      },
    }
  }
}

type RawOptions = Parameters<typeof openPeerListener>[0] & { readonly speak: Speak }

/** As the listener of the service as far as the proof; what comes then is up to `speak`. */
const openRawListener = async ({
  host,
  port,
  self,
  key,
  answer,
  speak,
}: RawOptions): Promise<PeerListener> => {
  const sockets = new Set<TLSSocket>()
  const claims = new WeakMap<TLSSocket, string>()
  const server = createServer({
    ...peerTls,
    pskCallback: (socket, identity) => {
      const claim = readIdentity(identity, self)
      if ('refused' in claim) return null
      claims.set(socket, claim.asker)
      return preSharedKey(key, { asker: claim.asker, answerer: self })
    },
  })
  server.on('tlsClientError', () => undefined)
  server.on('secureConnection', (socket) => {
    sockets.add(socket)
    const gone: (() => void)[] = []
    const from: Asker = { id: claims.get(socket) ?? '', onGone: (run) => void gone.push(run) }
    const { onQuestion } = speak({ socket, answer, from })
    const read = createFrameReader({
      bytesMax: questionFrameBytesMax,
      onText: (text) => {
        const [kind, ...rest] = JSON.parse(text) as unknown[]
        if (kind === 'ping') socket.write(jsonFrame(['pong']))
        if (kind === 'questions')
          for (let n = 0; n < rest.length; n += 2) onQuestion(Number(rest[n]), rest[n + 1])
        return true
      },
    })
    socket.on('data', read)
    socket.on('error', () => socket.destroy())
    socket.on('close', () => {
      sockets.delete(socket)
      for (const run of gone) run()
    })
    socket.write(jsonFrame(['state', 'taking']))
  })
  server.listen(port, host)
  await once(server, 'listening')
  const bound = server.address()
  if (bound === null || typeof bound === 'string') throw new Error('no port')
  return {
    address: { host, port: bound.port },
    tellLeaving: () => {
      for (const socket of sockets) socket.write(jsonFrame(['state', 'leaving']))
    },
    connections: () => sockets.size,
    close: async () => {
      for (const socket of sockets) socket.destroy()
      await new Promise((resolve) => server.close(resolve))
    },
  }
}
