import type { TLSSocket } from 'node:tls'
import { createFrameReader, frameOf } from './frames.ts'

/**
 * One connection between two processes, as both ends of it work. Frames are arrays that begin with their kind:
 *
 * `["questions", id, question, id, question, …]` and `["ping"]` from the asker,
 * `["answers", id, answer, …]` (null: there will be none), `["pong"]`, and `["state", "taking" | "leaving"]` from the
 * answerer. Its first frame is a state: it says that no earlier connection of the same asker is acted on any more.
 */
type Carries = 'questions' | 'answers'

type ConnectionOptions = {
  readonly socket: TLSSocket
  /** What this end sends. */
  readonly carries: Carries
  /** In bytes, of a frame that is sent and of one that is read. */
  readonly sentFrameBytesMax: number
  readonly readFrameBytesMax: number
  /** A connection on which nothing came for so long is ended; between this and a third more, in milliseconds. */
  readonly silenceMs: number
  /** A frame in which something is wrong ends the connection: return what. Null: it was understood. */
  readonly onMessage: (message: readonly unknown[]) => string | null
  /** Called once. Null: one of the two ends wanted it, or the network did. */
  readonly onEnd: (why: Error | null) => void
}

/** Silence is counted in such parts, one timer each: a process that was frozen itself finds one part over, not all. */
const silenceParts = 3
/** What a connection that is finished may take until its other end has read all of it, in milliseconds. */
const finishMaxMs = 1_000

/** So many answers leave as soon as no more come with them: whoever waits for them has work to do meanwhile. */
const answersAtOnce = 4

export class Connection {
  readonly #options: ConnectionOptions
  readonly #socket: TLSSocket
  readonly #prefix: string
  readonly #silence: NodeJS.Timeout
  #finish: NodeJS.Timeout | undefined
  #quietParts = 0
  /** Ids and texts of what is sent in this turn. */
  #gathered: string[] = []
  #gatheredBytes = 0
  #flushing: NodeJS.Immediate | undefined
  #ended = false

  /** The socket may still be connecting, and in its handshake. */
  constructor(options: ConnectionOptions) {
    const { socket, carries, silenceMs } = options
    this.#options = options
    this.#socket = socket
    this.#prefix = `["${carries}",`
    this.#silence = setInterval(() => this.#tick(), Math.ceil(silenceMs / silenceParts)).unref()
    const read = createFrameReader({
      bytesMax: options.readFrameBytesMax,
      onText: (text) => this.#onText(text),
    })
    socket.setNoDelay(true)
    socket.on('data', (chunk: Buffer) => {
      this.#quietParts = 0
      if (this.#ended || this.#finish !== undefined) return
      const fault = read(chunk)
      if (fault !== null) this.end(new Error(fault))
    })
    socket.on('error', (error) => this.end(error))
    socket.on('end', () => this.end(null))
    socket.on('close', () => this.end(null))
  }

  /** Or about to: it takes and gives nothing more. */
  get isEnded(): boolean {
    return this.#ended || this.#finish !== undefined
  }

  /** Bytes that this end has not handed to the operating system. */
  get waitingBytes(): number {
    return this.#gatheredBytes + this.#socket.writableLength
  }

  /**
   * Sends a question or an answer, given as JSON, in a frame with all others of this turn of the event loop. False: it
   * is over the bound of a frame, or the connection has ended.
   */
  carry(id: number, json: string): boolean {
    if (this.isEnded) return false
    const idText = String(id)
    const bytes = idText.length + Buffer.byteLength(json) + 2
    const bytesMax = this.#options.sentFrameBytesMax - this.#prefix.length
    if (bytes > bytesMax) return false
    if (this.#gatheredBytes + bytes > bytesMax) this.#flush()
    this.#gathered.push(idText, json)
    this.#gatheredBytes += bytes
    // The answers of an append come one after the other, ahead of the calls that this process itself answers then.
    if (this.#options.carries === 'answers' && this.#gathered.length === 2 * answersAtOnce)
      queueMicrotask(() => this.#flush())
    // After all that the operating system had for this turn. A microtask would come after each callback of it.
    this.#flushing ??= setImmediate(() => this.#flush())
    return true
  }

  /** Sends a short frame of its own now, after all that was gathered. */
  send(message: readonly [string, ...string[]]): void {
    if (this.isEnded) return
    this.#flush()
    const text = JSON.stringify(message)
    this.#socket.write(frameOf(text, Buffer.byteLength(text)))
  }

  /** Ends it once the other end has read what was sent; nothing that still comes is acted on. */
  finish(): void {
    if (this.isEnded) return
    this.#flush()
    this.#finish = setTimeout(() => this.end(null), finishMaxMs)
    this.#socket.end()
  }

  /** Ends it now. Once this returns, no frame of it is acted on any more. */
  end(why: Error | null): void {
    if (this.#ended) return
    this.#ended = true
    clearInterval(this.#silence)
    clearTimeout(this.#finish)
    if (this.#flushing !== undefined) clearImmediate(this.#flushing)
    this.#gathered = []
    this.#gatheredBytes = 0
    this.#socket.destroy()
    this.#options.onEnd(why)
  }

  #flush(): void {
    if (this.#flushing !== undefined) clearImmediate(this.#flushing)
    this.#flushing = undefined
    if (this.#gathered.length === 0) return
    // Each part was counted with the two characters that follow its id and itself.
    const text = `${this.#prefix}${this.#gathered.join(',')}]`
    this.#socket.write(frameOf(text, this.#prefix.length + this.#gatheredBytes))
    this.#gathered = []
    this.#gatheredBytes = 0
  }

  /** True: read on. */
  #onText(text: string): boolean {
    const message = parsed(text)
    const fault = message === null ? 'a frame that is no message' : this.#options.onMessage(message)
    if (fault !== null) this.end(new Error(fault))
    return !this.isEnded
  }

  #tick(): void {
    this.#quietParts++
    if (this.#quietParts > silenceParts)
      this.end(new Error(`nothing heard for ${this.#options.silenceMs} ms`))
    else if (this.#options.carries === 'questions' && !this.#socket.connecting) this.send(['ping'])
  }
}

/** The parser's own error would show some of the text. */
const parsed = (text: string): readonly unknown[] | null => {
  try {
    const message: unknown = JSON.parse(text)
    return Array.isArray(message) ? message : null
  } catch {
    return null
  }
}

/**
 * Reads what a frame of questions or answers carries; `take` is called in order, and says whether to go on. Null: it
 * has the right form. Otherwise what is wrong, and `take` was called for none of it.
 */
export const readCarried = (
  message: readonly unknown[],
  take: (id: number, value: unknown) => boolean,
): string | null => {
  const ids: number[] = []
  for (let at = 1; at < message.length; at += 2) {
    const id = message[at]
    if (typeof id !== 'number' || !Number.isSafeInteger(id) || id < 1) return 'a frame with a wrong id'
    ids.push(id)
  }
  if (message.length !== 1 + 2 * ids.length) return 'a frame with an id alone'
  for (const [index, id] of ids.entries()) if (!take(id, message[2 + 2 * index])) break
  return null
}
