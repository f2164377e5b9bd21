import { setTimeout as sleep } from 'node:timers/promises'
import type { Logger } from 'pino'
import { createOutage } from './outage.ts'
import { type EventLog, type Position, type RecordedEvent, Unavailable } from './port.ts'
import { type DecodedEvent, decodeEvent } from './stored-event.ts'

export type Following = {
  /** Resolves when everything that stood in the log at the start has been applied; rejects with the final failure. */
  readonly caughtUp: Promise<void>
  /**
   * Why the model no longer follows the event log; null while it does. What it says may be out of date from then on.
   * It goes back to null when a lost subscription was made again and delivers; a final failure stays.
   */
  failure(): Error | null
  stop(): Promise<void>
}

const resubscribePauseMs = 100
const resubscribePauseMaxMs = 5_000

/**
 * Feeds a live in-memory read model from the event log, in order, each event once, until stopped. An event that cannot
 * be read or applied does not freeze the model: `unreadable` is told of it, and refuses from then on what the event may
 * be about. No model may simply leave it out, for what it says may be that somebody is to stay out.
 *
 * Engines mend their subscriptions themselves. Where one gives up because the log is unavailable, another is made
 * after the last position applied. Any other end is final: going on might skip what another log holds in its place.
 */
export const follow = ({
  eventLog,
  after,
  prefixes,
  apply,
  unreadable,
  logger,
}: {
  eventLog: EventLog
  after: Position
  prefixes: readonly string[]
  apply: (event: DecodedEvent) => void
  unreadable: (recorded: RecordedEvent) => void
  logger: Logger
}): Following => {
  const stopping = new AbortController()
  const caughtUp = Promise.withResolvers<void>()
  // Nobody may be waiting when the log fails before catching up.
  caughtUp.promise.catch(() => undefined)
  let failure: Error | null = null
  let position = after
  let failures = 0
  const following = createOutage({
    logger,
    what: `a live read model of ${prefixes.join(', ')}`,
    level: 'error',
  })

  const subscribed = async (): Promise<void> => {
    for await (const item of eventLog.subscribe({ after: position, prefixes, signal: stopping.signal })) {
      if (item.kind === 'events')
        for (const recorded of item.events) {
          try {
            apply(decodeEvent(recorded))
          } catch (error) {
            const { stream, revision } = recorded
            logger.fatal(
              { err: error, stream, revision },
              'an event cannot be applied; what it is about is refused',
            )
            unreadable(recorded)
          }
        }
      position = item.position
      failures = 0
      failure = null
      following.works()
      if (item.kind === 'caught-up') caughtUp.resolve()
    }
    // Stopped, or the log was closed under the model.
    if (!stopping.signal.aborted) throw new Error('the event log ended the subscription')
  }

  const run = async (): Promise<void> => {
    while (!stopping.signal.aborted) {
      try {
        await subscribed()
      } catch (error) {
        if (stopping.signal.aborted) return
        failure = error instanceof Error ? error : new Error(String(error))
        if (!(error instanceof Unavailable)) throw error
        following.failed(error)
        const pauseMs = Math.min(resubscribePauseMaxMs, resubscribePauseMs * 2 ** failures++)
        await sleep(pauseMs, undefined, { signal: stopping.signal }).catch(() => undefined)
      }
    }
  }
  const running = run().catch((error: unknown) => {
    caughtUp.reject(error)
    logger.fatal(
      { err: error, prefixes, position: position.toString() },
      'a live read model no longer follows the event log',
    )
  })
  return {
    caughtUp: caughtUp.promise,
    failure: () => failure,
    stop: async () => {
      stopping.abort()
      await running
    },
  }
}
