/**
 * Messages between a process and one that it forked, over the channel that Node.js gives them. Everything is JSON, arrives in
 * order, and is lost where the other end is gone. Waiting for an answer has no end of its own: callers bound it.
 */
export type Channel = {
  isOpen(): boolean
  /** Resolves when it was handed to the system, or the other end is gone. */
  tell(kind: string, body: unknown): Promise<void>
  /** Rejects when the other end is gone, or could not answer. */
  ask(kind: string, body: unknown): Promise<unknown>
  /** One listener for each kind. */
  hear(kind: string, listener: (body: unknown) => void): void
  answer(kind: string, reply: (body: unknown) => unknown): void
  /** Called once, when the other end is gone; at once where it is gone already. */
  onClosed(run: () => void): void
}

/** Either end: `process` in the forked process, its `ChildProcess` in the other one. */
export type ChannelEnd = {
  readonly connected: boolean
  send?(message: object, sent: (error: Error | null) => void): boolean
  on(event: 'message', listener: (message: unknown) => void): unknown
  once(event: 'disconnect', listener: () => void): unknown
}

type Message =
  | { readonly kind: string; readonly number?: number; readonly body: unknown }
  | { readonly answers: number; readonly body: unknown }
  | { readonly answers: number; readonly failure: string }
type Asked = { readonly resolve: (body: unknown) => void; readonly reject: (error: Error) => void }

export const channelOf = (end: ChannelEnd): Channel => {
  const listeners = new Map<string, (body: unknown, number: number | undefined) => void>()
  const asked = new Map<number, Asked>()
  const whenClosed: (() => void)[] = []
  let last = 0

  // Without a callback a message that cannot be sent would be an error event of the process.
  const send = (message: Message, sent = (): void => undefined): void => {
    if (end.connected && end.send !== undefined) end.send({ enrichment: message }, () => sent())
    else sent()
  }

  const settle = (number: number, settled: (one: Asked) => void): void => {
    const one = asked.get(number)
    asked.delete(number)
    if (one !== undefined) settled(one)
  }

  end.on('message', (received: unknown) => {
    const message = messageIn(received)
    if (message === null) return
    if ('kind' in message) listeners.get(message.kind)?.(message.body, message.number)
    else if ('body' in message) settle(message.answers, ({ resolve }) => resolve(message.body))
    else settle(message.answers, ({ reject }) => reject(new Error(message.failure)))
  })
  end.once('disconnect', () => {
    for (const { reject } of asked.values()) reject(new Error('the other process is gone'))
    asked.clear()
    for (const run of whenClosed.splice(0)) run()
  })

  return {
    isOpen: () => end.connected,
    tell: (kind, body) => new Promise((resolve) => send({ kind, body }, resolve)),
    ask: (kind, body) => {
      if (!end.connected) return Promise.reject(new Error('the other process is gone'))
      const { promise, resolve, reject } = Promise.withResolvers<unknown>()
      const number = ++last
      asked.set(number, { resolve, reject })
      send({ kind, number, body })
      return promise
    },
    hear: (kind, listener) => void listeners.set(kind, listener),
    answer: (kind, reply) =>
      void listeners.set(kind, (body, number) => {
        if (number === undefined) return
        const refuse = (error: unknown): void =>
          send({ answers: number, failure: error instanceof Error ? error.message : String(error) })
        try {
          const answer = reply(body)
          // What is known at once is sent at once.
          if (answer instanceof Promise)
            answer.then((later) => send({ answers: number, body: later }), refuse)
          else send({ answers: number, body: answer })
        } catch (error) {
          refuse(error)
        }
      }),
    onClosed: (run) => void (end.connected ? whenClosed.push(run) : run()),
  }
}

/** Others send over the same channel too, such as `node --watch`. */
const messageIn = (received: unknown): Message | null => {
  const message: unknown = Object(received).enrichment
  return typeof message === 'object' && message !== null ? (message as Message) : null
}
