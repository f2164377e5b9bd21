import { within } from '../concurrency/deadline.ts'
import { createFairShare } from '../concurrency/fair-share.ts'
import { CommandRefused } from '../ledger/command.ts'

/**
 * Computes pages that take too long for one request. This process computes each page, reports the progress, and stores the result until it is
 * fetched. If the process ends, the page has to be requested again.
 */

/** `organizationId` is null for the operator's users. */
export type Asker = { readonly user: string; readonly organizationId: string | null }

/** All users of a partner's organization share one limit. */
const partyOf = ({ user, organizationId }: Asker): string => organizationId ?? user

/** Limits long-running work. The operator's users have separate limits, so that they never wait for partners. */
export const createPlaces = (max: number) => {
  const partners = createFairShare(() => max)
  const operators = createFairShare(() => max)
  /**
   * Takes one of the places. Returns a function that frees the place and must be called exactly once; null if the share of the asker is used
   * up.
   */
  return (asker: Asker): (() => void) | null =>
    (asker.organizationId === null ? operators : partners).enter(partyOf(asker))
}

/** Running work, as its page shows it. */
export type Work = {
  readonly title: string
  readonly startedAtMs: number
  readonly progress: string
}

type Asked<Result> = {
  /** Identifies the work: a request with the same owner and key gets the same work while the work is stored. */
  readonly key: string
  readonly title: string
  /** The user and their role. Only this user can see the result. */
  readonly owner: string
  readonly asker: Asker
  readonly run: (progress: (text: string) => void) => Promise<Result>
}

const runningMax = 4
/** The maximum number of stored results for each partner, and for each of the operator's users. */
const keptMax = 50
const keptMs = 10 * 60_000

type Kept = Work & {
  progress: string
  readonly party: string
  endedAtMs: number | null
  readonly result: Promise<unknown>
}

export type Works = ReturnType<typeof createWorks>

const begun = <Result>(
  { title, asker, run }: Asked<Result>,
  nowMs: () => number,
  leave: () => void,
): Kept => {
  const work: Kept = {
    title,
    party: partyOf(asker),
    startedAtMs: nowMs(),
    progress: 'Started.',
    endedAtMs: null,
    result: Promise.resolve()
      .then(() => run((text) => Object.assign(work, { progress: text })))
      .finally(() => {
        Object.assign(work, { endedAtMs: nowMs() })
        leave()
      }),
  }
  // The error is thrown when the result is fetched.
  work.result.catch(() => undefined)
  return work
}

export const createWorks = (nowMs: () => number = Date.now) => {
  const kept = new Map<string, Kept>()
  const enter = createPlaces(runningMax)

  const sweep = (): void => {
    const counts = new Map<string, number>()
    for (const [id, { party, endedAtMs }] of [...kept].reverse()) {
      if (endedAtMs === null) continue
      const count = (counts.get(party) ?? 0) + 1
      counts.set(party, count)
      if (count > keptMax || nowMs() - endedAtMs > keptMs) kept.delete(id)
    }
  }

  return {
    /**
     * The result of the work, or its state if it has not ended after `waitMs`. Throws the error of the work, and `CommandRefused` if too much
     * work is running already.
     */
    soon: async <Result>(
      asked: Asked<Result>,
      waitMs: number,
    ): Promise<{ result: Result } | { work: Work }> => {
      sweep()
      const id = JSON.stringify([asked.owner, asked.key])
      let work = kept.get(id)
      if (work === undefined) {
        const leave = enter(asked.asker)
        if (leave === null)
          throw new CommandRefused('too many pages are being computed; try again in a minute')
        work = begun(asked, nowMs, leave)
        kept.set(id, work)
      }
      const fetched = work.result.then(
        (value) => ({ result: value as Result }),
        (error: unknown) => ({ error }),
      )
      const found = await within(fetched, { waitMs }, () => ({ work }))
      if ('work' in found) return found
      kept.delete(id)
      if ('error' in found) throw found.error
      return found
    },
  }
}
