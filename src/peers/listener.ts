import { once } from 'node:events'
import type { Socket } from 'node:net'
import { createServer, type Server, type TLSSocket } from 'node:tls'
import type { OutageLogger } from '../event-log/outage.ts'
import { type AskerBounds, AskerConnection } from './asker-connection.ts'
import type { PeerAddress } from './link.ts'
import { createNotice, type Notice, runGuarded } from './notice.ts'
import type { AnswerPeer, ProcessId } from './peer.ts'
import { checkProofInput, type PeerKey, peerTls, preSharedKey, readIdentity } from './proof.ts'

/** Where the other processes of the installation reach this one. */
export type PeerListener = {
  /** The host as it was given, and the port it listens on. */
  readonly address: PeerAddress
  /**
   * Tells all askers, also those that connect later, that this process leaves: their links become not ready. What they
   * asked, and what they ask until they hear it, is answered as before.
   */
  tellLeaving(): void
  /** Proved ones. */
  connections(): number
  /**
   * Tells that it leaves, takes no further connection, waits up to `closeMaxMs` until everything that was passed on is
   * answered and the answers are read, and ends all connections. What an asker asks meanwhile it hears nothing of: tell
   * it earlier that this process leaves. Never rejects.
   */
  close(): Promise<void>
}

type ListenerBounds = AskerBounds & {
  /** All, proved or not. */
  readonly connectionsMax: number
  /** From a connection to its proof, in milliseconds. */
  readonly handshakeMaxMs: number
  readonly closeMaxMs: number
}

const defaultBounds: ListenerBounds = {
  connectionsMax: 256,
  handshakeMaxMs: 5_000,
  closeMaxMs: 5_000,
  // Twice what one asker asks for: each frame of it may come twice.
  unansweredMax: 40_000,
  waitingBytesMax: 16_777_216,
  silenceMs: 15_000,
}

type ListenerOptions = {
  readonly host: string
  /** 0: any that is free. */
  readonly port: number
  readonly self: ProcessId
  /** The same as of the links to it. */
  readonly key: PeerKey
  /** What it throws is logged, and the asker hears null. */
  readonly answer: AnswerPeer
  /** A process has proved itself, and was acknowledged. */
  readonly connected?: (asker: ProcessId) => void
  readonly logger: OutageLogger
  readonly bounds?: Partial<ListenerBounds>
}

/** Resolves when it listens. Rejects where it cannot. */
export const openPeerListener = async (options: ListenerOptions): Promise<PeerListener> => {
  checkProofInput(options.key, [options.self])
  const listener = new Listener(options)
  const address = await listener.listen()
  return {
    address,
    tellLeaving: () => listener.tellLeaving(),
    connections: () => listener.connections,
    close: () => listener.close(),
  }
}

class Listener {
  readonly #options: ListenerOptions
  readonly #bounds: ListenerBounds
  readonly #server: Server
  readonly #refused: Notice
  readonly #ended: Notice
  readonly #failed: Notice
  /** One for each asker: a new one ends the one before it. */
  readonly #askers = new Map<ProcessId, AskerConnection>()
  readonly #sockets = new Set<Socket>()
  /** What a handshake has found so far. Only once TLS says that it succeeded the asker is proved. */
  readonly #claims = new WeakMap<TLSSocket, ReturnType<typeof readIdentity>>()
  #isLeaving = false
  #closed: Promise<void> | undefined

  constructor(options: ListenerOptions) {
    const { logger } = options
    this.#options = options
    this.#bounds = { ...defaultBounds, ...options.bounds }
    this.#refused = createNotice(logger, 'warn', 'peers: a connection was refused')
    this.#ended = createNotice(logger, 'warn', 'peers: the connection of an asker was ended')
    this.#failed = createNotice(logger, 'error', 'peers: a question could not be answered')
    const server = createServer({
      ...peerTls,
      handshakeTimeout: this.#bounds.handshakeMaxMs,
      pskCallback: (socket, identity) => this.#keyFor(socket, identity),
    })
    server.maxConnections = this.#bounds.connectionsMax
    server.on('connection', (socket: Socket) => this.#track(socket))
    server.on('drop', () => this.#refused(new Error('too many connections')))
    server.on('tlsClientError', (error, socket) => this.#refuse(error, socket))
    server.on('secureConnection', (socket) => this.#welcome(socket))
    this.#server = server
  }

  get connections(): number {
    return this.#askers.size
  }

  async listen(): Promise<PeerAddress> {
    const { host, port } = this.#options
    // Forks of one process share every other port.
    this.#server.listen({ port, host, exclusive: true })
    await once(this.#server, 'listening')
    this.#server.on('error', (error) => this.#refused(error))
    const bound = this.#server.address()
    if (bound === null || typeof bound === 'string') throw new Error('the peer listener has no port')
    return { host, port: bound.port }
  }

  tellLeaving(): void {
    if (this.#isLeaving) return
    this.#isLeaving = true
    for (const connection of this.#askers.values()) connection.tellState('leaving')
  }

  close(): Promise<void> {
    this.#closed ??= this.#close()
    return this.#closed
  }

  async #close(): Promise<void> {
    this.tellLeaving()
    const closed = new Promise<void>((resolve) => this.#server.close(() => resolve()))
    const deadline = setTimeout(() => this.#destroyAll(), this.#bounds.closeMaxMs)
    for (const connection of this.#askers.values()) connection.finish()
    this.#destroyUnproved()
    await closed
    clearTimeout(deadline)
  }

  /** Once there is no proved one, what is left need not be waited for. */
  #destroyUnproved(): void {
    if (this.#askers.size === 0) this.#destroyAll()
  }

  #destroyAll(): void {
    for (const connection of this.#askers.values()) connection.end()
    for (const socket of this.#sockets) socket.destroy()
  }

  #track(socket: Socket): void {
    this.#sockets.add(socket)
    socket.once('close', () => this.#sockets.delete(socket))
  }

  #keyFor(socket: TLSSocket, identity: string): Buffer | null {
    const claim = readIdentity(identity, this.#options.self)
    this.#claims.set(socket, claim)
    if ('refused' in claim) return null
    try {
      return preSharedKey(this.#options.key, { asker: claim.asker, answerer: this.#options.self })
    } catch (error) {
      this.#claims.set(socket, { refused: error instanceof Error ? error.message : 'there is no key' })
      return null
    }
  }

  #refuse(error: Error, socket: TLSSocket): void {
    const claim = this.#claims.get(socket)
    this.#refused(claim !== undefined && 'refused' in claim ? new Error(claim.refused) : error)
    socket.destroy()
  }

  /** The connection before it is ended first, and only then the asker learns that this one is there. */
  #welcome(socket: TLSSocket): void {
    const claim = this.#claims.get(socket)
    // A session of TLS that is taken up again would name no one.
    if (claim === undefined || 'refused' in claim || this.#closed !== undefined) {
      this.#refuse(new Error('no proof'), socket)
      return
    }
    const { asker } = claim
    this.#askers.get(asker)?.end()
    const connection: AskerConnection = new AskerConnection({
      socket,
      asker,
      answer: this.#options.answer,
      bounds: this.#bounds,
      failed: this.#failed,
      onEnd: (why) => {
        if (this.#askers.get(asker) === connection) this.#askers.delete(asker)
        if (why !== null) this.#ended(why, { asker })
        if (this.#closed !== undefined) this.#destroyUnproved()
      },
    })
    this.#askers.set(asker, connection)
    connection.tellState(this.#isLeaving ? 'leaving' : 'taking')
    runGuarded(this.#failed, () => this.#options.connected?.(asker))
  }
}
