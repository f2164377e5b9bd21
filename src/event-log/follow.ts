import { setTimeout as sleep } from 'node:timers/promises'
import type { Logger } from 'pino'
import { createOutage } from './outage.ts'
import {
  type EventLog,
  type Position,
  placeOf,
  type RecordedEvent,
  type SubscriptionItem,
  Unavailable,
} from './port.ts'
import { type DecodedEvent, decodeEvent } from './stored-event.ts'

export type Following = {
  /** Resolves when everything that was in the log at the start has been applied; rejects with the final failure. */
  readonly caughtUp: Promise<void>
  /**
   * Why the model no longer follows the event log; null while it does. From then on, its answers may be out of date.
   * It returns to null when a lost subscription is replaced and delivers events; a final failure stays.
   */
  failure(): Error | null
  stop(): Promise<void>
}

type Model = {
  readonly prefixes: readonly string[]
  readonly apply: (event: DecodedEvent) => void
  readonly unreadable: (recorded: RecordedEvent) => void
  readonly logger: Logger
  readonly caughtUp: PromiseWithResolvers<void>
  /** Everything up to here was applied. */
  position: Position
  failure: Error | null
}

const resubscribePauseMs = 100
const resubscribePauseMaxMs = 5_000

/** Models that follow one log share one subscription to it: separate subscriptions would each search the log for a few events. */
const followers = new WeakMap<EventLog, Follower>()

/**
 * Feeds a live in-memory read model from the event log, in order, each event once, until stopped. An event that cannot
 * be read or applied does not freeze the model: `unreadable` is called with it, and from then on refuses everything the event may
 * be about. A model may not simply leave the event out, because the event may revoke someone's access.
 *
 * Engines repair their subscriptions themselves. If a subscription ends because the log is unavailable, a new one starts
 * after the last position applied. Any other end is final: continuing might skip events if this is another log.
 */
export const follow = ({
  eventLog,
  after,
  ...own
}: Pick<Model, 'prefixes' | 'apply' | 'unreadable' | 'logger'> & {
  readonly eventLog: EventLog
  readonly after: Position
}): Following => {
  const model: Model = { ...own, position: after, failure: null, caughtUp: Promise.withResolvers<void>() }
  // The log may fail before catching up while there is no caller waiting on this promise.
  model.caughtUp.promise.catch(() => undefined)
  const follower = followers.get(eventLog) ?? createFollower(eventLog, own.logger)
  followers.set(eventLog, follower)
  follower.join(model)
  return {
    caughtUp: model.caughtUp.promise,
    failure: () => model.failure,
    stop: () => follower.leave(model),
  }
}

type Follower = {
  join(model: Model): void
  /** Nothing is applied to the model from then on. */
  leave(model: Model): Promise<void>
}

const createFollower = (eventLog: EventLog, logger: Logger): Follower => {
  const models = new Set<Model>()
  const following = createOutage({ logger, what: 'the live read models', level: 'error' })
  let changing = new AbortController()
  let running: Promise<void> | undefined
  let last: RecordedEvent | undefined
  let failures = 0

  const subscribed = async (signal: AbortSignal): Promise<void> => {
    // A model that joins later is not served by this subscription, which may not include its events.
    const served = [...models]
    const after = served.reduce((least, { position }) => (position < least ? position : least), farthest)
    const known = last !== undefined && last.position <= after ? placeOf(last) : undefined
    const prefixes = [...new Set(served.flatMap((model) => model.prefixes))]
    for await (const item of eventLog.subscribe({ after, known, prefixes, signal })) {
      const present = served.filter((model) => models.has(model))
      deliver(present, item)
      if (item.kind === 'events') last = item.events.at(-1)
      failures = 0
      following.works()
    }
    // A model joined, the last one left, or the log was closed.
    if (!signal.aborted) throw new Error('the event log ended the subscription')
  }

  const run = async (): Promise<void> => {
    while (models.size > 0) {
      const { signal } = changing
      try {
        await subscribed(signal)
      } catch (error) {
        if (signal.aborted) continue
        const failure = error instanceof Error ? error : new Error(String(error))
        for (const model of models) model.failure = failure
        if (!(error instanceof Unavailable)) throw error
        following.failed(error)
        const pauseMs = Math.min(resubscribePauseMaxMs, resubscribePauseMs * 2 ** Math.min(failures++, 10))
        await sleep(pauseMs, undefined, { signal }).catch(() => undefined)
      }
    }
    running = undefined
  }

  const giveUp = (error: unknown): void => {
    followers.delete(eventLog)
    for (const { caughtUp } of models) caughtUp.reject(error)
    logger.fatal({ err: error }, 'the live read models no longer follow the event log')
  }

  const change = (): void => {
    changing.abort()
    changing = new AbortController()
  }

  return {
    join: (model) => {
      models.add(model)
      change()
      running ??= run().catch(giveUp)
    },
    leave: async (model) => {
      models.delete(model)
      if (models.size > 0) return
      change()
      await running
    },
  }
}

/** Beyond every position. */
const farthest: Position = 2n ** 64n

/** Event by event, so that all models have applied an event before any model receives the next. */
const deliver = (models: readonly Model[], item: SubscriptionItem): void => {
  if (item.kind === 'events')
    for (const recorded of item.events)
      for (const model of models)
        if (
          recorded.position > model.position &&
          model.prefixes.some((prefix) => recorded.stream.startsWith(prefix))
        )
          applyTo(model, recorded)
  for (const model of models) {
    if (item.position > model.position) model.position = item.position
    model.failure = null
    if (item.kind === 'caught-up') model.caughtUp.resolve()
  }
}

const applyTo = ({ apply, unreadable, logger }: Model, recorded: RecordedEvent): void => {
  try {
    apply(decodeEvent(recorded))
  } catch (error) {
    const { stream, revision } = recorded
    logger.fatal(
      { err: error, stream, revision },
      'an event cannot be applied; everything it concerns is refused',
    )
    unreadable(recorded)
  }
}
