import type { Logger } from 'pino'
import type { EventLog, Position } from './port.ts'
import { type DecodedEvent, decodeEvent } from './stored-event.ts'

export type Following = {
  /** Resolves when everything that stood in the log at the start has been applied. */
  readonly caughtUp: Promise<void>
  stop(): Promise<void>
}

/**
 * Feeds a live in-memory read model from the event log, in order, until stopped. Events that cannot be read are
 * logged and left out: one bad event must not freeze a model that guards the door.
 */
export const follow = ({
  eventLog,
  after,
  prefixes,
  apply,
  logger,
}: {
  eventLog: EventLog
  after: Position
  prefixes: readonly string[]
  apply: (event: DecodedEvent) => void
  logger: Logger
}): Following => {
  const stopping = new AbortController()
  const caughtUp = Promise.withResolvers<void>()
  // Nobody may be waiting when the log fails before catching up.
  caughtUp.promise.catch(() => undefined)
  const run = async (): Promise<void> => {
    for await (const item of eventLog.subscribe({ after, prefixes, signal: stopping.signal })) {
      if (item.kind === 'caught-up') caughtUp.resolve()
      if (item.kind !== 'events') continue
      for (const recorded of item.events) {
        try {
          apply(decodeEvent(recorded))
        } catch (error) {
          logger.error(
            { err: error, stream: recorded.stream, revision: recorded.revision },
            'event cannot be applied',
          )
        }
      }
    }
  }
  const running = run().catch((error: unknown) => {
    caughtUp.reject(error)
    if (!stopping.signal.aborted)
      logger.fatal({ err: error }, 'a live read model no longer follows the event log')
  })
  return {
    caughtUp: caughtUp.promise,
    stop: async () => {
      stopping.abort()
      await running
    },
  }
}
