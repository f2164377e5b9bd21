import { randomUUID } from 'node:crypto'
import type { BatchAppendResp } from '@eventstore/db-client/generated/streams_pb.js'
import type { Logger } from 'pino'
import { AppendConflict, type ExpectedRevision, type NewEvent, Unavailable, UnknownOutcome } from '../port.ts'
import type { AppendCall, Connection } from './client.ts'
import { appendReply, appendRequest } from './messages.ts'

/**
 * Appends over one call to the server, many at a time. A reply that does not come in time gives up the whole
 * connection: what else was under way on it is unknown too, and the next append makes a new one.
 */

const pendingAppendsMax = 10_000
const pendingBytesMax = 64 * 1024 * 1024

/** gRPC codes with which a server refuses a call before it reads any of it: unimplemented, denied, unauthenticated. */
const callRefused = new Set([12, 7, 16])

type Pending = {
  readonly stream: string
  readonly expected: ExpectedRevision
  readonly sentAtMs: number
  readonly resolve: (result: { revision: number }) => void
  readonly reject: (error: Error) => void
}

type Session = {
  readonly call: AppendCall
  readonly pending: Map<string, Pending>
  ended: boolean
  /** Gives up the connection; whatever is under way is unknown, or `refused` where the server never looked at it. */
  end(why: Error, refused?: boolean): void
}

type AppenderOptions = {
  readonly connect: () => Promise<Connection>
  /** The last revision of a stream, −1 where there is none. */
  readonly lastRevision: (stream: string) => Promise<number>
  readonly deadlineMs: number
  readonly logger: Logger
}

export const createAppender = ({ connect, lastRevision, deadlineMs, logger }: AppenderOptions) => {
  let session: Session | undefined
  let opening: Promise<Session> | undefined
  let closed = false
  let underWay = 0
  let bytesUnderWay = 0
  let whenQuiet: (() => void) | undefined

  const open = async (): Promise<Session> => {
    const connection = await connect()
    const call = connection.batchAppend()
    const pending = new Map<string, Pending>()
    let answered = false
    const end = (why: Error, refused = false): void => {
      if (made.ended) return
      made.ended = true
      if (session === made) session = undefined
      clearInterval(watchdog)
      connection.close()
      if (pending.size > 0)
        logger.warn({ err: why, appends: pending.size }, 'event log: append connection lost')
      for (const { stream, reject } of pending.values())
        reject(
          refused
            ? new Unavailable(`the event store refuses appends: ${why.message}`, { cause: why })
            : new UnknownOutcome(`no answer to an append to ${stream}: ${why.message}`, { cause: why }),
        )
      pending.clear()
    }
    const made: Session = { call, pending, ended: false, end }
    // The oldest append comes first in the map, so one timer watches all of them.
    const watchdog = setInterval(
      () => {
        const oldest = pending.values().next().value
        if (oldest !== undefined && performance.now() - oldest.sentAtMs >= deadlineMs)
          end(new Error(`no reply in ${deadlineMs} ms`))
      },
      Math.max(10, Math.min(250, deadlineMs / 8)),
    )
    watchdog.unref()
    const settle = (response: BatchAppendResp): void => {
      answered = true
      const { correlationId, outcome } = appendReply(response, (id) => pending.get(id))
      const asked = pending.get(correlationId)
      if (asked === undefined) return
      pending.delete(correlationId)
      if ('revision' in outcome) asked.resolve(outcome)
      else if ('error' in outcome) asked.reject(outcome.error)
      else conflictAt(asked)
    }
    call.on('data', (response: BatchAppendResp) => {
      try {
        settle(response)
      } catch (error) {
        // A reply that cannot be read is no reply; thrown from here it would end the process.
        end(new Error('the server answered what cannot be read', { cause: error }))
      }
    })
    call.on('error', (error) => {
      const code: unknown = Reflect.get(error, 'code')
      end(error, !answered && typeof code === 'number' && callRefused.has(code))
    })
    // Even politely: without a reply to every append, an ending is a loss.
    call.on('end', () => end(new Error('the server ended the call')))
    session = made
    return made
  }

  /** The session, shared by everyone who asks while it is being made. */
  const opened = (): Promise<Session> => {
    opening ??= open().finally(() => {
      opening = undefined
    })
    return opening
  }

  const conflictAt = ({ stream, expected, reject }: Pending): void => {
    lastRevision(stream).then(
      (actual) => reject(new AppendConflict(stream, expected, actual)),
      // It was not written, but to say "conflict" one would have to know with what.
      (error: unknown) =>
        reject(new Unavailable(`${stream} stands at another revision than ${expected}`, { cause: error })),
    )
  }

  const send = (to: Session, stream: string, expected: ExpectedRevision, events: readonly NewEvent[]) =>
    new Promise<{ revision: number }>((resolve, reject) => {
      if (to.ended)
        return reject(
          new Unavailable('the connection to the event store was lost before the append was sent'),
        )
      const id = randomUUID()
      to.pending.set(id, { stream, expected, sentAtMs: performance.now(), resolve, reject })
      try {
        to.call.write(appendRequest(id, stream, expected, events))
      } catch (error) {
        to.end(error instanceof Error ? error : new Error(String(error)))
      }
    })

  return {
    append: async (
      stream: string,
      expected: ExpectedRevision,
      events: readonly NewEvent[],
    ): Promise<{ revision: number }> => {
      if (closed) throw new Unavailable('the event log is closed')
      const bytes = events.reduce((sum, { data, metadata }) => sum + data.length + metadata.length, 0)
      if (underWay >= pendingAppendsMax || bytesUnderWay + bytes > pendingBytesMax)
        throw new Unavailable(`${underWay} appends of ${bytesUnderWay} bytes are waiting for the event store`)
      underWay++
      bytesUnderWay += bytes
      try {
        return await send(session ?? (await opened()), stream, expected, events)
      } finally {
        underWay--
        bytesUnderWay -= bytes
        if (underWay === 0) whenQuiet?.()
      }
    },
    /** Waits for what is under way, which the watchdog bounds. */
    close: async (): Promise<void> => {
      closed = true
      if (underWay > 0)
        await new Promise<void>((resolve) => {
          whenQuiet = resolve
        })
      session?.end(new Error('the event log is closed'))
    },
  }
}
