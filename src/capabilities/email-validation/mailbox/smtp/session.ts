/** The dialogue with one mail server up to RCPT; no message is ever sent (RFC 5321, RFC 3207, RFC 2920, RFC 6531). */

import type { SmtpStage } from '../replies/rules.ts'
import { ehlo, helo, mail, quit, rcpt, reset, startTls } from './command.ts'
import { type DialOptions, dial, type Exchange, type SmtpConnection, SmtpFailure } from './connection.ts'
import type { SmtpReply } from './reply.ts'

export type SessionOptions = DialOptions & {
  /** The name of the exchanger. Used only for TLS and never resolved. */
  readonly exchange: string
  readonly helo: string
  readonly sender: string
  /**
   * Longer than the limit for other replies, because postscreen greets after 6 s (`postscreen_greet_wait`) and refuses clients that do not
   * wait.
   */
  readonly greetingTimeoutMs: number
  /** The time limit from connecting until the session is ready for the first recipient. */
  readonly openTimeoutMs: number
}

/** Thrown if the server refuses our client before the first question. */
export class SmtpRefusal extends Error {
  override readonly name = 'SmtpRefusal'
  readonly stage: SmtpStage
  readonly reply: SmtpReply
  constructor(stage: SmtpStage, reply: SmtpReply) {
    super(`refused at ${stage} with ${reply.code}`)
    this.stage = stage
    this.reply = reply
  }
}

type Answer =
  | { readonly kind: 'reply'; readonly stage: 'reset' | 'mail' | 'rcpt'; readonly reply: SmtpReply }
  | { readonly kind: 'failure'; readonly failure: SmtpFailure }

export type SmtpSession = {
  readonly smtputf8: boolean
  readonly closed: Promise<void>
  usable(): boolean
  /**
   * Asks about one recipient in a separate transaction, because some servers refuse a second recipient in a transaction, and most servers do
   * so for the null sender (RFC 5321 §4.5.5). Never rejects.
   */
  ask(mailbox: string, options: { smtputf8: boolean }): Promise<Answer>
  quit(): void
  /** Closes the connection without QUIT. */
  cut(): void
}

/**
 * Connects, greets, and starts TLS if it is offered. If TLS fails, connects once more without TLS.
 * @throws SmtpFailure, or SmtpRefusal if the server answers the greeting or EHLO with a refusal.
 */
export const openSession = async (options: SessionOptions, signal: AbortSignal): Promise<SmtpSession> => {
  const timer = new AbortController()
  const running = setTimeout(() => timer.abort(), options.openTimeoutMs)
  const deadline = AbortSignal.any([timer.signal, signal])
  try {
    return await open(options, { plain: false }, deadline)
  } catch (error) {
    if (!(error instanceof SmtpFailure) || error.kind !== 'tls' || deadline.aborted) throw error
    return await open(options, { plain: true }, deadline)
  } finally {
    clearTimeout(running)
  }
}

const open = async (
  options: SessionOptions,
  { plain }: { plain: boolean },
  deadline: AbortSignal,
): Promise<SmtpSession> => {
  const connection = await dial(options, deadline)
  const expire = (): void => connection.fail(new SmtpFailure('timeout', 'no session in time'))
  deadline.addEventListener('abort', expire)
  try {
    if (deadline.aborted) expire()
    const greeting = onlyReply(await connection.greeting(options.greetingTimeoutMs))
    if (greeting.code !== 220) throw new SmtpRefusal('greeting', greeting)
    let offers = await greet(connection, options.helo)
    const secure = !plain && offers.has('STARTTLS')
    if (secure && (await connection.startTls(startTls, options.exchange)).code === 220)
      offers = await greetAgain(connection, options.helo)
    return sessionOn(connection, offers, options.sender)
  } catch (error) {
    connection.quit(quit)
    throw error
  } finally {
    deadline.removeEventListener('abort', expire)
  }
}

/** The keywords of the server's extensions; empty if it supports only HELO. */
const greet = async (connection: SmtpConnection, name: string): Promise<Set<string>> => {
  const reply = onlyReply(await connection.exchange([ehlo(name)]))
  if (reply.code === 250)
    return new Set(reply.lines.slice(1).map((line) => (line.split(' ')[0] ?? '').toUpperCase()))
  if (reply.code < 500) throw new SmtpRefusal('ehlo', reply)
  const older = onlyReply(await connection.exchange([helo(name)]))
  if (older.code !== 250) throw new SmtpRefusal('ehlo', older)
  return new Set()
}

/** With TLS 1.3, a server can reject the connection even after the handshake. */
const greetAgain = async (connection: SmtpConnection, name: string): Promise<Set<string>> => {
  try {
    return await greet(connection, name)
  } catch (cause) {
    if (!(cause instanceof SmtpFailure) || cause.kind === 'timeout') throw cause
    throw new SmtpFailure('tls', 'the connection broke once it was encrypted', { cause })
  }
}

const onlyReply = ({ replies: [reply], failure }: Exchange): SmtpReply => {
  // A 421 ends the connection, but it is still the reply.
  if (reply === undefined) throw failure ?? new SmtpFailure('closed', 'no reply')
  return reply
}

const sessionOn = (connection: SmtpConnection, offers: ReadonlySet<string>, sender: string): SmtpSession => {
  let begun = false
  return {
    smtputf8: offers.has('SMTPUTF8'),
    closed: connection.closed,
    usable: () => connection.usable,
    ask: async (mailbox, options) => {
      const steps = [
        ...(begun ? [{ stage: 'reset', command: reset } as const] : []),
        { stage: 'mail', command: mail(sender, options) } as const,
        { stage: 'rcpt', command: rcpt(mailbox, options) } as const,
      ]
      begun = true
      // If the server supports pipelining, all commands are sent together, in one round trip instead of three.
      const groups = offers.has('PIPELINING') ? [steps] : steps.map((step) => [step])
      for (const group of groups) {
        const { replies, failure } = await connection.exchange(group.map(({ command }) => command))
        for (const [index, { stage }] of group.entries()) {
          const reply = replies[index]
          if (reply === undefined)
            return { kind: 'failure', failure: failure ?? new SmtpFailure('closed', 'no reply') }
          if (stage === 'rcpt' || reply.code !== 250) return { kind: 'reply', stage, reply }
        }
      }
      return { kind: 'failure', failure: new SmtpFailure('protocol', 'no reply to RCPT') }
    },
    quit: () => connection.quit(quit),
    cut: () => connection.fail(new SmtpFailure('closed', 'cut by us')),
  }
}
