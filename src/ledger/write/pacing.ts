/**
 * How processes that append to one ledger at the same time take turns. Pure.
 *
 * The first append at a place of the stream wins it. The winner is ahead for the next place too: it has nothing to read, while
 * the others read its events before they decide. So a process that has learned of others pauses after each append of its
 * own. A process that lost does not pause. Batches stay whole, and what arrives during a pause joins the next one.
 */
export type Pacing = {
  /** Another process has appended to the ledger, or reports that it tries to. */
  competed(nowMs: number): void
  /** This process has appended. */
  appended(nowMs: number): void
  /** An append of this process was refused: it tries again immediately. `tell`: notify the others that it tries. */
  lost(nowMs: number): { readonly tell: boolean }
  /** How long the next append has to wait. */
  waitMs(nowMs: number): number
}

/** Others count for so long after they were last noticed. */
const competitionMs = 2_000
const pauseMinMs = 1
const pauseMaxMs = 6
/** Now and then a pause is long enough for a process far from the log to read it and to append. */
const longPauseMs = 60
const longPauseEvery = 8
/** A process that never loses does not learn of others by itself. */
const toldEveryMs = 500

/** `random` as `Math.random`. */
export function createPacing(random: () => number): Pacing {
  let competedUntilMs = Number.NEGATIVE_INFINITY
  let notBeforeMs = Number.NEGATIVE_INFINITY
  let toldMs = Number.NEGATIVE_INFINITY
  const pauseMs = (): number =>
    random() * longPauseEvery < 1 ? longPauseMs : pauseMinMs + random() * (pauseMaxMs - pauseMinMs)
  const competed = (nowMs: number): void => {
    competedUntilMs = nowMs + competitionMs
  }
  return {
    competed,
    appended: (nowMs) => {
      if (nowMs < competedUntilMs) notBeforeMs = nowMs + pauseMs()
    },
    lost: (nowMs) => {
      competed(nowMs)
      notBeforeMs = nowMs
      const tell = nowMs - toldMs >= toldEveryMs
      if (tell) toldMs = nowMs
      return { tell }
    },
    waitMs: (nowMs) => Math.max(0, notBeforeMs - nowMs),
  }
}
