/**
 * A limit on calls in progress that parties share, without a queue. While less than half of the limit is used, every call is allowed. Otherwise, a
 * call is allowed if its party has less than its share, which is the limit divided by the number of parties with calls in progress. A busy party can
 * therefore use capacity that others do not need, and the call of a new party is allowed immediately. Each party can exceed the limit by one call.
 */
export type FairShare = {
  /** Returns a function that ends the call and must be called exactly once, or null if the party has used its share. */
  enter(party: string): (() => void) | null
  readonly inProgress: number
}

/** `limit` is called for every call, because the capacity can change. */
export const createFairShare = (limit: () => number): FairShare => {
  const held = new Map<string, number>()
  let inProgress = 0
  return {
    enter: (party) => {
      const own = held.get(party) ?? 0
      const max = limit()
      if (inProgress * 2 >= max) {
        const parties = held.size + (own === 0 ? 1 : 0)
        if (own > 0 && own * parties >= max) return null
      }
      held.set(party, own + 1)
      inProgress += 1
      let entered = true
      return () => {
        if (!entered) return
        entered = false
        inProgress -= 1
        const left = (held.get(party) ?? 1) - 1
        if (left === 0) held.delete(party)
        else held.set(party, left)
      }
    },
    get inProgress() {
      return inProgress
    },
  }
}
