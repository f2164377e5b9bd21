/** When a forked process that ended is started again, and when that would be of no use. Pure. */

/** Also longer than the same signal needs to reach every process of a group: a fork that it ended is not replaced. */
const pauseMinMs = 250
const pauseMaxMs = 30_000
/** One that answered for so long did not end for what made the last one end. */
const steadyMs = 60_000
/** With the pauses between them about 4 s and as many starts. */
const failedStartsMax = 5

/** How one of the forks fared, over all the processes that took its place. */
export type Fortune = {
  /** Ends in a row, none after a steady time. */
  readonly ends: number
  /** Ends in a row before it answered. */
  readonly failedStarts: number
}

export const untried: Fortune = { ends: 0, failedStarts: 0 }

/** After one more end. `answeredMs`: how long it had answered; null where it never did. */
export const afterEnd = ({ ends, failedStarts }: Fortune, answeredMs: number | null): Fortune => ({
  ends: answeredMs !== null && answeredMs >= steadyMs ? 1 : ends + 1,
  failedStarts: answeredMs === null ? failedStarts + 1 : 0,
})

export const pauseMsAfter = ({ ends }: Fortune): number =>
  Math.min(pauseMaxMs, pauseMinMs * 2 ** Math.min(ends - 1, 20))

/** While the service starts, one that cannot start is enough; later the others go on answering without it. */
export const isHopeless = (
  { failedStarts }: Fortune,
  { starting, othersAnswer }: { readonly starting: boolean; readonly othersAnswer: boolean },
): boolean => failedStarts >= failedStartsMax && (starting || !othersAnswer)
