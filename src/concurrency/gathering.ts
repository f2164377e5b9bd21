export type GatheringOptions<Ask, Answer> = {
  /**
   * Answers the requests that `take` returns, one by one and in order. If `take` is called only after a connection is available, it also returns
   * requests that arrived in the meantime. If a run fails, the requests that it took fail. If it took none, all waiting requests fail.
   */
  readonly run: (take: () => readonly Ask[]) => Promise<readonly Answer[]>
  /** The maximum number of requests in one run. */
  readonly batchMax: number
  readonly underWayMax: number
  /** The maximum number of waiting requests. Further requests are refused as `full`. */
  readonly waitingMax: number
  /** A request that waits longer is refused as `late`. */
  readonly waitMaxMs?: number
  readonly refusal: (why: 'full' | 'late') => Error
  /** Whether an error also fails all waiting requests, because they would fail later anyway. */
  readonly failsAll?: (error: unknown) => boolean
}

/**
 * Combines the requests of many callers into few runs. Requests that arrive in one turn of the event loop, or while `underWayMax` runs are in
 * progress, are handled in order by the next run. No request waits for later ones.
 */
export type Gathering<Ask, Answer> = {
  /** Settles when the run that takes the request settles. */
  ask(ask: Ask): Promise<Answer>
  /** Resolves when nothing is waiting and nothing is in progress. Never rejects. */
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

  /** Starts one run in each turn of the event loop, because a run takes all waiting requests. */
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

  /** Starts after this turn of the event loop, so that one run takes all its requests. */
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
  if (answers.length !== taken.length)
    throw new Error(`a run returned ${answers.length} answers for ${taken.length} requests`)
  const next = answers.values()
  for (const { resolve } of taken) {
    const { done, value } = next.next()
    if (done !== true) resolve(value)
  }
}
