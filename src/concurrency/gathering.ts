export type GatheringOptions<Ask, Answer> = {
  /**
   * Answers the requests that `take` returns, one by one and in order. A run that calls `take` late, after getting a connection, also gets
   * requests that arrived in the meantime. If a run fails, the requests that it took fail too. If it took none, all waiting requests fail.
   */
  readonly run: (take: () => readonly Ask[]) => Promise<readonly Answer[]>
  /** The maximum number of requests in one run. */
  readonly batchMax: number
  readonly underWayMax: number
  /** The maximum number of waiting requests; a further request is refused as `full`. */
  readonly waitingMax: number
  /** The longest wait in milliseconds; a request that waits longer is refused as `late`. */
  readonly waitMaxMs?: number
  readonly refusal: (why: 'full' | 'late') => Error
  /** Whether a failure that this accepts also fails all waiting requests, because they would fail later anyway. */
  readonly failsAll?: (error: unknown) => boolean
}

/**
 * Joins requests of many callers into few runs. Requests that arrive in one turn of the event loop, or while `underWayMax` runs are in
 * progress, go into the next run together and in order. No request waits for later requests.
 */
export type Gathering<Ask, Answer> = {
  /** Settles with the run that takes the request. */
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

  /** Starts one run per turn of the event loop, because a run takes all requests that it finds. */
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

  /** Starts after this turn of the event loop, so that all its requests are in one run. */
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
