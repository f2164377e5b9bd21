/** A call that waits for an answer. */
export type Waiting = {
  readonly sinceMs: number
  /** Called once, where the answer is late or will not come. */
  giveUp(): void
}

/** The calls that wait for an answer, each for so long at most. */
export type LateAnswers = {
  waiting(): number
  add(one: Waiting): void
  /** The answer is there. False: it was given up before. */
  settle(one: Waiting): boolean
  giveUpAll(): void
}

/**
 * One timer for all that wait, for the one that waits longest. A timer per command, as the client's `commandTimeout`
 * would set, costs more than the command's own bookkeeping and lets each waiting call find out for itself.
 */
export const createLateAnswers = ({
  answerMaxMs,
  late,
}: {
  readonly answerMaxMs: number
  /** Some were given up for being late. */
  readonly late: (nowMs: number) => void
}): LateAnswers => {
  const waiting = new Set<Waiting>()
  let timer: NodeJS.Timeout | undefined

  const watch = (delayMs: number): void => {
    timer ??= setTimeout(() => {
      timer = undefined
      const [oldest] = waiting
      if (oldest === undefined) return
      const waitedMs = performance.now() - oldest.sinceMs
      if (waitedMs < answerMaxMs) return watch(answerMaxMs - waitedMs)
      // When this process itself was held up, the answers are there and not yet read: sockets come after timers.
      setImmediate(giveUpLate)
    }, delayMs)
  }

  const giveUpLate = (): void => {
    const nowMs = performance.now()
    let anyLate = false
    for (const one of waiting) {
      if (nowMs - one.sinceMs < answerMaxMs) break
      anyLate = true
      waiting.delete(one)
      one.giveUp()
    }
    if (anyLate) late(nowMs)
    if (waiting.size > 0) watch(0)
  }

  return {
    waiting: () => waiting.size,
    add: (one) => {
      waiting.add(one)
      watch(answerMaxMs)
    },
    settle: (one) => waiting.delete(one),
    giveUpAll: () => {
      clearTimeout(timer)
      timer = undefined
      for (const one of waiting) one.giveUp()
      waiting.clear()
    },
  }
}
