/** Simulated time. `run` executes the due steps one after the other, in the order of their times. */
const createTime = () => {
  type Due = { atMs: number; order: number; happen: () => void }
  let due: Due[] = []
  let order = 0
  const turn = globalThis.setImmediate
  const state = {
    nowMs: 0,
    reset: (nowMs: number): void => {
      due = []
      order = 0
      state.nowMs = nowMs
    },
    wait: (ms: number): Promise<void> =>
      new Promise((resolve) => {
        const entry = { atMs: state.nowMs + ms, order: order++, happen: resolve }
        // Insertion by bisection, because thousands of steps can be waiting.
        let low = 0
        let high = due.length
        while (low < high) {
          const middle = (low + high) >> 1
          const other = due[middle]
          if (other !== undefined && other.atMs <= entry.atMs) low = middle + 1
          else high = middle
        }
        due.splice(low, 0, entry)
      }),
    /** Runs until `done`, or until no steps are left. */
    run: async (done: () => boolean): Promise<void> => {
      for (;;) {
        await new Promise<void>((resolve) => turn(resolve))
        if (done()) return
        const next = due.shift()
        if (next === undefined) return
        state.nowMs = Math.max(state.nowMs, next.atMs)
        next.happen()
        // Steps due at the same time run together, as in one turn of the event loop.
        while (due[0] !== undefined && due[0].atMs <= state.nowMs) due.shift()?.happen()
      }
    },
  }
  return state
}

export const time = createTime()
