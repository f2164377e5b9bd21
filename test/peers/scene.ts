/** Links and listeners on loopback, what they logged, and processes that misbehave although they know the key. */
import { once } from 'node:events'
import { createServer as createTcpServer } from 'node:net'
import { connect, createServer, type TLSSocket } from 'node:tls'
import { onTestFinished, vi } from 'vitest'
import { createFrameReader, frameOf } from '../../src/peers/frames.ts'
import { type Link, openLink, type PeerAddress } from '../../src/peers/link.ts'
import { openPeerListener, type PeerListener } from '../../src/peers/listener.ts'
import type { AnswerPeer } from '../../src/peers/peer.ts'
import { identityOf, peerTls, preSharedKey } from '../../src/peers/proof.ts'

export const key = Buffer.alloc(32, 'k')
/** Reconnects at once, or nearly. */
export const quick = { pauseMs: 2, pauseMaxMs: 20 }

type Line = { readonly level: string; readonly message: string; readonly reason: string | undefined }

/** Lines as they are logged, with the message of the error alone. */
export const recordingLogger = () => {
  const lines: Line[] = []
  const record = (level: string) => (fields: object, message: string) => {
    const reason = 'err' in fields && fields.err instanceof Error ? fields.err.message : undefined
    lines.push({ level, message, reason })
  }
  return { lines, info: record('info'), warn: record('warn'), error: record('error') }
}

export type RecordingLogger = ReturnType<typeof recordingLogger>

export const until = (is: () => boolean): Promise<void> =>
  vi.waitFor(
    () => {
      if (!is()) throw new Error('not yet')
    },
    { timeout: 30_000, interval: 2 },
  )

type ListenerOptions = Partial<Parameters<typeof openPeerListener>[0]>

/** The process B, which answers each question with itself unless told otherwise. */
export const startListener = async (
  options: ListenerOptions = {},
): Promise<PeerListener & { logger: RecordingLogger }> => {
  const logger = recordingLogger()
  const echo: AnswerPeer = (question, _from, answer) => answer(question)
  const listener = await openPeerListener({
    host: '127.0.0.1',
    port: 0,
    self: 'B',
    key,
    answer: echo,
    logger,
    ...options,
    bounds: { closeMaxMs: 200, ...options.bounds },
  })
  onTestFinished(() => listener.close())
  return { ...listener, logger }
}

type LinkOptions = Partial<Parameters<typeof openLink>[0]>

/** From the process A to B. */
export const startLink = (
  address: PeerAddress,
  options: LinkOptions = {},
): Link & { logger: RecordingLogger } => {
  const logger = recordingLogger()
  const link = openLink({
    self: 'A',
    peer: 'B',
    address,
    key,
    logger,
    ...options,
    bounds: { ...quick, closeMaxMs: 200, ...options.bounds },
  })
  onTestFinished(() => link.close())
  return { ...link, logger }
}

export const readyLink = async (address: PeerAddress, options: LinkOptions = {}) => {
  const link = startLink(address, options)
  await until(link.ready)
  return link
}

/** Fails where the link takes no question. */
export const ask = (link: Link, question: unknown): Promise<unknown> =>
  new Promise((resolve, reject) => {
    if (!link.ask(question, resolve)) reject(new Error('it was not asked'))
  })

export type RawEnd = {
  readonly socket: TLSSocket
  /** Messages that came, parsed, one for each frame. */
  readonly messages: unknown[]
  /** One frame, or what is to pass for one. */
  send(message: unknown): void
}

export const frame = (text: string): Buffer => frameOf(text, Buffer.byteLength(text))

const rawEnd = (socket: TLSSocket): RawEnd => {
  const messages: unknown[] = []
  const read = createFrameReader({
    bytesMax: 16_777_216,
    onText: (text) => {
      messages.push(JSON.parse(text))
      return true
    },
  })
  socket.on('data', (chunk: Buffer) => read(chunk))
  socket.on('error', () => undefined)
  return { socket, messages, send: (message) => socket.write(frame(JSON.stringify(message))) }
}

/** An asker that proves itself as A, and then sends what a test makes it send. */
export const rawAsker = async (address: PeerAddress, asker = 'A'): Promise<RawEnd> => {
  const ends = { asker, answerer: 'B' }
  const socket = connect({
    ...peerTls,
    ...address,
    pskCallback: () => ({ psk: preSharedKey(key, ends), identity: identityOf(ends) }),
    checkServerIdentity: () => new Error('a certificate'),
  })
  onTestFinished(() => {
    socket.destroy()
  })
  const end = rawEnd(socket)
  await once(socket, 'secureConnect')
  return end
}

/** An answerer that proves itself as B; `onAsker` is called for each connection. */
export const rawAnswerer = async (onAsker: (end: RawEnd) => void): Promise<PeerAddress> => {
  const sockets = new Set<TLSSocket>()
  const server = createServer(
    { ...peerTls, pskCallback: () => preSharedKey(key, { asker: 'A', answerer: 'B' }) },
    (socket) => {
      sockets.add(socket)
      onAsker(rawEnd(socket))
    },
  )
  server.on('tlsClientError', () => undefined)
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  onTestFinished(() => {
    for (const socket of sockets) socket.destroy()
    server.close()
  })
  const bound = server.address()
  if (bound === null || typeof bound === 'string') throw new Error('no port')
  return { host: '127.0.0.1', port: bound.port }
}

/** A port on loopback at which nothing listens. */
export const freePort = async (): Promise<number> => {
  const server = createTcpServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const bound = server.address()
  await new Promise((resolve) => server.close(resolve))
  if (bound === null || typeof bound === 'string') throw new Error('no port')
  return bound.port
}
