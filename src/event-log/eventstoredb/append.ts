import { randomUUID } from 'node:crypto'
import type { BatchAppendResp } from '@eventstore/db-client/generated/streams_pb.js'
import type { Logger } from 'pino'
import { AppendConflict, type ExpectedRevision, type NewEvent, Unavailable, UnknownOutcome } from '../port.ts'
import type { AppendCall, Connection } from './client.ts'
import { appendReply, appendRequest } from './messages.ts'

/** Sends appends over a single session. If the session is lost, the next append opens a new one. */

const pendingAppendsMax = 10_000
const pendingBytesMax = 64 * 1024 * 1024

type Appender = {
  append(
    stream: string,
    expected: ExpectedRevision,
    events: readonly NewEvent[],
  ): Promise<{ revision: number }>
  /** Waits for pending appends, but not beyond their deadline. */
  close(): Promise<void>
}

/** Connects on the first append. An append throws `Unavailable` if too many appends are waiting, or if the appender is closed. */
export const createAppender = (options: AppendSessionOptions): Appender => {
  let session: AppendSession | undefined
  let opening: Promise<AppendSession> | undefined
  let closed = false
  let underWay = 0
  let bytesUnderWay = 0
  let whenQuiet: (() => void) | undefined

  /** Opens a session that all waiting appends share. */
  const open = (): Promise<AppendSession> => {
    opening ??= openAppendSession(options)
      .then((made) => {
        session = made
        return made
      })
      .finally(() => {
        opening = undefined
      })
    return opening
  }

  return {
    append: async (stream, expected, events) => {
      if (closed) throw new Unavailable('the event log is closed')
      const bytes = events.reduce((sum, { data, metadata }) => sum + data.length + metadata.length, 0)
      if (underWay >= pendingAppendsMax || bytesUnderWay + bytes > pendingBytesMax)
        throw new Unavailable(
          `${underWay} appends (${bytesUnderWay} bytes) are already waiting for the event store`,
        )
      underWay++
      bytesUnderWay += bytes
      try {
        const usable = session?.ended === false ? session : await open()
        return await sendAppend(usable, { stream, expected, events })
      } finally {
        underWay--
        bytesUnderWay -= bytes
        if (underWay === 0) whenQuiet?.()
      }
    },
    close: async () => {
      closed = true
      if (underWay > 0)
        await new Promise<void>((resolve) => {
          whenQuiet = resolve
        })
      if (session !== undefined) endSession(session, new Error('the event log is closed'))
    },
  }
}

/**
 * A gRPC call with its own connection that sends many concurrent appends to the server. If a reply does not arrive in time, the call
 * and the connection are closed, and the outcome of all pending appends is unknown.
 */

/** The gRPC codes with which a server refuses a call without reading it: unimplemented, permission denied, unauthenticated. */
const callRefused = new Set([12, 7, 16])

type AppendSessionOptions = {
  readonly connect: () => Promise<Connection>
  /** Returns the last revision of a stream, or −1 if it does not exist. */
  readonly lastRevision: (stream: string) => Promise<number>
  /** Throws `LogRewritten` if the log has lost events that this process has read or written. */
  readonly checkLog: (connection: Connection) => Promise<void>
  readonly deadlineMs: number
  readonly logger: Logger
}

type Pending = {
  readonly stream: string
  readonly expected: ExpectedRevision
  readonly sentAtMs: number
  readonly resolve: (result: { revision: number }) => void
  readonly reject: (error: Error) => void
}

type AppendSession = {
  readonly options: AppendSessionOptions
  readonly connection: Connection
  readonly call: AppendCall
  /** The unanswered appends by correlation id, the oldest first. */
  readonly pending: Map<string, Pending>
  readonly watchdog: NodeJS.Timeout
  /** Whether the server has answered at least once. */
  answered: boolean
  ended: boolean
}

/** Connects, checks the log and opens the call. Throws the errors of `connect` and `checkLog`. */
const openAppendSession = async (options: AppendSessionOptions): Promise<AppendSession> => {
  const connection = await options.connect()
  try {
    await options.checkLog(connection)
  } catch (error) {
    connection.close()
    throw error
  }
  const call = connection.batchAppend()
  const session: AppendSession = {
    options,
    connection,
    call,
    pending: new Map(),
    // One timer is enough for all appends.
    watchdog: setInterval(
      () => endWhenLate(session),
      Math.max(10, Math.min(250, options.deadlineMs / 8)),
    ).unref(),
    answered: false,
    ended: false,
  }
  call.on('data', (response: BatchAppendResp) => {
    try {
      settle(session, response)
    } catch (error) {
      // A reply that cannot be read ends the session. An error thrown here would crash the process.
      endSession(session, new Error('the server sent a reply that cannot be read', { cause: error }))
    }
  })
  call.on('error', (error) => {
    const code: unknown = Reflect.get(error, 'code')
    const refused = !session.answered && typeof code === 'number' && callRefused.has(code)
    endSession(session, error, refused ? 'refused' : 'unknown')
  })
  // If the server ends the call, waiting appends have failed, even without an error.
  call.on('end', () => endSession(session, new Error('the server ended the call')))
  return session
}

/** Sends an append. Settles when the server replies or the session ends. */
const sendAppend = (
  session: AppendSession,
  { stream, expected, events }: { stream: string; expected: ExpectedRevision; events: readonly NewEvent[] },
): Promise<{ revision: number }> =>
  new Promise((resolve, reject) => {
    if (session.ended)
      return reject(new Unavailable('the connection to the event store was lost before the append was sent'))
    const id = randomUUID()
    session.pending.set(id, { stream, expected, sentAtMs: performance.now(), resolve, reject })
    try {
      session.call.write(appendRequest(id, stream, expected, events))
    } catch (error) {
      endSession(session, error instanceof Error ? error : new Error(String(error)))
    }
  })

/**
 * Closes the connection. Pending appends reject with `UnknownOutcome`, or with `Unavailable` if the server refused the call without
 * reading it.
 */
const endSession = (
  session: AppendSession,
  why: Error,
  underWay: 'unknown' | 'refused' = 'unknown',
): void => {
  if (session.ended) return
  session.ended = true
  clearInterval(session.watchdog)
  session.connection.close()
  const { pending, options } = session
  if (pending.size > 0)
    options.logger.warn({ err: why, appends: pending.size }, 'event log: the connection for appends was lost')
  for (const { stream, reject } of pending.values())
    reject(
      underWay === 'refused'
        ? new Unavailable(`the event store refuses appends: ${why.message}`, { cause: why })
        : new UnknownOutcome(`no answer to an append to ${stream}: ${why.message}`, { cause: why }),
    )
  pending.clear()
}

const endWhenLate = (session: AppendSession): void => {
  const { deadlineMs } = session.options
  const oldest = session.pending.values().next().value
  if (oldest !== undefined && performance.now() - oldest.sentAtMs >= deadlineMs)
    endSession(session, new Error(`no reply within ${deadlineMs} ms`))
}

const settle = (session: AppendSession, response: BatchAppendResp): void => {
  session.answered = true
  const { pending, options } = session
  const { correlationId, outcome } = appendReply(response, (id) => pending.get(id))
  const asked = pending.get(correlationId)
  if (asked === undefined) return
  pending.delete(correlationId)
  if ('revision' in outcome) asked.resolve(outcome)
  else if ('error' in outcome) asked.reject(outcome.error)
  else rejectConflict(asked, options.lastRevision)
}

const rejectConflict = (
  { stream, expected, reject }: Pending,
  lastRevision: AppendSessionOptions['lastRevision'],
): void => {
  lastRevision(stream).then(
    (actual) => reject(new AppendConflict(stream, expected, actual)),
    // The append was not written. Without the stream's revision, an `AppendConflict` cannot be thrown.
    (error: unknown) => reject(new Unavailable(`${stream} is not at revision ${expected}`, { cause: error })),
  )
}
