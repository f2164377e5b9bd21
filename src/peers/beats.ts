/**
 * Does something again and again, never twice at once: every so often, sooner while something changes, and at once when it
 * is asked for. Keeps no process alive.
 */
type Beats = {
  /** One that begins after now, as soon as may be. Resolves when it is over. Never rejects. */
  next(): Promise<void>
  /** For a while they come faster. */
  hurry(): void
  /** No further one; resolves when none is under way. */
  end(): Promise<void>
}

export type BeatsLimits = {
  readonly everyMs: number
  /** Between the beginnings of two, however often one is asked for. */
  readonly gapMs: number
  readonly hurriedEveryMs: number
  readonly hurryMs: number
}

export const beatsLimits: BeatsLimits = { everyMs: 1_000, gapMs: 50, hurriedEveryMs: 200, hurryMs: 5_000 }

/** `run` never rejects, and has a deadline of its own. The first one begins at the first `next`. */
export const createBeats = (run: () => Promise<void>, limits: BeatsLimits): Beats => {
  let timer: NodeJS.Timeout | undefined
  let underWay: Promise<void> | undefined
  let asked: PromiseWithResolvers<void> | undefined
  let begunMs = Number.NEGATIVE_INFINITY
  let hurriedUntilMs = Number.NEGATIVE_INFINITY
  let ended = false

  const schedule = (): void => {
    clearTimeout(timer)
    if (ended || underWay !== undefined) return
    const nowMs = performance.now()
    const everyMs = nowMs < hurriedUntilMs ? limits.hurriedEveryMs : limits.everyMs
    const dueMs = begunMs + (asked === undefined ? everyMs : limits.gapMs)
    timer = setTimeout(begin, Math.max(0, dueMs - nowMs)).unref()
  }
  const begin = (): void => {
    const answers = asked
    asked = undefined
    begunMs = performance.now()
    underWay = run().then(() => {
      underWay = undefined
      answers?.resolve()
      schedule()
    })
  }
  return {
    next: () => {
      if (ended) return Promise.resolve()
      asked ??= Promise.withResolvers<void>()
      const { promise } = asked
      schedule()
      return promise
    },
    hurry: () => {
      hurriedUntilMs = performance.now() + limits.hurryMs
      if (asked === undefined) schedule()
    },
    end: async () => {
      ended = true
      clearTimeout(timer)
      await underWay
      asked?.resolve()
    },
  }
}
