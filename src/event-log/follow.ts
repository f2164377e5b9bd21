import { setTimeout as sleep } from 'node:timers/promises'
import type { Logger } from 'pino'
import { createOutage } from '../concurrency/outage.ts'
import {
  type EventLog,
  lookMaxMs,
  type Position,
  placeOf,
  type RecordedEvent,
  type SubscriptionItem,
  Unavailable,
} from './port.ts'
import { type DecodedEvent, decodeEvent } from './stored-event.ts'

export type Following = {
  /** Resolves when everything that was in the log at the start is applied. Rejects after a final failure. */
  readonly caughtUp: Promise<void>
  /**
   * Returns the reason why the model no longer follows the event log, so that its answers can be out of date, or null. Unless the failure is
   * final, it is null again when the log is followed again.
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
  position: Position
  failure: Error | null
}

const resubscribePauseMs = 100
const resubscribePauseMaxMs = 5_000

/** All models of a log share one subscription, because each separate subscription would search the whole log for a few events. */
const followers = new WeakMap<EventLog, Follower>()

/**
 * Applies every event of the log to an in-memory model, in order and once, until stopped. `unreadable` is called for an event that cannot be
 * read or applied. From then on, the model must refuse everything that the event could concern, because it could revoke access.
 *
 * If a subscription ends because the log is unavailable, a new one starts after the last position that was applied. Any other error is final:
 * it can mean that this is another log, so continuing could skip events.
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
  // The log can fail before this promise is awaited, which must not be an unhandled rejection.
  model.caughtUp.promise.catch(() => undefined)
  const follower = followers.get(eventLog) ?? createFollower(eventLog, own.logger)
  followers.set(eventLog, follower)
  follower.join(model)
  return {
    caughtUp: model.caughtUp.promise,
    failure: () => model.failure ?? follower.behind(),
    stop: () => follower.leave(model),
  }
}

type Follower = {
  join(model: Model): void
  /** Stops applying events to the model. */
  leave(model: Model): Promise<void>
  /** Returns an error if the log was not looked at for too long, or null. */
  behind(): Error | null
}

/** Longer than a healthy log needs for a look, but short enough for a revocation that a failing subscription does not deliver. */
const behindMs = lookMaxMs + 5_000

const createFollower = (eventLog: EventLog, logger: Logger): Follower => {
  const models = new Set<Model>()
  const following = createOutage({
    logger,
    what: 'the in-memory models: following the event log',
    level: 'error',
  })
  let changing = new AbortController()
  let running: Promise<void> | undefined
  let last: RecordedEvent | undefined
  let failures = 0
  let lookedAtMs: number | undefined
  const looked = (): void => {
    lookedAtMs = performance.now()
  }

  const subscribed = async (signal: AbortSignal): Promise<void> => {
    // A model that is added later needs a new subscription, because this one possibly does not include its events.
    const served = [...models]
    const after = served.reduce((least, { position }) => (position < least ? position : least), farthest)
    const known = last !== undefined && last.position <= after ? placeOf(last) : undefined
    const prefixes = [...new Set(served.flatMap((model) => model.prefixes))]
    for await (const item of eventLog.subscribe({ after, known, prefixes, looked, signal })) {
      const present = served.filter((model) => models.has(model))
      deliver(present, item)
      if (item.kind === 'events') last = item.events.at(-1)
      failures = 0
      following.works()
    }
    // The subscription must end only after an abort, which happens when a model is added or the last model is removed.
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
    logger.fatal({ err: error }, 'the in-memory models no longer follow the event log; restart the process')
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
    behind: () => {
      const sinceMs = lookedAtMs === undefined ? 0 : performance.now() - lookedAtMs
      if (sinceMs <= behindMs) return null
      return new Error(`the event log has not been followed for ${Math.round(sinceMs / 1_000)} s`)
    },
  }
}

const farthest: Position = 2n ** 64n

/** Delivers one event at a time, so that all models have applied it before any of them receives the next one. */
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
      'an event cannot be applied, so calls that depend on it are refused',
    )
    unreadable(recorded)
  }
}
