import type { TLSSocket } from 'node:tls'
import { Connection, readCarried } from './connection.ts'
import { answerFrameBytesMax, questionFrameBytesMax } from './frames.ts'
import { type Notice, runGuarded } from './notice.ts'
import type { AnswerPeer, Asker, ProcessId } from './peer.ts'

export type AskerBounds = {
  /** Questions of one connection that are not answered yet. An asker with more is disconnected. */
  readonly unansweredMax: number
  /** Bytes of answers that wait to be written. An asker that does not read them is disconnected. */
  readonly waitingBytesMax: number
  /** A connection on which nothing comes for so long, also no ping, is ended. In milliseconds. */
  readonly silenceMs: number
}

type AskerConnectionOptions = {
  readonly socket: TLSSocket
  /** Proved. */
  readonly asker: ProcessId
  readonly answer: AnswerPeer
  readonly bounds: AskerBounds
  /** Tells what `answer`, or a function given to `onGone`, threw, and which answers cannot be sent. */
  readonly failed: Notice
  readonly onEnd: (why: Error | null) => void
}

const unread = 'it does not read its answers'

/** One connection of one asker, proved. It acts on nothing in the turn in which it is made. */
export class AskerConnection {
  readonly #options: AskerConnectionOptions
  readonly #connection: Connection
  readonly #asker: Asker
  #gone: (() => void)[] | null = []
  #unanswered = 0
  #settled: (() => void) | undefined

  constructor(options: AskerConnectionOptions) {
    this.#options = options
    this.#asker = {
      id: options.asker,
      onGone: (run) => {
        if (this.#gone === null) runGuarded(options.failed, run)
        else this.#gone.push(run)
      },
    }
    this.#connection = new Connection({
      socket: options.socket,
      carries: 'answers',
      sentFrameBytesMax: answerFrameBytesMax,
      readFrameBytesMax: questionFrameBytesMax,
      silenceMs: options.bounds.silenceMs,
      onMessage: (message) => this.#onMessage(message),
      onEnd: (why) => this.#onEnd(why),
    })
  }

  tellState(state: 'taking' | 'leaving'): void {
    this.#connection.send(['state', state])
  }

  /** Once this returns, nothing more of it is acted on. */
  end(): void {
    this.#connection.end(null)
  }

  /** Ends it once everything that was passed on is answered, and the answers are read. */
  finish(): void {
    if (this.#unanswered === 0) this.#connection.finish()
    else this.#settled = () => this.#connection.finish()
  }

  #onMessage(message: readonly unknown[]): string | null {
    if (message[0] === 'ping') {
      this.#connection.send(['pong'])
      return this.#isSlow() ? unread : null
    }
    if (message[0] !== 'questions') return 'a frame of an unknown kind'
    return readCarried(message, (id, question) => this.#pass(id, question))
  }

  #pass(id: number, question: unknown): boolean {
    const { answer, bounds, failed } = this.#options
    if (this.#unanswered >= bounds.unansweredMax) this.#connection.end(new Error('too many questions'))
    if (this.#connection.isEnded) return false
    this.#unanswered++
    let isAnswered = false
    const answerOnce = (value: unknown): void => {
      if (isAnswered) return
      isAnswered = true
      this.#answer(id, value)
    }
    try {
      answer(question, this.#asker, answerOnce)
    } catch (error) {
      failed(error)
      answerOnce(null)
    }
    return true
  }

  #answer(id: number, value: unknown): void {
    this.#unanswered--
    if (this.#connection.isEnded) return
    if (!this.#connection.carry(id, this.#jsonOf(value))) this.#connection.carry(id, 'null')
    if (this.#isSlow()) this.#connection.end(new Error(unread))
    else if (this.#unanswered === 0) this.#settled?.()
  }

  #isSlow(): boolean {
    return this.#connection.waitingBytes > this.#options.bounds.waitingBytesMax
  }

  /** `null` where there is none: the asker is not left to wait. */
  #jsonOf(value: unknown): string {
    try {
      return JSON.stringify(value) ?? 'null'
    } catch (error) {
      this.#options.failed(error)
      return 'null'
    }
  }

  #onEnd(why: Error | null): void {
    const gone = this.#gone ?? []
    this.#gone = null
    for (const run of gone) runGuarded(this.#options.failed, run)
    this.#options.onEnd(why)
  }
}
