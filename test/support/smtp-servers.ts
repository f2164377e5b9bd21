/** A scripted mail server on loopback. It follows the protocol unless a test makes it misbehave. */
import { createServer, type Server, type Socket } from 'node:net'
import { createSecureContext, TLSSocket } from 'node:tls'
import { renewedCertificate } from './certificate.ts'

export type Conversation = {
  /** The number of the connection to this server, from 1. */
  readonly number: number
  /** Every line that the client sent, without its line end. */
  readonly said: string[]
  secure: boolean
  /** Whether the connection counts for the server: until the client leaves, or the server closes it after QUIT. */
  open: boolean
  /** Transactions started, RCPT commands in the current transaction, and RCPT commands in total. */
  transactions: number
  recipients: number
  recipientsInAll: number
  inTransaction: boolean
  cut(): void
}

export type SmtpScript = {
  /** The text sent on connection, with line ends; null for nothing. */
  readonly greeting?: string | null | ((conversation: Conversation) => string | null)
  /** The extensions that EHLO lists. A second list applies after STARTTLS. */
  readonly offers?: readonly string[]
  readonly offersWhenSecure?: readonly string[]
  /** The reply to a recipient. Default: 250. */
  readonly recipient?: (mailbox: string, conversation: Conversation) => string
  /** The reply to any command, with line ends; null for silence; undefined for the default reply. */
  readonly reply?: (command: string, conversation: Conversation) => string | null | undefined
  /** What follows STARTTLS: TLS, octets that are not TLS, or a reply with injected plain text. */
  readonly tls?: 'works' | 'broken' | 'injected'
  /** How octets are written. Default: in one piece. */
  readonly write?: (socket: Socket, text: string) => void
  readonly thinkMs?: number
  /** The time from the reply to QUIT until the server closes the connection. Postfix counts the connection during this time. */
  readonly closeMs?: number
}

export type SmtpServer = {
  readonly port: number
  readonly conversations: readonly Conversation[]
  /** The number of open conversations, and the highest number so far. */
  readonly open: () => number
  readonly openMax: () => number
  /** The recipients of all RCPT commands, in order, over all connections. */
  readonly recipients: () => string[]
  close(): Promise<void>
}

const standard = ['PIPELINING', 'SIZE 10240000', 'ENHANCEDSTATUSCODES', '8BITMIME', 'SMTPUTF8']

export const startSmtpServer = async (script: SmtpScript = {}): Promise<SmtpServer> => {
  const conversations: Conversation[] = []
  const sockets = new Set<Socket>()
  const open = (): number => conversations.filter((one) => one.open).length
  let openMax = 0
  const server = createServer((socket) => {
    sockets.add(socket)
    const conversation: Conversation = {
      number: conversations.length + 1,
      said: [],
      secure: false,
      open: true,
      transactions: 0,
      recipients: 0,
      recipientsInAll: 0,
      inTransaction: false,
      cut: () => socket.destroy(),
    }
    conversations.push(conversation)
    openMax = Math.max(openMax, open())
    socket.on('close', () => {
      sockets.delete(socket)
      // A server notices late that a client has left.
      setTimeout(() => {
        conversation.open = false
      }, script.closeMs ?? 0)
    })
    converse(socket, conversation, script)
    const { greeting = '220 mx.test ESMTP\r\n' } = script
    const text = typeof greeting === 'function' ? greeting(conversation) : greeting
    if (text !== null) write(socket, text, script)
  })
  const port = await listen(server)
  return {
    port,
    conversations,
    open,
    openMax: () => openMax,
    recipients: () =>
      conversations.flatMap(({ said }) => said.map(recipientOf).filter((mailbox) => mailbox !== null)),
    close: async () => {
      for (const socket of sockets) socket.destroy()
      await new Promise((resolve) => server.close(resolve))
    },
  }
}

export const listen = async (server: Server): Promise<number> => {
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject)
    server.listen(0, '127.0.0.1', resolve)
  })
  const address = server.address()
  if (address === null || typeof address === 'string') throw new Error('the server has no port')
  return address.port
}

/** A port on which no server listens any more. */
export const closedPort = async (): Promise<number> => {
  const server = createServer()
  const port = await listen(server)
  await new Promise((resolve) => server.close(resolve))
  return port
}

const write = (socket: Socket, text: string, { write: put }: SmtpScript): void => {
  if (socket.destroyed) return
  if (put === undefined) socket.write(text)
  else put(socket, text)
}

const converse = (socket: Socket, conversation: Conversation, script: SmtpScript): void => {
  let rest = ''
  let turn = Promise.resolve()
  socket.setNoDelay(true)
  socket.on('error', () => undefined)
  socket.on('data', (octets: Buffer) => {
    const lines = (rest + octets.toString('utf8')).split('\r\n')
    rest = lines.pop() ?? ''
    turn = turn.then(() => answer(lines))
  })
  const answer = async (lines: readonly string[]): Promise<void> => {
    let together = ''
    for (const line of lines) {
      conversation.said.push(line)
      if (script.thinkMs !== undefined) await new Promise((wake) => setTimeout(wake, script.thinkMs))
      const own = script.reply?.(line, conversation)
      const text = own === undefined ? goodReply(line, conversation, script) : own
      if (line.toUpperCase() === 'STARTTLS' && text?.startsWith('220') === true) {
        startTls(socket, conversation, script, text)
        return
      }
      // If several commands arrive together, their replies are sent together.
      together += text ?? ''
      if (line.toUpperCase() === 'QUIT' && text !== null) {
        write(socket, together, script)
        setTimeout(() => {
          conversation.open = false
          socket.end()
        }, script.closeMs ?? 0)
        return
      }
    }
    if (together !== '') write(socket, together, script)
  }
}

const startTls = (socket: Socket, conversation: Conversation, script: SmtpScript, reply: string): void => {
  socket.removeAllListeners('data')
  if (script.tls === 'injected') {
    socket.write(`${reply}250 2.1.5 said in the clear\r\n`)
  } else if (script.tls === 'broken') {
    socket.write(reply)
    socket.once('data', () => socket.end('no TLS here\r\n'))
  } else {
    socket.write(reply)
    const secure = new TLSSocket(socket, {
      isServer: true,
      secureContext: createSecureContext(renewedCertificate),
    })
    conversation.secure = true
    conversation.cut = () => secure.destroy()
    converse(secure, conversation, script)
  }
}

const goodReply = (line: string, conversation: Conversation, script: SmtpScript): string => {
  const verb = line.split(/[ :]/)[0]?.toUpperCase()
  switch (verb) {
    case 'EHLO':
      return offersOf(conversation, script)
    case 'HELO':
      return '250 mx.test\r\n'
    case 'STARTTLS':
      return '220 2.0.0 go ahead\r\n'
    case 'RSET':
      conversation.inTransaction = false
      return '250 2.0.0 flushed\r\n'
    case 'MAIL':
      if (conversation.inTransaction) return '503 5.5.1 nested MAIL command\r\n'
      conversation.inTransaction = true
      conversation.transactions++
      conversation.recipients = 0
      return '250 2.1.0 sender ok\r\n'
    case 'RCPT':
      if (!conversation.inTransaction) return '503 5.5.1 MAIL first\r\n'
      conversation.recipients++
      conversation.recipientsInAll++
      return `${script.recipient?.(recipientOf(line) ?? '', conversation) ?? '250 2.1.5 ok'}\r\n`
    case 'QUIT':
      return '221 2.0.0 bye\r\n'
    default:
      return '502 5.5.2 unknown command\r\n'
  }
}

const recipientOf = (line: string): string | null => /^RCPT TO: ?<(.*)>/i.exec(line)?.[1] ?? null

const offersOf = ({ secure }: Conversation, script: SmtpScript): string => {
  const { offers = standard, offersWhenSecure = offers, tls } = script
  const listed = secure ? offersWhenSecure : [...offers, ...(tls === undefined ? [] : ['STARTTLS'])]
  const lines = ['mx.test greets you', ...listed]
  return lines.map((text, i) => `250${i === lines.length - 1 ? ' ' : '-'}${text}\r\n`).join('')
}
