export type GatheringOptions<Ask, Answer> = {
  /**
   * Answers what `take` gives, one for one and in order. A run that takes late, with a connection in hand, takes what
   * came meanwhile too. Where it fails, those it took fail with it; where it took none, all who wait.
   */
  readonly run: (take: () => readonly Ask[]) => Promise<readonly Answer[]>
  /** Asks of one run. */
  readonly batchMax: number
  readonly underWayMax: number
  /** Asks that wait; one more is refused as `full`. */
  readonly waitingMax: number
  /** After so many milliseconds an ask is refused as `late` instead of taken. */
  readonly waitMaxMs?: number
  readonly refusal: (why: 'full' | 'late') => Error
  /** Such a failure is one for all who wait as well: they would only learn it later. */
  readonly failsAll?: (error: unknown) => boolean
}

/**
 * Many callers, few statements: what is asked in one turn of the event loop, or while as many runs as may be are under
 * way, goes into the next run together, in the order it came. No ask waits for others to come.
 */
export type Gathering<Ask, Answer> = {
  /** Settles as the run that takes it. */
  ask(ask: Ask): Promise<Answer>
  /** Resolves when nothing waits and nothing is under way. Never rejects. */
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

  /** One run at a time is started, and the next in a turn of its own: this one takes what it finds. */
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

  /** What is asked in this turn of the event loop is gathered first. */
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
