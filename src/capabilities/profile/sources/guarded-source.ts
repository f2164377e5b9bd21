import { createCircuitBreaker } from '../../../concurrency/circuit-breaker.ts'
import { type After, within } from '../../../concurrency/deadline.ts'
import type { Logger } from './http-provider-attempts.ts'
import type { AskOptions, ProfileProvider, ProfileRef, ProfileSource, ProviderAnswer } from './provider.ts'

/** `now` and `after` use one clock, that of `performance.now()`. `after` returns a function that cancels it. */
export type Clock = {
  readonly now: () => number
  readonly after: After
}

/** What operations need to know about a source. Called on every request, so it must be cheap. */
export type SourceObserver = {
  /** A source answered, or its time was over. */
  readonly asked: (source: string, answer: ProviderAnswer['kind'], seconds: number) => void
}

export type GuardedSource = ProfileProvider & { readonly breaker: Breaker['state'] }

export const totalMaxMs = 8_000
/** If a source reports too many requests, but not for how long. */
const pauseSecondsDefault = 5

/**
 * A source with a total deadline, a breaker, and the pause that it asks for. Its answer settles within `totalMaxMs` and by the
 * caller's deadline, and never rejects.
 */
export const guardSource = (
  source: ProfileSource,
  {
    clock,
    logger,
    observe,
  }: { readonly clock: Clock; readonly logger: Logger; readonly observe?: SourceObserver | undefined },
): GuardedSource => {
  const breaker = createBreaker({ now: clock.now })
  let pausedUntilMs = 0
  return {
    name: source.name,
    breaker: breaker.state,
    fetch: async (ref, { deadlineMs, ageMaxMs }) => {
      if (source.supports?.(ref) === false) return { kind: 'unsupported' }
      const startedAtMs = clock.now()
      if (startedAtMs >= deadlineMs) return { kind: 'transient', detail: 'no time left' }
      if (startedAtMs < pausedUntilMs)
        return { kind: 'rate_limited', retryAfterSeconds: Math.ceil((pausedUntilMs - startedAtMs) / 1000) }
      const report = breaker.admit()
      if (report === null) return { kind: 'transient', detail: 'left alone after too many failures' }
      const endMs = Math.min(deadlineMs, startedAtMs + totalMaxMs)
      const answer = await answerBy(source, ref, { deadlineMs: endMs, ageMaxMs, clock, logger })
      observe?.asked(source.name, answer.kind, (clock.now() - startedAtMs) / 1000)
      report(answer.kind === 'transient' ? 'failed' : 'answered')
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
      logger.error({ err: error, provider: source.name }, 'a profile source failed where it must not')
      return { kind: 'transient', detail: 'failed' }
    })
  const deadline = { waitMs: asked.deadlineMs - clock.now(), after: clock.after }
  try {
    return await within(answer, deadline, () => ({ kind: 'transient', detail: 'too late' }))
  } finally {
    stop.abort()
  }
}

/** Keeps calls away from a source that fails. */
type Breaker = {
  /** Null: do not ask. Otherwise report the result exactly once. */
  readonly admit: () => ((outcome: 'answered' | 'failed') => void) | null
  readonly state: () => 'closed' | 'open' | 'half_open'
}

/** Failures in a row after which a source is left alone. */
export const failuresMax = 10
/** Then one call tries. */
export const openMs = 10_000

/** `now` counts milliseconds and never goes back. */
export const createBreaker = ({ now }: { now: () => number }): Breaker => {
  // A trial reports its result, so it needs no end of its own.
  const breaker = createCircuitBreaker<null>({
    failuresMax,
    openMs,
    openMsMax: openMs,
    trialMs: Number.POSITIVE_INFINITY,
  })
  return {
    admit: () => {
      const wasClosed = breaker.state(now()) === 'closed'
      if (breaker.refuses(now()) !== null) return null
      return (outcome) => {
        // Questions from before it opened show nothing new about a source that was not asked since.
        if (wasClosed && breaker.state(now()) !== 'closed') return
        if (outcome === 'answered') breaker.succeed()
        else breaker.fail(null, now())
      }
    },
    state: () => breaker.state(now()),
  }
}
