import { type ExpectedRevision, type NewEvent, Unavailable } from '../port.ts'
import {
  type AppendSession,
  type AppendSessionOptions,
  endSession,
  openAppendSession,
  sendAppend,
} from './append-session.ts'

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
