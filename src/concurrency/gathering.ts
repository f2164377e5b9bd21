export type GatheringOptions<Ask, Answer> = {
  /**
   * Answers the requests that `take` returns, one for one and in order. A run that takes late, after getting a connection, also takes requests
   * that came in the meantime. If it fails, the requests it took fail with it; if it took none, all that wait.
   */
  readonly run: (take: () => readonly Ask[]) => Promise<readonly Answer[]>
  /** Requests of one run. */
  readonly batchMax: number
  readonly underWayMax: number
  /** Requests that wait; one more is refused as `full`. */
  readonly waitingMax: number
  /** After this many milliseconds a request is refused as `late` instead of taken. */
  readonly waitMaxMs?: number
  readonly refusal: (why: 'full' | 'late') => Error
  /** Whether such a failure also applies to all waiting requests, which would only fail later. */
  readonly failsAll?: (error: unknown) => boolean
}

/**
 * Many callers, few statements: requests that come in one turn of the event loop, or while the maximum of runs is in
 * progress, go into the next run together, in the order they came. No request waits for others to come.
 */
export type Gathering<Ask, Answer> = {
  /** Settles with the run that takes it. */
  ask(ask: Ask): Promise<Answer>
  /** Resolves when nothing waits and nothing is in progress. Never rejects. */
  settled(): Promise<void>
}

type Waiting<Ask, Answer> = {
  readonly ask: Ask
  readonly giveUpMs: number
  readonly resolve: (answer: Answer) => void
  readonly reject: (error: unknown) => void
}

export const createGathering = <Ask, Answer>(
  options: GatheringOptions<Ask, Answer>,
): Gathering<Ask, Answer> => {
  const { waitMaxMs = Number.POSITIVE_INFINITY } = options
  let waiting: Waiting<Ask, Answer>[] = []
  let starting = false
  let underWay = 0
  let whenIdle = Promise.withResolvers<void>()
  whenIdle.resolve()

  const takeBatch = (): readonly Waiting<Ask, Answer>[] => {
    const nowMs = performance.now()
    const batch = waiting.splice(0, options.batchMax)
    for (const { giveUpMs, reject } of batch) if (giveUpMs <= nowMs) reject(options.refusal('late'))
    return batch.filter(({ giveUpMs }) => giveUpMs > nowMs)
  }

  const failWaiting = (error: unknown): void => {
    const failed = waiting
    waiting = []
    for (const { reject } of failed) reject(error)
  }

  const runOnce = async (): Promise<void> => {
    let taken: readonly Waiting<Ask, Answer>[] | undefined
    try {
      const answers = await options.run(() => {
        taken = takeBatch()
        return taken.map(({ ask }) => ask)
      })
      settle(taken ?? [], answers)
    } catch (error) {
      for (const { reject } of taken ?? []) reject(error)
      if (taken === undefined || options.failsAll?.(error) === true) failWaiting(error)
    }
  }

  /** Starts one run at a time, and the next one in its own turn, because this run takes all requests it finds. */
  const start = (): void => {
    starting = false
    if (waiting.length === 0 && underWay === 0) whenIdle.resolve()
    if (waiting.length === 0 || underWay >= options.underWayMax) return
    underWay += 1
    void runOnce().then(() => {
      underWay -= 1
      start()
    })
    startSoon()
  }

  /** Requests of this turn of the event loop are gathered first. */
  const startSoon = (): void => {
    if (starting) return
    starting = true
    setImmediate(start)
  }

  return {
    ask: (ask) => {
      if (waiting.length >= options.waitingMax) return Promise.reject(options.refusal('full'))
      if (waiting.length === 0 && underWay === 0) whenIdle = Promise.withResolvers()
      const { promise, resolve, reject } = Promise.withResolvers<Answer>()
      waiting.push({ ask, giveUpMs: performance.now() + waitMaxMs, resolve, reject })
      startSoon()
      return promise
    },
    settled: () => whenIdle.promise,
  }
}

const settle = <Ask, Answer>(taken: readonly Waiting<Ask, Answer>[], answers: readonly Answer[]): void => {
  if (answers.length !== taken.length) throw new Error(`${answers.length} answers to ${taken.length} asks`)
  const next = answers.values()
  for (const { resolve } of taken) {
    const { done, value } = next.next()
    if (done !== true) resolve(value)
  }
}
