import { createCircuitBreaker } from '../../../concurrency/circuit-breaker.ts'
import { type After, within } from '../../../concurrency/deadline.ts'
import type { Logger } from './http-provider.ts'
import type { AskOptions, ProfileProvider, ProfileRef, ProfileSource, ProviderAnswer } from './provider.ts'

/** Both functions use the clock of `performance.now()`. `after` returns a function that cancels the timer. */
export type Clock = {
  readonly now: () => number
  readonly after: After
}

/** Used by every request, so it must be cheap. */
export type SourceObserver = {
  readonly asked: (source: string, answer: ProviderAnswer['kind'], seconds: number) => void
}

export type GuardedSource = ProfileProvider & { readonly breaker: () => 'closed' | 'open' | 'half_open' }

export const totalMaxMs = 8_000
/** The number of failures in a row after which calls do not ask the source for `openMs`. */
export const failuresMax = 10
/** The time after which one call asks the source again. */
export const openMs = 10_000
/** The pause if a source reports too many requests but states no time. */
const pauseSecondsDefault = 5

/**
 * Adds a total deadline, a circuit breaker and the pause that a source requests. An answer settles within `totalMaxMs` and by the caller's
 * deadline. It never rejects.
 */
export const guardSource = (
  source: ProfileSource,
  {
    clock,
    logger,
    observe,
  }: { readonly clock: Clock; readonly logger: Logger; readonly observe?: SourceObserver | undefined },
): GuardedSource => {
  // A trial always ends within `totalMaxMs`, so it needs no time limit here.
  const breaker = createCircuitBreaker<null>({
    failuresMax,
    openMs,
    openMsMax: openMs,
    trialMs: Number.POSITIVE_INFINITY,
  })
  let pausedUntilMs = 0
  return {
    name: source.name,
    breaker: () => breaker.state(clock.now()),
    fetch: async (ref, { deadlineMs, ageMaxMs }) => {
      if (source.supports?.(ref) === false) return { kind: 'unsupported' }
      const startedAtMs = clock.now()
      if (startedAtMs >= deadlineMs) return { kind: 'transient', detail: 'no time left' }
      if (startedAtMs < pausedUntilMs)
        return { kind: 'rate_limited', retryAfterSeconds: Math.ceil((pausedUntilMs - startedAtMs) / 1000) }
      const wasClosed = breaker.state(startedAtMs) === 'closed'
      if (breaker.refuses(startedAtMs) !== null)
        return { kind: 'transient', detail: 'not asked after too many failures' }
      const endMs = Math.min(deadlineMs, startedAtMs + totalMaxMs)
      const answer = await answerBy(source, ref, { deadlineMs: endMs, ageMaxMs, clock, logger })
      observe?.asked(source.name, answer.kind, (clock.now() - startedAtMs) / 1000)
      // The outcome of a request that was sent before the breaker opened does not show the source's current state.
      if (!wasClosed || breaker.state(clock.now()) === 'closed') {
        if (answer.kind === 'transient') breaker.fail(null, clock.now())
        else breaker.succeed()
      }
      if (answer.kind === 'rate_limited')
        pausedUntilMs = Math.max(
          pausedUntilMs,
          clock.now() + (answer.retryAfterSeconds ?? pauseSecondsDefault) * 1000,
        )
      return answer
    },
  }
}

const answerBy = async (
  source: ProfileSource,
  ref: ProfileRef,
  { clock, logger, ...asked }: AskOptions & { clock: Clock; logger: Logger },
): Promise<ProviderAnswer> => {
  const stop = new AbortController()
  const answer = source
    .fetch(ref, { ...asked, signal: stop.signal })
    .catch((error: unknown): ProviderAnswer => {
      logger.error(
        { err: error, provider: source.name },
        'a profile source rejected instead of returning an answer',
      )
      return { kind: 'transient', detail: 'failed' }
    })
  const deadline = { waitMs: asked.deadlineMs - clock.now(), after: clock.after }
  try {
    return await within(answer, deadline, () => ({ kind: 'transient', detail: 'too late' }))
  } finally {
    stop.abort()
  }
}
