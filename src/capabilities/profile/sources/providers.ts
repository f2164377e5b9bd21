import { createCircuitBreaker } from '../../../concurrency/circuit-breaker.ts'
import { type After, within } from '../../../concurrency/deadline.ts'
import type { Logger } from './http-provider-attempts.ts'
import type { ProfileProvider, ProfileRef, ProviderAnswer } from './provider.ts'

/**
 * Combines the sources of this installation into one: a total deadline, a breaker and a pause for each, and a second source
 * that replaces the first if it fails or is unusually late. Both count as equals: the second source's answer is the answer, even if
 * it is that the identifier belongs to no one.
 */
export type Providers = {
  /** Of the sources together, such as `dataset_http`: the operator's name for the origin of profiles. */
  readonly name: string
  /** As the port's `fetch`, and names the source that answered. Settles within `totalMaxMs` and by the deadline. Never rejects. */
  readonly fetch: (
    ref: ProfileRef,
    options: Parameters<ProfileProvider['fetch']>[1],
  ) => Promise<ProviderAnswer & { readonly provider: string }>
  /** For metrics. */
  readonly status: () => readonly {
    readonly provider: string
    readonly breaker: ReturnType<Breaker['state']>
    /** The end of the pause that the source asked for; 0 if there is none. */
    readonly pausedMs: number
    readonly hedges: number
  }[]
  readonly close: () => Promise<void>
}

/** `now` and `after` use one clock, that of `performance.now()`. `after` returns a function that cancels it. */
export type Clock = {
  readonly now: () => number
  readonly after: After
}

/** What operations need to know about sources. Called on every request, so it must be cheap. */
export type ProviderObserver = {
  /** A source answered, or its time was over. `abandoned`: no one waits for it any longer, because another source was faster. */
  readonly asked: (provider: string, answer: ProviderAnswer['kind'] | 'abandoned', seconds: number) => void
}

/** The arguments that every source gets. */
type Around = {
  readonly clock: Clock
  readonly logger: Logger
  readonly observe?: ProviderObserver | undefined
}

export const totalMaxMs = 8_000
/** If a source reports too many requests, but not for how long. */
const pauseSecondsDefault = 5
/** Of the last calls. */
const latenciesKept = 200
/** With fewer, "unusually late" cannot be determined. */
const latenciesMin = 20
const hedgeShareMax = 0.05
/** Calls save up for this many hedges, so that a bad minute cannot spend all the savings of a good day. */
const hedgesSavedMax = 5

export type Source = ProfileProvider & { readonly supports?: (ref: ProfileRef) => boolean }

/** A source with its state. */
type Lane = {
  readonly provider: Source
  readonly breaker: Breaker
  readonly latenciesMs: number[]
  pausedUntilMs: number
  hedges: number
}

type Asked = {
  readonly ref: ProfileRef
  readonly ageMaxMs: number | null
  readonly deadlineMs: number
  readonly signal: AbortSignal
}

type Sourced = ProviderAnswer & { readonly provider: string }

/** `providers`: the first is asked first; at most two. */
export const combineProviders = (providers: readonly Source[], around: Around): Providers => {
  const { clock } = around
  const lanes = providers.map(
    (provider): Lane => ({
      provider,
      breaker: createBreaker({ now: clock.now }),
      latenciesMs: [],
      pausedUntilMs: 0,
      hedges: 0,
    }),
  )
  const budget = createHedgeBudget()

  return {
    name: providers.map(({ name }) => name).join('_'),
    fetch: async (ref, { deadlineMs, ageMaxMs, signal }) => {
      const [first, second] = lanes.filter(({ provider }) => provider.supports?.(ref) !== false)
      // No source can be asked by such an identifier.
      if (first === undefined) return { kind: 'unsupported', provider: lanes[0]?.provider.name ?? 'none' }
      const asked = { ref, ageMaxMs, deadlineMs: Math.min(deadlineMs, clock.now() + totalMaxMs), signal }
      if (second === undefined) return await ask(first, asked, around)
      return await askTwo({ first, second, asked, budget, around })
    },
    status: () =>
      lanes.map(({ provider, breaker, pausedUntilMs, hedges }) => ({
        provider: provider.name,
        breaker: breaker.state(),
        pausedMs: Math.max(0, Math.ceil(pausedUntilMs - clock.now())),
        hedges,
      })),
    close: async () => {
      await Promise.all(lanes.map(({ provider }) => provider.close?.()))
    },
  }
}

const isFailure = ({ kind }: ProviderAnswer): boolean =>
  kind === 'transient' || kind === 'rate_limited' || kind === 'malformed'

/** Only a source that found the person replaces the first source: "no one" from the second does not describe the first. */
const knows = ({ kind }: ProviderAnswer): boolean => kind === 'found' || kind === 'gone'

const askTwo = async ({
  first,
  second,
  asked,
  budget,
  around,
}: {
  first: Lane
  second: Lane
  asked: Asked
  budget: HedgeBudget
  around: Around
}): Promise<Sourced> => {
  budget.save()
  const stops = { first: new AbortController(), second: new AbortController() }
  const run = (lane: Lane, stop: AbortController): Promise<Sourced> =>
    ask(lane, { ...asked, signal: AbortSignal.any([asked.signal, stop.signal]) }, around)
  const firstAnswer = run(first, stops.first)
  const standIn = async (answer: Sourced): Promise<Sourced> => {
    if (!isFailure(answer) || asked.signal.aborted) return answer
    const other = await run(second, stops.second)
    return knows(other) ? other : answer
  }

  const inTime = await within(
    firstAnswer,
    { waitMs: lateAfterMs(first), after: around.clock.after },
    () => null,
  )
  if (inTime !== null) return await standIn(inTime)
  if (!budget.spend()) return await standIn(await firstAnswer)
  second.hedges++
  const secondAnswer = run(second, stops.second)
  const winner = await Promise.race([
    firstAnswer.then((answer) => ({ answer, by: 'first' as const })),
    secondAnswer.then((answer) => ({ answer, by: 'second' as const })),
  ])
  if (winner.by === 'second') {
    if (!knows(winner.answer)) return await firstAnswer
    stops.first.abort()
    return winner.answer
  }
  if (isFailure(winner.answer)) {
    const other = await secondAnswer
    return knows(other) ? other : winner.answer
  }
  stops.second.abort()
  return winner.answer
}

/** The 95th percentile of this source's recent times; undefined while too few are known. */
const lateAfterMs = ({ latenciesMs }: Lane): number | undefined => {
  if (latenciesMs.length < latenciesMin) return undefined
  const sorted = latenciesMs.toSorted((a, b) => a - b)
  return sorted[Math.ceil(sorted.length * 0.95) - 1]
}

type HedgeBudget = { readonly save: () => void; readonly spend: () => boolean }

/** Counted in whole parts of a hedge: a sum of twenty times 0.05 is less than one. */
const createHedgeBudget = (): HedgeBudget => {
  const callsPerHedge = Math.round(1 / hedgeShareMax)
  let calls = 0
  return {
    save: () => {
      calls = Math.min(calls + 1, callsPerHedge * hedgesSavedMax)
    },
    spend: () => {
      if (calls < callsPerHedge) return false
      calls -= callsPerHedge
      return true
    },
  }
}

/** Asks one source, if it may be asked now; in any case there is an answer by the deadline. */
const ask = async (
  lane: Lane,
  { ref, ageMaxMs, deadlineMs, signal }: Asked,
  { clock, logger, observe }: Around,
): Promise<Sourced> => {
  const provider = lane.provider.name
  const startedAtMs = clock.now()
  if (signal.aborted) return { kind: 'transient', detail: 'aborted', provider }
  if (startedAtMs >= deadlineMs) return { kind: 'transient', detail: 'no time left', provider }
  if (startedAtMs < lane.pausedUntilMs)
    return {
      kind: 'rate_limited',
      retryAfterSeconds: Math.ceil((lane.pausedUntilMs - startedAtMs) / 1000),
      provider,
    }
  const report = lane.breaker.admit()
  if (report === null) return { kind: 'transient', detail: 'left alone after too many failures', provider }
  const answer = await answerBy({ lane, ref, ageMaxMs, deadlineMs, signal, clock, logger })
  observe?.asked(provider, signal.aborted ? 'abandoned' : answer.kind, (clock.now() - startedAtMs) / 1000)
  report(signal.aborted ? 'unknown' : answer.kind === 'transient' ? 'failed' : 'answered')
  if (answer.kind === 'rate_limited')
    lane.pausedUntilMs = Math.max(
      lane.pausedUntilMs,
      clock.now() + (answer.retryAfterSeconds ?? pauseSecondsDefault) * 1000,
    )
  if (!isFailure(answer)) {
    lane.latenciesMs.push(clock.now() - startedAtMs)
    if (lane.latenciesMs.length > latenciesKept) lane.latenciesMs.shift()
  }
  return { ...answer, provider }
}

const answerBy = async ({
  lane,
  ref,
  clock,
  logger,
  ...asked
}: Asked & { lane: Lane; clock: Clock; logger: Logger }): Promise<ProviderAnswer> => {
  const stop = new AbortController()
  const signal = AbortSignal.any([asked.signal, stop.signal])
  const answer = lane.provider.fetch(ref, { ...asked, signal }).catch((error: unknown): ProviderAnswer => {
    logger.error({ err: error, provider: lane.provider.name }, 'a profile source failed where it must not')
    return { kind: 'transient', detail: 'failed' }
  })
  const deadline = { waitMs: asked.deadlineMs - clock.now(), signal: asked.signal, after: clock.after }
  try {
    return await within(answer, deadline, () => ({
      kind: 'transient',
      detail: asked.signal.aborted ? 'aborted' : 'too late',
    }))
  } finally {
    stop.abort()
  }
}

/** Keeps calls away from a source that fails. */
type Breaker = {
  /** Null: do not ask. Otherwise report the result exactly once; `unknown` if the caller left before. */
  readonly admit: () => ((outcome: 'answered' | 'failed' | 'unknown') => void) | null
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
        else if (outcome === 'failed') breaker.fail(null, now())
        else breaker.abandon()
      }
    },
    state: () => breaker.state(now()),
  }
}
