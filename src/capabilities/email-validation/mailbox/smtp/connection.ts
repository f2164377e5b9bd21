/** One TCP connection to a mail server. It sends commands and matches the replies in order, without interpreting them. */
import { connect, isIP, type Socket } from 'node:net'
import { connect as connectTls } from 'node:tls'
import { afterMs } from '../../../../concurrency/deadline.ts'
import { createReplyParser, type ReplyParser, type SmtpReply } from './reply.ts'

/**
 * `connect`: no TCP connection; `timeout`: a deadline passed on an open connection; `closed`: the other side closed the connection;
 * `protocol`: the server does not follow SMTP; `tls`: the server offered TLS, but TLS failed.
 */
type SmtpFailureKind = 'connect' | 'timeout' | 'closed' | 'protocol' | 'tls'

/** The reason why a connection can no longer be used. */
export class SmtpFailure extends Error {
  override readonly name = 'SmtpFailure'
  readonly kind: SmtpFailureKind
  constructor(kind: SmtpFailureKind, message: string, options?: ErrorOptions) {
    super(message, options)
    this.kind = kind
  }
}

/** A reply for each command, or fewer replies and the failure. */
export type Exchange = { readonly replies: readonly SmtpReply[]; readonly failure: SmtpFailure | null }

type Expected = {
  readonly count: number
  readonly replies: SmtpReply[]
  /** True if TLS follows the reply. Any further octet of plain text was then inserted by a third party (RFC 3207 §6). */
  readonly plainTextEnds: boolean
  /** The default is `replyTimeoutMs`. */
  readonly timeoutMs?: number
  readonly settle: (exchange: Exchange) => void
}

export type DialOptions = {
  /** An IP address, so that we connect to the address that the guard has checked. */
  readonly address: string
  readonly port: number
  readonly connectTimeoutMs: number
  /** The time limit for each reply, from the moment when it is the next reply to arrive. Slowly arriving octets do not extend the limit. */
  readonly replyTimeoutMs: number
}

const quitTimeoutMs = 1_000

const hostName = /^[a-z0-9](?:[a-z0-9._-]{0,251}[a-z0-9])?$/i

/** @throws SmtpFailure of kind `connect`. */
export const dial = (
  { address, port, connectTimeoutMs, replyTimeoutMs }: DialOptions,
  signal: AbortSignal,
): Promise<SmtpConnection> =>
  new Promise((resolve, reject) => {
    if (isIP(address) === 0 || signal.aborted)
      return reject(new SmtpFailure('connect', 'no IP address to connect to, or no time left'))
    const socket = connect({ host: address, port, noDelay: true })
    const refuse = (cause?: unknown): void => {
      settled()
      socket.destroy()
      reject(new SmtpFailure('connect', 'no connection', cause instanceof Error ? { cause } : undefined))
    }
    const cancel = afterMs(connectTimeoutMs, refuse)
    const settled = (): void => {
      cancel()
      signal.removeEventListener('abort', refuse)
    }
    signal.addEventListener('abort', refuse)
    socket.on('error', refuse)
    socket.once('connect', () => {
      settled()
      socket.off('error', refuse)
      resolve(new SmtpConnection(socket, replyTimeoutMs))
    })
  })

export class SmtpConnection {
  readonly closed: Promise<void>
  #socket: Socket
  #parser: ReplyParser = createReplyParser()
  #failure: SmtpFailure | null = null
  #cancelTimer: (() => void) | undefined
  readonly #expected: Expected[] = []
  readonly #replyTimeoutMs: number

  constructor(socket: Socket, replyTimeoutMs: number) {
    this.#socket = socket
    this.#replyTimeoutMs = replyTimeoutMs
    this.closed = new Promise((resolve) => socket.once('close', () => resolve()))
    // These handlers stay in place when TLS is started on top of the socket.
    socket.on('error', (cause) => this.fail(new SmtpFailure('closed', 'the connection broke', { cause })))
    socket.on('close', () => this.fail(new SmtpFailure('closed', 'the server closed the connection')))
    socket.on('data', this.#read)
  }

  get usable(): boolean {
    return this.#failure === null
  }

  /** Waits for the greeting, which the server sends before any command. */
  greeting(timeoutMs: number): Promise<Exchange> {
    return this.#expect({ count: 1, plainTextEnds: false, timeoutMs })
  }

  /** Writes all commands together and waits for a reply to each. Never rejects. */
  exchange(commands: readonly string[]): Promise<Exchange> {
    return this.#expect({ count: commands.length, plainTextEnds: false }, commands.join(''))
  }

  /**
   * Sends STARTTLS and, after 220, starts TLS. Resolves with the reply. The certificate is not verified, because the alternative would be
   * plain text without TLS.
   * @throws SmtpFailure
   */
  async startTls(command: string, serverName: string): Promise<SmtpReply> {
    const { replies, failure } = await this.#expect({ count: 1, plainTextEnds: true }, command)
    const [reply] = replies
    if (reply === undefined || failure !== null)
      throw failure ?? new SmtpFailure('closed', 'no reply to STARTTLS')
    if (reply.code !== 220) return reply
    await this.#encrypt(serverName)
    return reply
  }

  /**
   * Sends QUIT and waits until the server closes the connection, at most `quitTimeoutMs`. A server counts the connection until it closes
   * it, so if we closed it after the reply, a server that allows one connection could refuse our next one.
   */
  quit(command: string): void {
    if (!this.usable) return
    const timer = setTimeout(() => this.#socket.destroy(), quitTimeoutMs)
    void this.closed.then(() => clearTimeout(timer))
    void this.exchange([command])
  }

  /** Ends the connection; every waiting caller gets the failure. */
  fail(failure: SmtpFailure): void {
    if (this.#failure !== null) return
    this.#failure = failure
    this.#cancelTimer?.()
    this.#socket.destroy()
    for (const { replies, settle } of this.#expected.splice(0)) settle({ replies, failure })
  }

  #expect(wanted: Pick<Expected, 'count' | 'plainTextEnds' | 'timeoutMs'>, text = ''): Promise<Exchange> {
    if (this.#failure !== null) return Promise.resolve({ replies: [], failure: this.#failure })
    return new Promise((settle) => {
      this.#expected.push({ ...wanted, replies: [], settle })
      if (this.#expected.length === 1) this.#watch()
      if (text !== '') this.#socket.write(text)
    })
  }

  #watch(): void {
    this.#cancelTimer?.()
    const [next] = this.#expected
    if (next === undefined) return
    this.#cancelTimer = afterMs(next.timeoutMs ?? this.#replyTimeoutMs, () =>
      this.fail(new SmtpFailure('timeout', 'no reply in time')),
    )
  }

  readonly #read = (octets: Buffer): void => {
    try {
      const replies = this.#parser.push(octets)
      for (const [index, reply] of replies.entries()) this.#take(reply, index === replies.length - 1)
    } catch (cause) {
      this.fail(new SmtpFailure('protocol', 'the server does not follow SMTP', { cause }))
    }
  }

  #take(reply: SmtpReply, last: boolean): void {
    if (this.#failure !== null) return
    const [next] = this.#expected
    next?.replies.push(reply)
    const failure = this.#violated(next, { reply, last })
    if (failure !== null || next === undefined) {
      this.fail(failure ?? new SmtpFailure('protocol', 'the server sent a reply without a command'))
      return
    }
    if (next.plainTextEnds && reply.code === 220) {
      // Reading must stop immediately, because the next octets belong to TLS.
      this.#socket.off('data', this.#read)
      this.#socket.pause()
    }
    if (next.replies.length === next.count) {
      this.#expected.shift()
      next.settle({ replies: next.replies, failure: null })
    }
    this.#watch()
  }

  #violated(
    next: Expected | undefined,
    { reply, last }: { reply: SmtpReply; last: boolean },
  ): SmtpFailure | null {
    // A server may send a reply without a command only to close the connection (RFC 5321 §3.8).
    if (reply.code === 421) return new SmtpFailure('closed', 'the server is closing the connection')
    const plainTextFollows = !last || this.#parser.unfinished()
    return next?.plainTextEnds === true && reply.code === 220 && plainTextFollows
      ? new SmtpFailure('protocol', 'plain text follows the reply to STARTTLS')
      : null
  }

  #encrypt(serverName: string): Promise<void> {
    return new Promise((resolve, reject) => {
      const plain = this.#socket
      const secure = connectTls({
        socket: plain,
        rejectUnauthorized: false,
        // The name comes from the DNS and can be anything, so it is sent only if it is valid for SNI.
        ...(hostName.test(serverName) && isIP(serverName) === 0 ? { servername: serverName } : {}),
      })
      this.#socket = secure
      let standing = false
      const end = (message: string, cause?: Error): void => {
        cancel()
        const failure = new SmtpFailure(
          standing ? 'closed' : 'tls',
          message,
          cause === undefined ? undefined : { cause },
        )
        this.fail(failure)
        plain.destroy()
        reject(failure)
      }
      const cancel = afterMs(this.#replyTimeoutMs, () => end('the TLS handshake took too long'))
      secure.on('error', (cause) => end('the TLS connection broke', cause))
      secure.on('close', () => end('the TLS connection was closed'))
      secure.once('secureConnect', () => {
        cancel()
        standing = true
        // Text received before encryption is discarded, including a partial reply.
        this.#parser = createReplyParser()
        secure.on('data', this.#read)
        resolve()
      })
    })
  }
}
