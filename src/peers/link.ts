import { connect, type PSKCallbackNegotation, type TLSSocket } from 'node:tls'
import { createOutage, type Outage, type OutageLogger } from '../event-log/outage.ts'
import { Connection, readCarried } from './connection.ts'
import { answerFrameBytesMax, questionFrameBytesMax } from './frames.ts'
import { createNotice, type Notice, runGuarded } from './notice.ts'
import type { Peer, ProcessId } from './peer.ts'
import { checkProofInput, identityOf, type PeerKey, peerTls, preSharedKey } from './proof.ts'

/** Where a process can be reached by its peers. */
export type PeerAddress = { readonly host: string; readonly port: number }

/** A connection to one other process that is made again whenever it ends, until `close`. */
export type Link = Peer & {
  /** Connected, proved both ways, acknowledged, and its peer does not leave. Where it is not, `ask` returns false. */
  ready(): boolean
  /** The first attempt has ended, well or not. A caller need not wait for a peer that refuses. */
  tried(): boolean
  /** `run` is called after each change of `ready()` and of `tried()`. */
  onChange(run: () => void): void
  /**
   * From now on it is not ready, and does not connect again. What is under way may be answered for `closeMaxMs` more;
   * then the connection ends, and the rest is heard as null. Resolves when it has ended. Never rejects.
   */
  close(): Promise<void>
}

type LinkBounds = {
  /** From the attempt to connect to the acknowledgement, in milliseconds. */
  readonly connectMaxMs: number
  /** The first pause between two attempts, doubled up to the second with each that fails, in milliseconds. */
  readonly pauseMs: number
  readonly pauseMaxMs: number
  /** Questions that are not answered yet. */
  readonly underWayMax: number
  /** Bytes of questions that wait to be written. */
  readonly waitingBytesMax: number
  /** A connection on which nothing comes for so long, in spite of pings, is ended. */
  readonly silenceMs: number
  readonly closeMaxMs: number
}

const defaultBounds: LinkBounds = {
  connectMaxMs: 5_000,
  pauseMs: 50,
  pauseMaxMs: 2_000,
  underWayMax: 20_000,
  waitingBytesMax: 8_388_608,
  silenceMs: 15_000,
  closeMaxMs: 5_000,
}

type LinkOptions = {
  readonly self: ProcessId
  readonly peer: ProcessId
  readonly address: PeerAddress
  /** The secret of the installation for this purpose: at least 32 bytes, the same in all its processes. */
  readonly key: PeerKey
  readonly logger: OutageLogger
  readonly bounds?: Partial<LinkBounds>
}

type Heard = (answer: unknown) => void

/** Begins to connect, and does not wait for it. `ask` throws a `TypeError` for what is no JSON value, and for null. */
export const openLink = (options: LinkOptions): Link => {
  checkProofInput(options.key, [options.self, options.peer])
  const dialler = new Dialler(options)
  dialler.dial()
  return {
    id: options.peer,
    ask: (question, heard) => dialler.ask(question, heard),
    ready: () => dialler.isReady,
    tried: () => dialler.isTried,
    onChange: (run) => dialler.onChange(run),
    close: () => dialler.close(),
  }
}

class Dialler {
  readonly #options: LinkOptions
  readonly #bounds: LinkBounds
  readonly #outage: Outage
  readonly #failed: Notice
  readonly #changed: (() => void)[] = []
  readonly #closed = Promise.withResolvers<void>()
  #connection: Connection | null = null
  #retry: NodeJS.Timeout | undefined
  #attempts = 0
  /** When this connection was; its first frame that tells a state is the acknowledgement. */
  #acknowledgedMs: number | undefined
  #isClosing = false
  isReady = false
  isTried = false
  /** By the id of the question. Ids are used once in the life of a link. */
  #underWay = new Map<number, Heard>()
  #lastId = 0

  constructor(options: LinkOptions) {
    this.#options = options
    this.#bounds = { ...defaultBounds, ...options.bounds }
    const { logger, peer } = options
    this.#outage = createOutage({ logger, what: `peers: the connection to ${peer}` })
    this.#failed = createNotice(logger, 'error', 'peers: what was to hear an answer threw')
  }

  onChange(run: () => void): void {
    this.#changed.push(run)
  }

  ask(question: unknown, heard: Heard): boolean {
    const { underWayMax, waitingBytesMax } = this.#bounds
    if (!this.isReady || this.#connection === null || this.#underWay.size >= underWayMax) return false
    if (this.#connection.waitingBytes > waitingBytesMax) return false
    const json = JSON.stringify(question) ?? 'null'
    if (json === 'null') throw new TypeError('a question is a JSON value, and not null')
    const id = this.#lastId + 1
    if (!this.#connection.carry(id, json)) return false
    this.#lastId = id
    this.#underWay.set(id, heard)
    return true
  }

  /** Also an address that is none is one that cannot be reached: addresses come from others. */
  dial(): void {
    try {
      this.#dial()
    } catch (error) {
      this.#onEnd(error instanceof Error ? error : new Error('it cannot be dialled'))
    }
  }

  #dial(): void {
    const { self, peer, key, address } = this.#options
    const ends = { asker: self, answerer: peer }
    const proof: PSKCallbackNegotation = { psk: preSharedKey(key, ends), identity: identityOf(ends) }
    const socket = connect({
      ...peerTls,
      host: address.host,
      port: address.port,
      pskCallback: () => proof,
      // Only called for a certificate: none is a proof here, whoever signed it.
      checkServerIdentity: () => new Error('a certificate is no proof'),
    })
    const { connectMaxMs } = this.#bounds
    const deadline = setTimeout(
      () => socket.destroy(new Error(`no acknowledgement within ${connectMaxMs} ms`)),
      connectMaxMs,
    )
    this.#connection = this.#connectionOver(socket, deadline)
  }

  #connectionOver(socket: TLSSocket, deadline: NodeJS.Timeout): Connection {
    let isProved = false
    // The shared key is used as TLS uses that of an earlier session.
    socket.once('secureConnect', () => {
      isProved = socket.isSessionReused()
    })
    return new Connection({
      socket,
      carries: 'questions',
      sentFrameBytesMax: questionFrameBytesMax,
      readFrameBytesMax: answerFrameBytesMax,
      silenceMs: this.#bounds.silenceMs,
      onMessage: (message) => {
        if (!isProved) return 'a frame before the proof'
        if (message[0] === 'state') clearTimeout(deadline)
        return this.#onMessage(message)
      },
      onEnd: (why) => {
        clearTimeout(deadline)
        this.#onEnd(why)
      },
    })
  }

  #onMessage(message: readonly unknown[]): string | null {
    const [kind, state] = message
    if (kind === 'answers') return readCarried(message, (id, answer) => this.#hear(id, answer))
    if (kind === 'pong') return null
    if (kind !== 'state') return 'a frame of an unknown kind'
    this.#outage.works()
    this.#acknowledgedMs ??= performance.now()
    this.#setReady(state === 'taking' && !this.#isClosing)
    return null
  }

  /** An answer to a question that is not under way is one that was heard before. */
  #hear(id: number, answer: unknown): boolean {
    const heard = this.#underWay.get(id)
    if (heard !== undefined) {
      this.#underWay.delete(id)
      runGuarded(this.#failed, () => heard(answer))
    }
    if (this.#isClosing && this.#underWay.size === 0) this.#connection?.finish()
    return this.#connection !== null
  }

  #onEnd(why: Error | null): void {
    // A peer that acknowledges and hangs up each time is no better than one that is not there.
    const livedMs = performance.now() - (this.#acknowledgedMs ?? Number.POSITIVE_INFINITY)
    if (livedMs >= this.#bounds.pauseMaxMs) this.#attempts = 0
    this.#acknowledgedMs = undefined
    this.#connection = null
    if (why !== null && !this.#isClosing) this.#outage.failed(why)
    const unheard = this.#underWay
    this.#underWay = new Map()
    this.#setReady(false)
    for (const heard of unheard.values()) runGuarded(this.#failed, () => heard(null))
    if (this.#isClosing) this.#closed.resolve()
    else this.#dialLater()
  }

  #dialLater(): void {
    const { pauseMs, pauseMaxMs } = this.#bounds
    const pause = Math.min(pauseMs * 2 ** Math.min(this.#attempts, 16), pauseMaxMs)
    this.#attempts++
    this.#retry = setTimeout(() => this.dial(), pause * (0.5 + Math.random() / 2))
  }

  #setReady(ready: boolean): void {
    if (ready === this.isReady && this.isTried) return
    this.isReady = ready
    this.isTried = true
    for (const run of this.#changed) runGuarded(this.#failed, run)
  }

  close(): Promise<void> {
    if (this.#isClosing) return this.#closed.promise
    this.#isClosing = true
    clearTimeout(this.#retry)
    const connection = this.#connection
    this.#setReady(false)
    if (connection === null) this.#closed.resolve()
    else if (this.#acknowledgedMs === undefined) connection.end(null)
    else if (this.#underWay.size === 0) connection.finish()
    else {
      const deadline = setTimeout(() => connection.end(null), this.#bounds.closeMaxMs)
      void this.#closed.promise.then(() => clearTimeout(deadline))
    }
    return this.#closed.promise
  }
}
