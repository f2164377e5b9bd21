import { createFairShare } from '../concurrency/fair-share.ts'

/**
 * Limits the calls in progress in this process, with fair shares for organizations. While the event loop is late, or every recent
 * append was slow (because a queue does not empty), the limit falls to two thirds of the calls in progress. Otherwise the limit
 * rises. A call above the limit is refused immediately instead of being answered late.
 */
export type Overload = {
  /** Starts a call of the organization. Returns a function that ends the call, to be called once; null if the call must be refused. */
  enter(organizationId: string): (() => void) | null
  /** Measures how long it takes to record a call. Settles as `work` does. */
  recording<Value>(work: Promise<Value>): Promise<Value>
  /** Adjusts the limit to the measurements since the last adjustment. Called every quarter of a second. */
  look(): void
  readonly inProgress: number
  readonly inProgressMax: number
  readonly refused: number
}

type OverloadBounds = {
  readonly inProgressMost: number
  /** The minimum of the limit. This number of calls causes no noticeable wait. */
  readonly inProgressLeast: number
  /** The maximum for the mean delay of the event loop since the last adjustment. */
  readonly loopDelayMaxMs: number
  readonly recordingMaxMs: number
}

/** `now` is in milliseconds and never goes backwards. */
type OverloadOptions = { readonly bounds?: OverloadBounds; readonly now?: () => number }

const overloadBounds: OverloadBounds = {
  inProgressMost: 4_096,
  inProgressLeast: 256,
  loopDelayMaxMs: 150,
  recordingMaxMs: 500,
}

/** Fewer appends than this are not considered, because a few slow appends do not prove that there is a queue. */
const recordedMin = 4

/** `loopDelayMs` returns the mean delay of the event loop since the previous call. */
export const createOverload = (
  loopDelayMs: () => number,
  { bounds = overloadBounds, now = () => performance.now() }: OverloadOptions = {},
): Overload => {
  let inProgressMax = bounds.inProgressMost
  let recordings = 0
  let quickestMs = Number.POSITIVE_INFINITY
  let refused = 0
  const calls = createFairShare(() => inProgressMax)
  return {
    enter: (organizationId) => {
      const leave = calls.enter(organizationId)
      if (leave === null) refused += 1
      return leave
    },
    recording: async (work) => {
      const beganMs = now()
      const recorded = await work
      recordings += 1
      quickestMs = Math.min(quickestMs, now() - beganMs)
      return recorded
    },
    look: () => {
      const queueStands = recordings >= recordedMin && quickestMs > bounds.recordingMaxMs
      const late = loopDelayMs() > bounds.loopDelayMaxMs || queueStands
      recordings = 0
      quickestMs = Number.POSITIVE_INFINITY
      const next = late
        ? Math.floor((Math.min(inProgressMax, calls.inProgress) * 2) / 3)
        : Math.ceil(inProgressMax * 1.25)
      inProgressMax = Math.min(bounds.inProgressMost, Math.max(bounds.inProgressLeast, next))
    },
    get inProgress() {
      return calls.inProgress
    },
    get inProgressMax() {
      return inProgressMax
    },
    get refused() {
      return refused
    },
  }
}

const logPauseMs = 60_000

type OverloadLogger = Readonly<Record<'warn', (fields: object, message: string) => void>>

/** Logs the number of refused calls, at most once a minute. The returned function must be called after every adjustment. */
export const createSheddingLog = (
  overload: Pick<Overload, 'refused' | 'inProgress' | 'inProgressMax'>,
  logger: OverloadLogger,
): (() => void) => {
  let logged = { refused: overload.refused, atMs: Number.NEGATIVE_INFINITY }
  return () => {
    const { refused, inProgress, inProgressMax } = overload
    const nowMs = performance.now()
    if (refused === logged.refused || nowMs - logged.atMs < logPauseMs) return
    logger.warn(
      { refused: refused - logged.refused, inProgress, inProgressMax },
      'calls: too many in progress; some were refused with 503',
    )
    logged = { refused, atMs: nowMs }
  }
}
