import { createFairShare } from '../concurrency/fair-share.ts'

/**
 * How many calls may be in progress in this process, shared fairly by organizations. The bound follows the capacity of the process: while its
 * event loop is late, or no append of the last moment was quick (a standing queue of any length), it falls towards what is in progress less
 * a third; otherwise it rises again. A call beyond it is refused immediately instead of being answered late.
 */
export type Overload = {
  /** Begins a call of the organization. Returns a function that ends it, to be called once; null: refuse the call. */
  enter(organizationId: string): (() => void) | null
  /** Measures how long it takes until a call is in the ledger; settles as `work` does. */
  recording<Value>(work: Promise<Value>): Promise<Value>
  /** Adjusts the bound by the measurements since the last adjustment. Due every quarter of a second. */
  look(): void
  readonly inProgress: number
  readonly inProgressMax: number
  /** Calls refused so far. */
  readonly refused: number
}

type OverloadBounds = {
  readonly inProgressMost: number
  /** The minimum of the bound: so many calls cause no noticeable wait. */
  readonly inProgressLeast: number
  /** Of the event loop, in the mean of a look. */
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

/** Fewer prove nothing about a queue. */
const recordedMin = 4

/** `loopDelayMs` gives the mean delay of the event loop since it was last asked. */
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

/** After this time without a refusal it is over. */
const sheddingOverMs = 5_000
const toldAgainMs = 60_000

type SheddingLogger = Readonly<Record<'info' | 'warn', (fields: object, message: string) => void>>

/** Logs when refusals begin, their number after each minute, and when they end. Call it after every adjustment. */
export function createSheddingLog(
  overload: Pick<Overload, 'refused' | 'inProgress' | 'inProgressMax'>,
  logger: SheddingLogger,
  now: () => number = () => performance.now(),
): () => void {
  let seen = overload.refused
  let shedding: {
    readonly sinceMs: number
    readonly refusedBefore: number
    lastMs: number
    toldMs: number
  } | null = null
  return () => {
    const nowMs = now()
    const { refused, inProgress, inProgressMax } = overload
    if (refused > seen) {
      if (shedding === null) {
        shedding = { sinceMs: nowMs, refusedBefore: seen, lastMs: nowMs, toldMs: nowMs }
        logger.warn({ inProgress, inProgressMax }, 'calls: too many in progress; some are refused with 503')
      }
      shedding.lastMs = nowMs
    }
    seen = refused
    if (shedding === null) return
    const fields = {
      refused: refused - shedding.refusedBefore,
      seconds: Math.round((nowMs - shedding.sinceMs) / 1_000),
    }
    if (nowMs - shedding.lastMs >= sheddingOverMs) {
      shedding = null
      logger.info(fields, 'calls: no longer refused for lack of capacity')
    } else if (nowMs - shedding.toldMs >= toldAgainMs) {
      shedding.toldMs = nowMs
      logger.warn({ ...fields, inProgress, inProgressMax }, 'calls: still too many in progress')
    }
  }
}
