/**
 * A bound on what is in progress, shared by parties without a queue. While less than half of it is in progress everybody is let
 * in. From then on a party is let in while it has less than its share: the bound, divided by the parties that have anything in
 * progress. So one that floods fills what the others do not ask for, and a newcomer is let in at once. All together may pass
 * the bound by one for each party.
 */
type FairShare = {
  /** What ends it, to be called once; null: the party has its share. */
  enter(party: string): (() => void) | null
  readonly inProgress: number
}

/** `limit` is asked each time: it may change with what there is to share. */
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
